"""Crontabs, as Vixie's cron and its successors (cronie, Debian's cron) read them.

With a day of the month and a day of the week, either is enough, unless one of the fields begins
with ``*``: then both are needed. Jobs whose minute or hour begins with ``*`` follow the new clock
when clocks change; of the others a skipped time runs right after the gap, and a repeated time runs
once, at its first.
"""

import re
from collections.abc import Iterator
from typing import Any

from arctic_orchestration.schedules.imports.cron_fields import (
    DAYS,
    MONTHS,
    as_text,
    every_hour,
    meetings,
)
from arctic_orchestration.schedules.imports.draft import (
    Draft,
    Names,
    NotPossible,
    Options,
    checked_zone,
)
from arctic_orchestration.schedules.triggers.cron import NAMED

_VARIABLE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\"[^\"]*\"|'[^']*')\s*=\s*(.*?)\s*")
_PART = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/0*([0-9]{1,9}))?")
_DIGITS = re.compile(r"[0-9]{1,9}")
_RANGES = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, MONTHS), (0, 7, DAYS))
_LONGEST = 60


def read_crontab(text: str, names: Names, options: Options) -> Iterator[Draft]:
    """Yields the draft of each line that is a job, or that is not understood."""
    environment: dict[str, str] = {}
    # As cron: other characters that Python takes for ends of lines are parts of a command.
    for number, line in enumerate(re.split(r"\r?\n", text), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        variable = _VARIABLE.fullmatch(line)
        if variable is not None:
            environment[_unquoted(variable[1])] = _unquoted(variable[2])
            continue
        draft = Draft(source=f"line {number}: {line.strip()}", names=names, options=options)
        try:
            _read_line(line, number, dict(environment), draft)
        except NotPossible as reason:
            draft.refuse(str(reason))
        yield draft


def _read_line(line: str, number: int, environment: dict[str, str], draft: Draft) -> None:
    zone, with_user = environment.pop("CRON_TZ", None), draft.options.user_column
    size = 1 if line.lstrip().startswith("@") else 5
    parts = line.split(None, size + with_user)
    if len(parts) <= size + with_user:
        raise NotPossible(f"expected a time, {'a user ' if with_user else ''}and a command")
    expression, wildcard = _expression(parts[:size])
    if zone is None:
        zone = draft.zone("the zone of the machine (CRON_TZ)")
    zone = checked_zone(zone, "CRON_TZ")
    dst = _clock_changes(expression, wildcard, zone, draft)
    command, stdin = _command(parts[-1])
    job = draft.names.job(_slug(command), draft)
    properties: dict[str, Any] = {"command": command}
    if stdin is not None:
        properties["stdin"] = stdin
    if with_user:
        properties["user"] = parts[-2]
    if environment:
        properties["environment"] = environment
    draft.note(f"the command is properties.command; the job {job} has to run it")
    draft.finish(
        name=draft.names.schedule(f"{job}_line_{number}", draft),
        description=command,
        target={"job": job},
        trigger={"cron": {"expression": expression, "timezone": zone, "catch_up": "none", **dst}},
        timeout="1d",
        coalesce=False,
        properties=properties,
        enabled=True,
    )


def _clock_changes(expression: str, wildcard: bool, zone: str, draft: Draft) -> dict[str, str]:
    """Returns the rule for clock changes, if the ticks of an expression meet any."""
    touched = meetings(expression, zone)
    if not (touched.in_a_gap or touched.in_a_fold):
        return {}
    if every_hour(expression):
        if not wildcard:
            draft.differs(
                f"when clocks in {zone} change, cron runs a line without * at each skipped time "
                "right after, and at the first of two equal times; here ticks follow the clock"
            )
        return {}
    when = f"when clocks in {zone} go forward,"
    if wildcard:
        if touched.in_a_gap:
            draft.differs(
                f"{when} cron leaves out what they skip in a line with *; here it runs once after "
                "the gap"
            )
        return {"dst": "both"}
    if touched.in_a_gap + touched.at_the_end > 1:
        draft.differs(f"{when} cron runs each time that they skip right after; here it runs once")
    return {"dst": "first"}


def _expression(fields: list[str]) -> tuple[str, bool]:
    """Returns the cron expression, and whether its minute or hour begins with ``*``."""
    if fields[0].startswith("@"):
        if fields[0].lower() not in NAMED:
            reason = "it has no time" if fields[0].lower() == "@reboot" else "is not understood"
            raise NotPossible(f"{fields[0]}: {reason}")
        fields = NAMED[fields[0].lower()].split()
    numbers = [_numbers(text, *limits) for text, limits in zip(fields, _RANGES, strict=True)]
    minute, hour, day, month, weekday = numbers
    weekday = {number % 7 for number in weekday}
    any_day, any_weekday = len(day) == 31, len(weekday) == 7
    if fields[2].startswith("*") or fields[4].startswith("*"):
        if not any_day and not any_weekday:
            raise NotPossible(
                f"{fields[2]} and {fields[4]}: cron needs both days where a field begins with *; "
                "here either would be enough"
            )
    elif any_day or any_weekday:
        # Either is enough, and one is always given.
        day, weekday = set(range(1, 32)), set(range(7))
    expression = (
        as_text(minute, 0, 59),
        as_text(hour, 0, 23),
        as_text(day, 1, 31),
        as_text(month, 1, 12),
        as_text(weekday, 0, 6),
    )
    return " ".join(expression), any(field.startswith("*") for field in fields[:2])


def _numbers(text: str, lowest: int, highest: int, names: tuple[str, ...]) -> set[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        read = _PART.fullmatch(part)
        if read is None:
            raise NotPossible(f"{text}: is not understood")
        first, last, step = read.groups()
        if first is not None and last is None and step is not None:
            raise NotPossible(f"{part}: cron refuses a step without a range")
        begin = lowest if first is None else _number(first, lowest, highest, names)
        end = highest if first is None else begin
        end = end if last is None else _number(last, lowest, highest, names)
        if begin > end or step == "0":
            raise NotPossible(f"{part}: cron refuses it")
        numbers.update(range(begin, end + 1, int(step or 1)))
    return numbers


def _number(text: str, lowest: int, highest: int, names: tuple[str, ...]) -> int:
    if text.lower() in names:
        # Months begin with 1, days of the week with 0.
        return lowest + names.index(text.lower())
    if not _DIGITS.fullmatch(text) or not lowest <= int(text) <= highest:
        raise NotPossible(f"{text}: expected {lowest} to {highest}")
    return int(text)


def _command(text: str) -> tuple[str, str | None]:
    r"""Returns the command and its input: behind the first ``%``; others are newlines, ``\%``
    is a percent sign."""
    pieces = [piece.replace("\\%", "%") for piece in re.split(r"(?<!\\)%", text.rstrip())]
    return pieces[0].strip(), "\n".join(pieces[1:]) if len(pieces) > 1 else None


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text


def _slug(command: str) -> str:
    word = re.sub(r"[^A-Za-z0-9]+", "_", command).strip("_")[:_LONGEST].strip("_")
    return word if re.match("[A-Za-z]", word) else f"run_{word}".rstrip("_")
