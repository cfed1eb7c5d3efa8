"""Opens the state database for a command, at the location that the person means."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa
import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.database import address, dialect
from arctic_orchestration.database.engine import Database
from arctic_orchestration.errors import ConfigurationError, InvalidInput
from arctic_orchestration.scheduling import location as locations
from arctic_orchestration.scheduling import reading
from arctic_orchestration.scheduling.location import Location
from arctic_orchestration.scheduling.names import location_named
from arctic_orchestration.scheduling.store import ScheduleStore
from arctic_orchestration.settings import Settings

LocationOption = Annotated[
    str | None,
    typer.Option(
        "--location", "-l", help="The code location; not needed where only one of them ticks."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document, for programs.")]


class State:
    """One location in the state database."""

    def __init__(self, database: Database, cluster: str, name: str | None) -> None:
        self._database = database
        self._cluster = cluster
        self._name = name
        self.store = ScheduleStore()

    @contextmanager
    def read(self) -> Iterator[tuple[sa.Connection, Location]]:
        """A transaction that only reads."""
        with self._database.read() as tx:
            yield tx, location_named(tx, self._cluster, self._name, utc_now())

    def read_on(self, log: Any, now: datetime) -> list[str]:
        """Reads an event log to its end for the location, as its dispatcher would.

        Returns runs to end: their jobs were canceled before they were seen.
        """
        with self.read() as (_, place):
            name = place.name
        return reading.read_on(self._database, self._cluster, name, log, log, self.store, now)

    @contextmanager
    def change(self) -> Iterator[tuple[sa.Connection, Location]]:
        """A transaction that writes, with the location locked against its dispatcher."""
        with self._database.begin() as tx:
            named = location_named(tx, self._cluster, self._name, utc_now())
            yield tx, locations.locked(tx, self._cluster, named.name)


@contextmanager
def opened(location: str | None) -> Iterator[State]:
    """The state at a location, as the environment's settings name the database.

    Errors:
        ConfigurationError: there is no database yet, or its schema is another.
        InvalidInput: a setting cannot be used.
    """
    settings = Settings.from_environment()
    database = state_database(settings, made_by="the dispatcher")
    try:
        yield State(database, settings.cluster, location)
    finally:
        database.close()


def state_database(settings: Settings, *, made_by: str) -> Database:
    """The state database, which something else must have made.

    Errors:
        ConfigurationError: there is none yet, or its schema is another.
    """
    # Looking must not make a database where there is none.
    file = sqlite_file(settings.database_url)
    if file is not None and not file.exists():
        raise ConfigurationError(
            f"There is no state database {file}. Set DAGSTER_HOME or ARCTIC_DATABASE_URL "
            f"to where {made_by} has it, or start that, which makes it (see: arctic doctor)"
        )
    return Database.open(settings.database_url)


def sqlite_file(url: str) -> Path | None:
    """The file of a database in SQLite; none: it is another kind of URL."""
    try:
        parsed = address.parse(url)
    except InvalidInput:
        # Opening it says what is wrong.
        return None
    return Path(str(parsed.database)) if dialect.is_file(parsed) else None
