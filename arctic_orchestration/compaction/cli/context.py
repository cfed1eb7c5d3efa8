"""Opens the state database and the lake's catalog for the compaction commands.

pyiceberg is imported when a command needs the catalog, so that the others do not wait for it.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import typer

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.queue import table_queues
from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.state import sqlite_file, state_database
from arctic_orchestration.console.terminal import Console
from arctic_orchestration.errors import InvalidInput, naming
from arctic_orchestration.quantities import parse_duration
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="Its name in the catalog: lake.flights.")
]


class Lake:
    """The catalog, loaded on first use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def catalog(self) -> "Catalog":
        """Returns the catalog ``ARCTIC_CATALOG``.

        Errors:
            CatalogUnavailable: it did not answer, after several tries.
            ConfigurationError: pyiceberg cannot use its configuration.
        """
        from arctic_orchestration.lake.tables import open_catalog

        return open_catalog(self.settings)

    def table(self, name: str) -> "Table":
        """Returns a table of the catalog.

        Errors:
            NotFound: the table does not exist.
            LakeError: it does not answer, or the table's metadata cannot be read.
        """
        from arctic_orchestration.lake.tables import load_table

        return load_table(self.catalog, name)

    def tables(self) -> list[str]:
        """Returns the names of all tables of the catalog, sorted.

        Errors:
            CatalogUnavailable: it did not answer, after several tries.
        """
        from arctic_orchestration.lake.table_listing import list_tables

        return list_tables(self.catalog)


class Opened(Lake):
    """The catalog, and the state database."""

    def __init__(self, settings: Settings, database: Database) -> None:
        super().__init__(settings)
        self.database = database

    @cached_property
    def catalog(self) -> "Catalog":
        """As of :class:`Lake`; binds nothing.

        Errors:
            ConfigurationError: the state database is bound to another catalog, too.
        """
        from arctic_orchestration.compaction.catalog_binding import refuse_other

        catalog = super().catalog
        refuse_other(self.database, catalog)
        return catalog

    @property
    def actor(self) -> Actor:
        """The caller of the command, for the audit log."""
        return actor(self.settings.cluster)

    def register_table(self, name: str, now: datetime) -> None:
        """Registers a table of the catalog that the planner has not found yet.

        Errors:
            NotFound: the catalog does not have the table.
            LakeError: it does not answer, or the table's metadata cannot be read.
            InvalidInput: a property of the table is invalid.
        """
        with self.database.read() as tx:
            known = tables.find_table(tx, name)
        if known is not None and known.gone_at is None:
            return
        policy = Policy.of(self.table(name).properties, name)
        with self.database.begin() as tx:
            table_queues.see_table(tx, name, queue=policy.queue, level=policy.level, now=now)


@contextmanager
def opened_compaction(*, makes: bool = False) -> Iterator[Opened]:
    """Opens the state database in the environment's settings.

    Args:
        makes: creates a missing state database in SQLite.

    Errors:
        ConfigurationError: there is no database, or it has another schema.
        InvalidInput: a setting is invalid.
    """
    settings = Settings.from_environment()
    if makes:
        file = sqlite_file(settings.database_url)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
        database = Database.open(settings.database_url)
    else:
        database = state_database(settings, made_by="the planner (arctic compaction serve or tick)")
    with closing(database):
        yield Opened(settings, database)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows a person at a terminal what takes long."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def age_option(option: str, text: str) -> timedelta:
    """Parses a person's duration.

    Errors:
        InvalidInput: it is invalid.
    """
    with naming(option, text):
        return parse_duration(text)


def positive_duration(option: str, text: str) -> timedelta:
    """Parses a person's duration, which must be positive.

    Errors:
        InvalidInput: it is invalid.
    """
    duration = age_option(option, text)
    if not duration:
        raise InvalidInput(option, text, "a duration longer than 0s")
    return duration
