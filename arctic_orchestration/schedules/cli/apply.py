"""``arctic schedules apply``, ``diff`` and ``update``: schedules from files.

Exit codes are those of ``diff``: 0 there is no difference, or it was applied; 1 there is one
(``diff``), or the person did not confirm it; 2 the input was refused, and nothing changed.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import sqlalchemy as sa
import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.display import confirm, console, print_json
from arctic_orchestration.console.files import name_of, text_of
from arctic_orchestration.console.state import JsonOption, LocationOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.cli.context import changing, opened
from arctic_orchestration.schedules.definition_warnings import cautions
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.location_state import State
from arctic_orchestration.schedules.lookup import schedule_by_name
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_diff import ABSENT, Difference, FieldChange
from arctic_orchestration.schedules.schedule_file import read_schedule, read_schedules
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import Origin
from arctic_orchestration.schedules.views.texts import one_line

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="YAML or JSON with the list schedules; - is stdin.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
PruneOption = Annotated[
    bool,
    typer.Option("--prune", help="Delete manually created schedules that are not in FILE."),
]


def apply(
    file: FileArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the difference, change nothing.")
    ] = False,
    yes: YesOption = False,
    prune: PruneOption = False,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create and update the schedules of FILE, all or none.

    The difference is shown first. A schedule that is updated keeps its status, and its waiting
    jobs are discarded. A new one is suspended unless it says enabled.
    """
    wanted = read_schedules(text_of(file), name=name_of(file))
    with opened(location) as state:
        _apply(state, wanted, prune=prune, dry_run=dry_run, yes=yes, as_json=as_json)


def diff(
    file: FileArgument,
    prune: PruneOption = False,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what apply would change; exit code 1 if anything."""
    wanted = read_schedules(text_of(file), name=name_of(file))
    with opened(location) as state, state.read() as (tx, place):
        difference = control.compare(tx, state.store, place, wanted, prune=prune)
        warnings = _warnings(tx, state.store, place, wanted)
    if as_json:
        print_json(_document(difference, warnings, applied=False))
    else:
        show(difference)
        _warn(warnings)
    if not difference.is_empty:
        raise typer.Exit(1)


def update(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="YAML or JSON with its definition; - is stdin.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the difference, change nothing.")
    ] = False,
    yes: YesOption = False,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace the definition of a schedule by that in FILE.

    FILE has the fields of one schedule, or the list schedules, of which NAME is taken.
    """
    schedule = read_schedule(text_of(file), name=name_of(file), schedule=name)
    with opened(location) as state:
        with state.read() as (tx, place):
            schedule_by_name(tx, place, name)
        _apply(state, [schedule], prune=False, dry_run=dry_run, yes=yes, as_json=as_json)


def show(difference: Difference) -> None:
    """Prints a difference for people: + is new, ~ is updated, - is deleted."""
    out = console()
    for schedule in difference.created:
        after = "" if schedule.enabled else f", suspended until: schedules enable {schedule.name}"
        trigger = one_line(schedule.trigger.to_form())
        out.print(f"[green]+ {escape(schedule.name)}[/]  {escape(trigger)}{escape(after)}")
    for change in difference.updated:
        made = ", declared in the code" if change.origin is Origin.CODE else ""
        out.print(f"[yellow]~ {escape(change.name)}[/]  version {change.version}{made}")
        if change.problem is not None:
            out.print(f"    created again, with its jobs deleted: {escape(change.problem)}")
        for field in change.fields:
            out.print(f"    {escape(field.path)}: {escape(_change_text(field))}")
            if field.path == "enabled":
                verb = "enable" if field.new else "suspend"
                out.print(f"      its status is kept; to change it: schedules {verb} {change.name}")
    for name in difference.deleted:
        out.print(f"[red]- {escape(name)}[/]  deleted with its jobs")
    if difference.updated:
        out.print("[dim]Waiting jobs of what is updated are discarded.[/]")
    if any(change.origin is Origin.CODE for change in difference.updated):
        out.print("[dim]What the code declares is set back by a deployment that updates it.[/]")
    counts = [
        f"{len(names)} {what}"
        for names, what in (
            (difference.created, "new"),
            (difference.updated, "updated"),
            (difference.deleted, "deleted"),
            (difference.unchanged, "unchanged"),
        )
        if names
    ]
    out.print(", ".join(counts) or "no schedules")


def _apply(
    state: State,
    wanted: Sequence[Schedule],
    *,
    prune: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    with state.read() as (tx, place):
        difference = control.compare(tx, state.store, place, wanted, prune=prune)
        warnings = _warnings(tx, state.store, place, wanted)
    if not as_json:
        show(difference)
        _warn(warnings)
    applied = not (dry_run or difference.is_empty)
    if applied:
        confirm("Apply?", yes=yes, as_json=as_json)
        with changing(state, utc_now()) as change:
            done = control.apply(
                change.tx,
                state.store,
                change.place,
                wanted,
                change.now,
                prune=prune,
                actor=actor(state.cluster),
            )
            new = [schedule.name for schedule in done.created]
            change.counts_from_now([*new, *(updated.name for updated in done.updated)])
            if done != difference:
                raise TransitionRefused(
                    "The schedules were changed meanwhile. Nothing was changed "
                    "now; check the difference again"
                )
    if as_json:
        print_json(_document(difference, warnings, applied=applied))
    elif applied:
        console().print("[green]applied[/]")
    elif dry_run and not difference.is_empty:
        console().print("nothing was changed: --dry-run")


def _warnings(
    tx: sa.Connection, store: ScheduleStore, location: Location, wanted: Sequence[Schedule]
) -> list[str]:
    """Returns warnings about unusual settings, and names that may be typos."""
    return cautions(wanted) + control.remarks(tx, store, location, wanted)


def _warn(warnings: Sequence[str]) -> None:
    for text in warnings:
        console().print(f"[yellow]warning:[/] {escape(text)}")


def _document(difference: Difference, warnings: Sequence[str], *, applied: bool) -> dict[str, Any]:
    return {"applied": applied, "difference": difference.to_json(), "warnings": list(warnings)}


def _change_text(field: FieldChange) -> str:
    if field.old is ABSENT:
        return f"+ {_value_text(field.new)}"
    if field.new is ABSENT:
        return f"- {_value_text(field.old)}"
    return f"{_value_text(field.old)} → {_value_text(field.new)}"


def _value_text(value: Any) -> str:
    if isinstance(value, dict) and len(value) == 1:
        return one_line(value)
    return repr(value) if isinstance(value, str) else str(value)
