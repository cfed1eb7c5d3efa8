"""A timeline: lines in order of time, read from a file of JSON lines."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.schedules.simulator.lines import (
    Deploy,
    EndRun,
    Line,
    OnSchedule,
    Update,
    format_moment,
    parse_line,
)
from arctic_orchestration.yaml_file import repeated_key


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Lines in order; at least one."""

    lines: Sequence[Line]

    @classmethod
    def parse(
        cls, rows: Iterable[str], *, name: str = "timeline", folder: Path | None = None
    ) -> "Timeline":
        """Reads lines of JSON; skips empty ones.

        Args:
            rows: the lines.
            name: their name in messages.
            folder: the folder of the files of ``deploy`` lines.

        Errors:
            InvalidDefinition: names every invalid line and field.
        """
        lines: list[Line] = []
        problems: list[InvalidInput] = []
        for number, row in enumerate(rows, start=1):
            if not row.strip():
                continue
            try:
                line = parse_line(_loaded(row, f"{name}:{number}"), f"{name}:{number}")
                if isinstance(line, Deploy):
                    line = _with_schedules(line, folder or Path())
            except InvalidDefinition as error:
                problems += error.problems
                continue
            if lines and line.at < lines[-1].at:
                before = (
                    f"a moment not before {format_moment(lines[-1].at)}, where the last line is"
                )
                problems.append(line.refused("at", format_moment(line.at), before))
                continue
            lines.append(line)
        if not lines and not problems:
            problems.append(InvalidInput(name, "nothing", "at least one line"))
        if problems:
            raise InvalidDefinition(problems)
        return cls(lines=lines)

    def check_names(self, schedules: Iterable[Schedule]) -> None:
        """Checks that the schedules of lines exist at the moments of the lines.

        Args:
            schedules: those that are deployed before the first line.

        Errors:
            InvalidDefinition: names every line with an unknown schedule.
        """
        names = {schedule.name for schedule in schedules}
        problems = []
        for line in self.lines:
            if isinstance(line, (OnSchedule, Update, EndRun)):
                name = line.schedule
                # A run goes on when its schedule is deleted.
                if name is not None and name not in names and not isinstance(line, EndRun):
                    expected = f"one of {', '.join(sorted(names)) or 'no schedules'}"
                    problems.append(line.refused("schedule", name, expected))
                if isinstance(line, OnSchedule) and line.do == "delete":
                    names.discard(line.schedule)
            elif isinstance(line, Deploy):
                declared = {schedule.name for schedule in line.schedules}
                names = declared if line.update_schedules else names
        if problems:
            raise InvalidDefinition(problems)


def read_timeline(path: Path) -> Timeline:
    """Returns the timeline of a file.

    Errors:
        InvalidInput: the file cannot be read.
        InvalidDefinition: names every invalid line and field.
    """
    return Timeline.parse(
        read_text(path, "a file of JSON lines").split("\n"), name=path.name, folder=path.parent
    )


def read_text(path: Path, expected: str, *, field: str = "") -> str:
    """Returns the text of a file.

    Errors:
        InvalidInput: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").removeprefix("\ufeff")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(field or path.name, str(path), f"{expected} ({why})") from error


def _loaded(row: str, place: str) -> object:
    try:
        return json.loads(row, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        shown = row.strip() if len(row) <= 80 else f"{row.strip()[:77]}..."
        raise InvalidDefinition([InvalidInput(place, shown, f"a JSON object ({error})")]) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(f"{repeated_key(pairs)} stands there twice")
    return made


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _with_schedules(line: Deploy, folder: Path) -> Deploy:
    """Returns the line with the schedules of its file."""
    field = f"{line.place}.file"
    try:
        text = read_text(folder / line.file, "a file of schedules beside the timeline", field=field)
        schedules = read_schedules(text, name=line.file)
    except InvalidDefinition as error:
        raise InvalidDefinition(
            [
                InvalidInput(f"{field} {line.file}: {found.field}", found.value, found.expected)
                for found in error.problems
            ]
        ) from None
    except InvalidInput as error:
        raise InvalidDefinition([error]) from None
    return line.model_copy(update={"schedules": tuple(schedules)})
