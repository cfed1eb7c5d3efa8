"""``arctic adopt``: schedules and sensors of Dagster become schedules of ours, and back.

Exit codes: 0 done; 1 something still waits, and the same command goes on with it, or decisions
differ; 2 refused.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.dagster_instance import opened_instance
from arctic_orchestration.console.display import Rows, colored, console, counted, print_json
from arctic_orchestration.console.state import JsonOption, opened_state, read_state
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import InvalidInput, NotFound, naming
from arctic_orchestration.quantities import parse_duration
from arctic_orchestration.schedules.adoption.journal import Step
from arctic_orchestration.schedules.cli.adopt_diff import show_differences
from arctic_orchestration.settings import Settings

if TYPE_CHECKING:
    from arctic_orchestration.schedules.dagster.adoption.drafts import Drafted
    from arctic_orchestration.schedules.dagster.adoption.session import Item, Session
    from arctic_orchestration.schedules.dagster.adoption.workspace import LoadedRepository

_EVERY_SECONDS = 1.0
_WHAT = "what differs, and notes"


def adopt(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[diff] [NAME]...",
            help="Schedules and sensors; all. diff: how those in shadow decided differently.",
        ),
    ] = None,
    location: Annotated[
        str | None, typer.Option("--location", "-l", help="Dagster's name of the code location.")
    ] = None,
    workspace: Annotated[
        list[Path] | None, typer.Option("--workspace", "-w", help="A workspace file; repeatable.")
    ] = None,
    module: Annotated[
        list[str] | None, typer.Option("--module-name", "-m", help="A module with definitions.")
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Decide beside NAME, and launch nothing.")
    ] = False,
    stop_shadow: Annotated[
        bool, typer.Option("--stop-shadow", help="End what --shadow began.")
    ] = False,
    cut_over: Annotated[
        bool, typer.Option("--cut-over", help="Stop NAME in Dagster, and begin exactly there.")
    ] = False,
    back: Annotated[
        bool, typer.Option("--back", help="End the schedule, and start NAME exactly there.")
    ] = False,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="Cut over what differs, too.")
    ] = False,
    wait: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait.")] = "5m",
    as_json: JsonOption = False,
) -> None:
    """Take over Dagster's schedules and sensors.

    Lists what they become, shadows them, cuts over, or back. The report says of each whether its
    schedule is exact, approximate or not possible, and why. No run is missed and none is made
    twice. After a crash, repeat the command.
    """
    from arctic_orchestration.schedules.dagster.adoption.workspace import load_workspace

    given = {
        "--shadow": shadow, "--stop-shadow": stop_shadow, "--cut-over": cut_over, "--back": back
    }  # fmt: skip
    steps = [option for option, is_given in given.items() if is_given]
    names, diff = list(names or ()), False
    if names[:1] == ["diff"] and not steps:
        names, diff = names[1:], True
    if len(steps) > 1:
        raise InvalidInput(steps[1], True, f"one of {', '.join(given)}")
    if steps and not names:
        raise InvalidInput("NAME", None, f"at least one schedule or sensor for {steps[0]}")
    with naming("--wait", wait):
        seconds = parse_duration(wait).total_seconds()
    found = load_workspace(workspace or (), module or (), utc_now())
    chosen = [one for one in found if location in (None, one.location)]
    if not chosen:
        known = ", ".join(sorted({one.location for one in found}))
        raise NotFound(f"the workspace has no code location {location}; it has: {known}")
    if not (steps or diff):
        _list(chosen, names, as_json=as_json)
        return
    with (
        opened_state() as (settings, database),
        opened_instance() as instance,
        closing(_session(database, settings, instance, chosen)) as session,
    ):
        if diff:
            fails = show_differences(session, names, as_json=as_json)
        else:
            if cut_over or shadow:
                # All of them, before the first one begins.
                for name in names:
                    session.check(name, approximate=approximate, shadowed=shadow)
                items = [
                    session.cut_over(name, approximate=approximate, shadowed=shadow)
                    for name in names
                ]
                waiting = _repeat(items, session.forward, seconds)
            else:
                find = session.in_shadow if stop_shadow else session.find
                items = [find(name) for name in names]
                waiting = _repeat(items, session.back, seconds)
            _show(items, waiting, as_json=as_json)
            # --back may have undone it meanwhile.
            undone = cut_over and not all(item.is_adopted() for item in items)
            fails = bool(waiting) or undone
    if fails:
        raise typer.Exit(1)


def _session(database: Any, settings: Settings, instance: Any, chosen: Sequence[Any]) -> "Session":
    from arctic_orchestration.schedules.dagster.adoption.session import Session

    return Session(
        database=database,
        cluster=settings.cluster,
        instance=instance,
        repositories=chosen,
        clock=utc_now,
        actor=actor(settings.cluster),
    )


def _repeat(
    items: "Sequence[Item]", step: "Callable[[Item], str | None]", seconds: float
) -> dict[str, str]:
    """Does the steps of all items until none waits; returns what still waits, and for what."""
    until = time.monotonic() + seconds
    while True:
        waits = {item.name: reason for item in items if (reason := step(item)) is not None}
        if not waits or time.monotonic() >= until:
            return waits
        time.sleep(_EVERY_SECONDS)


def _show(items: "Sequence[Item]", waiting: dict[str, str], *, as_json: bool) -> None:
    rows = [(item, item.adoption(), waiting.get(item.name)) for item in items]
    if as_json:
        print_json(
            [
                {
                    "name": item.name,
                    "step": None if adoption is None else adoption.step.value,
                    "schedule": None if adoption is None else adoption.schedule,
                    "waits_for": waits,
                }
                for item, adoption, waits in rows
            ]
        )
        return
    for item, adoption, waits in rows:
        text = "Dagster's own again" if adoption is None else adoption.step.value
        if adoption is not None and waits is None:
            text += f": the schedule {adoption.schedule}"
            if adoption.step is Step.ADOPTED and item.is_suspended(adoption.schedule):
                text += f", which is suspended (arctic schedules enable {adoption.schedule})"
        if waits is not None:
            text += f"; waits: {waits}"
        console().print(f"{escape(item.name)}: {escape(text)}")


def _list(chosen: "Sequence[LoadedRepository]", names: list[str], *, as_json: bool) -> None:
    drafts = [
        (repository, drafted)
        for repository in chosen
        for drafted in repository.drafts
        if not names or drafted.name in names
    ]
    missing = set(names) - {drafted.name for _, drafted in drafts}
    if missing:
        known = sorted({one.name for repository in chosen for one in repository.drafts})
        raise NotFound(f"there is no {', '.join(sorted(missing))}; there are: {', '.join(known)}")
    steps = _steps()
    if as_json:
        print_json(
            [
                {
                    **drafted.to_json(),
                    "location": repository.location,
                    "step": steps.get((repository.owner, drafted.name)),
                }
                for repository, drafted in drafts
            ]
        )
        return
    if not drafts:
        console().print("no schedules and sensors of Dagster")
        return
    shown = Rows(
        counted(len(drafts), "object"), "outcome", "kind", "object", "adoption", _WHAT, text=_WHAT
    )
    for repository, drafted in drafts:
        draft = drafted.draft
        lines = [*draft.reasons, *(f"({note})" for note in draft.notes)]
        shown.add(
            colored(draft.outcome),
            drafted.kind,
            escape(drafted.name),
            steps.get((repository.owner, drafted.name), ""),
            "\n".join(escape(line) for line in lines),
        )
    shown.print()
    if names:
        _print_code([drafted for _, drafted in drafts])


def _print_code(drafts: "Sequence[Drafted]") -> None:
    """Prints the Python of each, below the imports of all, and its YAML where that suffices."""
    from arctic_orchestration.schedules.dagster.adoption.python_form import imports_of

    calls = [drafted.python for drafted in drafts if drafted.python is not None]
    if calls:
        typer.echo(f"\n{imports_of(calls)}")
    for drafted in drafts:
        if drafted.python is not None:
            typer.echo(f"\n{drafted.python}\n\n{drafted.yaml or '# no YAML: it needs Python'}")


def _steps() -> dict[tuple[str, str], str]:
    """Returns how far each adoption has come, by code location and name."""
    from arctic_orchestration.schedules.views.adoptions import steps

    with read_state() as state:
        return {} if state is None else steps(*state)
