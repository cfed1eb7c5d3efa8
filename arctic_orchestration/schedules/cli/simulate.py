"""``arctic simulate``: what the scheduler would decide, on a virtual clock and without Dagster."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn

from arctic_orchestration.console.terminal import Console, json_text
from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.quantities import format_duration, parse_duration
from arctic_orchestration.schedules.cli.context import opened
from arctic_orchestration.schedules.inventory import inventories
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.schedules.simulator import (
    RUN_DURATION,
    TICK,
    DeclaredAssets,
    Timeline,
    declared_by,
    read_declared,
    read_timeline,
)
from arctic_orchestration.schedules.simulator import simulate as decisions_of
from arctic_orchestration.schedules.simulator.lines import format_moment, parse_moment
from arctic_orchestration.schedules.simulator.timeline import read_text
from arctic_orchestration.yaml_file import load


def simulate(
    schedules: Annotated[Path, typer.Argument(metavar="SCHEDULES.yaml", help="The schedules.")],
    timeline: Annotated[
        Path, typer.Argument(metavar="TIMELINE.jsonl", help="What happens, a JSON object a line.")
    ],
    tick: Annotated[str, typer.Option(help="How often the engine ticks.")] = format_duration(TICK),
    until: Annotated[
        str | None, typer.Option(help="Go on to this moment; else until nothing waits.")
    ] = None,
    run_duration: Annotated[
        str, typer.Option(help="How long a run lasts that no line ends.")
    ] = format_duration(RUN_DURATION),
    location: Annotated[
        str | None,
        typer.Option("--location", "-l", help="Take partitions from this code location."),
    ] = None,
) -> None:
    """Simulate schedules; print each decision as JSON.

    The real engine runs on a virtual clock and its own database, without Dagster, and changes
    nothing. Errors of the input are reported before any decision: line, field, value, expectation.

    The file declares the partitions of assets, under assets and jobs. With --location they are
    also read from the state database, where the dispatcher stores them; the file has priority.
    """
    known = DeclaredAssets() if location is None else _of_location(location)
    declared, assets, happens = _read(schedules, timeline, known)
    problems: list[InvalidInput] = []
    durations = []
    for option, text in (("--tick", tick), ("--run-duration", run_duration)):
        try:
            durations.append(parse_duration(text))
            if option == "--tick" and not durations[-1]:
                raise ValueError("a duration longer than 0s")
        except ValueError as error:
            problems.append(InvalidInput(option, text, str(error)))
    end = None
    try:
        end = None if until is None else parse_moment(until)
        if end is not None and end < (begin := happens.lines[0].at):
            raise ValueError(f"a moment not before the first line, {format_moment(begin)}")
    except ValueError as error:
        problems.append(InvalidInput("--until", until, str(error)))
    if problems:
        raise InvalidDefinition(problems)
    printed = []
    with _progress(happens.lines[0].at, end or happens.lines[-1].at) as reached:
        for decision in decisions_of(
            declared,
            happens,
            tick=durations[0],
            until=end,
            run_duration=durations[1],
            assets=assets,
        ):
            printed.append(json_text(decision.to_json()))
            reached(decision.at)
    # At the end, since a line may end an unknown run: then nothing is printed.
    for line in printed:
        sys.stdout.write(f"{line}\n")


def _of_location(name: str) -> DeclaredAssets:
    """Returns the assets of a code location, as stored by its dispatcher."""
    with opened(name) as state, state.read() as (tx, place):
        found = inventories(tx, place.cluster).get(place.name)
    if found is None:
        expected = "a code location whose dispatcher has ticked with this version"
        raise InvalidInput("--location", name, expected)
    return declared_by(found)


def _read(
    schedules: Path, timeline: Path, known: DeclaredAssets
) -> tuple[list[Schedule], DeclaredAssets, Timeline]:
    """Reads both files; raises every problem of both."""
    problems: list[InvalidInput] = []
    declared: list[Schedule] | None = None
    assets = DeclaredAssets()
    happens: Timeline | None = None
    try:
        text = read_text(schedules, "a file of schedules", field="SCHEDULES.yaml")
        declared = read_schedules(text, name=schedules.name)
        assets = read_declared(load(text, name=schedules.name)).with_those_of(known)
        problems += assets.problems(declared)
    except InvalidInput as error:
        problems += error.problems if isinstance(error, InvalidDefinition) else [error]
    try:
        happens = read_timeline(timeline)
        if declared is not None:
            happens.check_names(declared)
    except InvalidInput as error:
        problems += error.problems if isinstance(error, InvalidDefinition) else [error]
    if problems or declared is None or happens is None:
        raise InvalidDefinition(problems)
    return declared, assets, happens


@contextmanager
def _progress(begin: datetime, end: datetime) -> Iterator[Callable[[datetime], None]]:
    """Shows the progress of a long simulation at a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[at]}"))
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        total = max((end - begin).total_seconds(), 1.0)
        task = bar.add_task("simulating", total=total, at=format_moment(begin))

        def reached(at: datetime) -> None:
            bar.update(task, completed=(at - begin).total_seconds(), at=format_moment(at))

        yield reached
