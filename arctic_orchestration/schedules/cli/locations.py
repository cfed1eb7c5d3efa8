"""``arctic locations``: the code locations with schedules and jobs in the state database."""

from contextlib import suppress
from typing import Annotated

import sqlalchemy as sa
import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.display import Rows, confirm, console, counted, moment, print_json
from arctic_orchestration.console.state import JsonOption, opened_state
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import NotFound
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules import location_control
from arctic_orchestration.schedules.adoption.journal import refuse_while_adopted
from arctic_orchestration.schedules.location import Location, is_alive
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.locations import list_locations
from arctic_orchestration.settings import Settings
from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database

app = typer.Typer(no_args_is_help=True)

LocationArgument = Annotated[str, typer.Argument(metavar="LOCATION", help="The location's name.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Also while schedules or sensors are adopted.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List locations, and whether their dispatchers tick."""
    with opened_state() as (settings, database), database.read() as tx:
        found = list_locations(tx, settings.cluster, utc_now())
    if as_json:
        print_json({"cluster": settings.cluster, "locations": found})
        return
    shown = Rows(
        f"{counted(len(found), 'location')} of cluster {escape(settings.cluster)}",
        *("location", "state", "last tick", "schedules", "waiting", "active", "code location"),
        text="code location",
    )
    for listed in found:
        shown.add(
            escape(listed.name),
            "[green]alive[/]" if listed.alive else "[yellow]silent[/]",
            moment(listed.ticked_at),
            str(listed.schedules or ""),
            str(listed.jobs_waiting or ""),
            str(listed.jobs_active or ""),
            escape(listed.owner or "the next that ticks"),
        )
    shown.print()


@app.command()
def unbind(
    location: LocationArgument,
    force: ForceOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Unbind LOCATION; the next tick under its name binds it.

    For a code location that was renamed, or replaced by another one.
    """
    with opened_state() as (settings, database):
        found = _found(database, settings, location)
        question = f"Unbind {location} from {found.owner or 'nothing'}?{_if_alive(found, 'binds')}"
        confirm(question, yes=yes, as_json=as_json)
        with database.begin() as tx:
            place = _locked(tx, settings, location, force=force)
            location_control.unbind(tx, place)
            audit.record(
                tx, actor(settings.cluster), "locations", "unbind", location, owner=place.owner
            )
    if as_json:
        print_json({"location": location, "owner": None})
    else:
        console().print(f"{escape(location)} is bound to the next code location that ticks")


@app.command()
def rename(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The location's name.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The name it gets.")],
    force: ForceOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Rename a location; its schedules and jobs stay.

    For a code location that was renamed. A location NEW that has launched no job yet is replaced.
    """
    with opened_state() as (settings, database):
        found = _found(database, settings, old)
        question = f"Rename {old} to {new}?{_if_alive(found, 'makes')}"
        confirm(question, yes=yes, as_json=as_json)
        with database.begin() as tx:
            place = _locked(tx, settings, old, force=force)
            with suppress(NotFound):
                # It is deleted with what it has adopted.
                _locked(tx, settings, new, force=force)
            listening = location_control.listeners(tx, place)
            location_control.rename(tx, ScheduleStore(), place, new, utc_now())
            audit.record(tx, actor(settings.cluster), "locations", "rename", old, new=new)
    if as_json:
        deaf = [{"location": there, "schedule": name} for there, name in listening]
        print_json({"old": old, "new": new, "listening_to_old": deaf})
        return
    console().print(f"{escape(old)} is {escape(new)} now")
    for there, name in listening:
        console().print(
            f"[yellow]{escape(name)} of {escape(there)} still listens to runs of {escape(old)}[/]"
        )


@app.command()
def delete(
    location: LocationArgument,
    force: ForceOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete LOCATION and its schedules, jobs and history.

    Its active runs continue.

    For a code location that is gone. Tasks of its freshness dependencies stay: tasks forget.
    """
    with opened_state() as (settings, database):
        found = _found(database, settings, location)
        with database.read() as tx:
            active = location_control.active_jobs(tx, found)
            had = {one.name: one for one in list_locations(tx, settings.cluster, utc_now())}
        counts = f"{counted(had[location].schedules, 'schedule')} and their jobs"
        on = f" {counted(active, 'run')} go on, and count in no group." if active else ""
        question = f"Delete {location} with {counts}?{on}{_if_alive(found, 'makes')}"
        confirm(question, yes=yes, as_json=as_json)
        with database.begin() as tx:
            place = _locked(tx, settings, location, force=force)
            location_control.delete(tx, place, utc_now())
            details = {"schedules": had[location].schedules, "active_jobs": active}
            audit.record(tx, actor(settings.cluster), "locations", "delete", location, **details)
    if as_json:
        print_json({"deleted": location})
    else:
        console().print(f"deleted {escape(location)} with {counts}")


def _found(database: Database, settings: Settings, name: str) -> Location:
    with database.read() as tx:
        return location_by_name(tx, settings.cluster, name)


def _locked(tx: sa.Connection, settings: Settings, name: str, *, force: bool) -> Location:
    location_by_name(tx, settings.cluster, name)
    locked = locations.locked(tx, settings.cluster, name)
    if not force:
        refuse_while_adopted(tx, locked)
    return locked


def _if_alive(location: Location, does: str) -> str:
    """Returns what a dispatcher that still runs does after the change."""
    if not is_alive(location.ticked_at, utc_now()):
        return ""
    return f" It ticked at {moment(location.ticked_at)}: if it ticks again, it {does} it again."
