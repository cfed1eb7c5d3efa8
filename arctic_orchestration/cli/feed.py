"""``arctic feed``: where a location stands in Dagster's event log."""

from typing import Annotated

import sqlalchemy as sa
import typer

from arctic_orchestration.cli.display import print_json
from arctic_orchestration.cli.state import JsonOption
from arctic_orchestration.cli.terminal import Console, escape
from arctic_orchestration.database.engine import Database
from arctic_orchestration.database.tables import locations
from arctic_orchestration.errors import NotFound
from arctic_orchestration.settings import Settings

app = typer.Typer(help="Reading Dagster's event log.", no_args_is_help=True)


@app.callback()
def feed() -> None:
    """Reading Dagster's event log."""


@app.command()
def restart(
    location: Annotated[str, typer.Argument(metavar="LOCATION", help="The code location's name.")],
    as_json: JsonOption = False,
) -> None:
    """Begins at the end of the event log, as a new location does; schedules and jobs stay.

    For a Dagster instance that was given a new storage. What the old log had, and was not read
    yet, is not read any more.
    """
    settings = Settings.from_environment()
    database = Database.open(settings.database_url)
    with database.begin() as tx:
        this = (locations.c.cluster == settings.cluster) & (locations.c.name == location)
        values = {"position": None, "storage_id": None}
        found = tx.execute(sa.update(locations).where(this).values(values)).rowcount
        known = sa.select(locations.c.name).where(locations.c.cluster == settings.cluster)
        names = sorted(tx.execute(known).scalars())
    database.close()
    if not found:
        shown = ", ".join(names) or "none"
        raise NotFound(f"cluster {settings.cluster} has no location {location}; it has: {shown}")
    if as_json:
        print_json({"location": location, "restarted": True})
        return
    Console().print(f"{escape(location)} begins at the end of the event log with its next tick")
