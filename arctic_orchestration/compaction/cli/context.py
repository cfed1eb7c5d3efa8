"""Opens what the compaction commands work on: the state database and the lake's catalog.

pyiceberg is imported when a command asks for the catalog, so that the others do not wait for it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import sqlalchemy as sa
import typer

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.state import sqlite_file, state_database
from arctic_orchestration.console.terminal import Console
from arctic_orchestration.errors import InvalidInput, NotFound
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
    """The catalog, when it is asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def catalog(self) -> "Catalog":
        """The catalog that ``ARCTIC_CATALOG`` names.

        Errors:
            CatalogUnavailable: it did not answer, however often it was asked.
            ConfigurationError: pyiceberg cannot make sense of its configuration.
        """
        from arctic_orchestration.lake.tables import open_catalog

        return open_catalog(self.settings)

    def table(self, name: str) -> "Table":
        """A table of the catalog.

        Errors:
            NotFound: it has no such table.
            LakeError: it does not answer, or the table's metadata cannot be read.
        """
        from arctic_orchestration.lake.tables import load_table

        return load_table(self.catalog, name)

    def tables(self) -> list[str]:
        """The names of all tables of the catalog, sorted.

        Errors:
            CatalogUnavailable: it did not answer, however often it was asked.
        """
        from arctic_orchestration.lake.tables import list_tables

        return list_tables(self.catalog)


class Opened(Lake):
    """The catalog, and the state database."""

    def __init__(self, settings: Settings, database: Database) -> None:
        super().__init__(settings)
        self.database = database

    @property
    def actor(self) -> Actor:
        """Who calls the command, for the audit log."""
        return actor(self.settings.cluster)

    def register_table(self, name: str, now: datetime) -> None:
        """Lets compaction know a table of the catalog that the planner has not found yet.

        Errors:
            NotFound: the catalog has no such table.
            LakeError: it does not answer, or the table's metadata cannot be read.
            InvalidInput: a property of the table cannot be used.
        """
        with self.database.read() as tx:
            known = registered_table(tx, name)
        if known is not None and known.gone_at is None:
            return
        policy = Policy.of(self.table(name).properties, name)
        with self.database.begin() as tx:
            queues.see_table(tx, name, queue=policy.queue, level=policy.level, now=now)


@contextmanager
def opened_compaction(*, makes: bool = False) -> Iterator[Opened]:
    """The state that the environment's settings name.

    Args:
        makes: a state database in SQLite that is not there yet is made.

    Errors:
        ConfigurationError: there is no database, or its schema is another.
        InvalidInput: a setting cannot be used.
    """
    settings = Settings.from_environment()
    if makes:
        file = sqlite_file(settings.database_url)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
        database = Database.open(settings.database_url)
    else:
        database = state_database(settings, made_by="the planner (arctic compaction serve or tick)")
    try:
        yield Opened(settings, database)
    finally:
        database.close()


def registered_table(tx: sa.Connection, name: str) -> CompactionTable | None:
    """The row of a table; none: compaction does not know it."""
    try:
        return tables.table_by_name(tx, name)
    except NotFound:
        return None


@contextmanager
def working(what: str) -> Iterator[None]:
    """Tells a person at a terminal what takes its time."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def age_option(option: str, text: str) -> timedelta:
    """A duration that a person gave.

    Errors:
        InvalidInput: it is none.
    """
    return _read(option, text, parse_duration)


def positive_duration(option: str, text: str) -> timedelta:
    """A duration that a person gave, longer than nothing.

    Errors:
        InvalidInput: it is none.
    """
    duration = age_option(option, text)
    if not duration:
        raise InvalidInput(option, text, "a duration longer than 0s")
    return duration


def is_terminal() -> bool:
    """Whether a person reads what is printed."""
    return sys.stdout.isatty()


def _read(option: str, text: str, parse: Callable[[str], timedelta]) -> timedelta:
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidInput(option, text, str(error)) from None
