"""``arctic feed``: the position of a location in Dagster's event log."""

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

import sqlalchemy as sa
import typer

from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.dagster_errors import dagster_message
from arctic_orchestration.console.display import print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.errors import ConfigurationError, InvalidInput, NotFound, naming
from arctic_orchestration.schedules.simulator.lines import parse_moment
from arctic_orchestration.settings import Settings
from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import locations, schedules

app = typer.Typer(no_args_is_help=True)


@app.callback()
def feed() -> None:
    """Manage the reading of Dagster's event log."""


@app.command()
def restart(
    location: Annotated[str, typer.Argument(metavar="LOCATION", help="The code location's name.")],
    from_event: Annotated[
        int | None,
        typer.Option(metavar="ID", min=1, help="Read on with this event of Dagster's log."),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(metavar="T", help="Read on with the first event that is not older."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Continue at the end of the event log, or where given.

    Schedules and jobs stay.

    For a Dagster instance that was given a new storage, or whose storage was restored from a
    backup. What the log has, and was not read yet, is not read any more; with --from-event or
    --from-time everything from there on is read, also what was read before.
    """
    if from_event is not None and from_time is not None:
        raise InvalidInput("--from-time", from_time, "one of --from-event and --from-time")
    settings = Settings.from_environment()
    begin = _begin(from_event, from_time)
    values = {"position": begin.position, "storage_id": begin.storage_id}
    with closing(Database.open(settings.database_url)) as database, database.begin() as tx:
        this = (locations.c.cluster == settings.cluster) & (locations.c.name == location)
        found = tx.execute(sa.update(locations).where(this).values(values)).rowcount
        if found:
            event = begin.event_id
            # What is being handed back to Dagster was to take events up to an id of the old log.
            here = sa.select(locations.c.id).where(this).scalar_subquery()
            ending = (schedules.c.location_id == here) & schedules.c.until_event.is_not(None)
            tx.execute(sa.update(schedules).where(ending).values(until_event=0))
            audit.record(tx, actor(settings.cluster), "feed", "restart", location, from_event=event)
        known = sa.select(locations.c.name).where(locations.c.cluster == settings.cluster)
        names = sorted(tx.execute(known).scalars())
    if not found:
        shown = ", ".join(names) or "none"
        raise NotFound(f"cluster {settings.cluster} has no location {location}; it has: {shown}")
    if as_json:
        document = {"location": location, "restarted": True}
        if begin.event_id is not None:
            document["from_event"] = begin.event_id
        print_json(document)
        return
    where = "the end of the event log" if begin.event_id is None else f"event {begin.event_id}"
    Console().print(f"{escape(location)} begins at {where} with its next tick")


@dataclass(frozen=True, kw_only=True)
class _Begin:
    """The position where a location begins; without fields: the end."""

    position: str | None = None
    storage_id: str | None = None
    event_id: int | None = None


def _begin(from_event: int | None, from_time: str | None) -> _Begin:
    if from_event is None and from_time is None:
        return _Begin()
    from dagster import DagsterInstance

    from arctic_orchestration.event_log.dagster_log import DagsterLog

    moment = None
    if from_time is not None:
        with naming("--from-time", from_time):
            moment = parse_moment(from_time)
    try:
        instance = DagsterInstance.get()
    except Exception as error:
        raise ConfigurationError(
            f"Dagster's instance cannot be opened: {dagster_message(error)} "
            "Set DAGSTER_HOME to the folder that holds dagster.yaml"
        ) from error
    with instance, closing(DagsterLog(instance)) as log:
        event_id = from_event if moment is None else log.first_since(moment)
        # Without one all events are older: reading begins with the next one.
        at = log.end() if event_id is None else log.before(event_id)
        return _Begin(position=at.to_json(), storage_id=log.storage_id, event_id=event_id)
