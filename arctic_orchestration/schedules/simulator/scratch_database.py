"""A private state database in memory for one simulation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import sqlalchemy as sa

from arctic_orchestration.schedules.simulator.shortcut import Shortcut
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.metadata import create_tables


class PrivateDatabase(Database):
    """SQLite in memory, in one transaction for the whole simulation.

    No other process reads it, and it does not outlive its simulation: separate transactions would
    only cost time, several times a tick. An error inside a transaction ends the simulation.
    """

    def __init__(self) -> None:
        super().__init__("sqlite://")
        self._connection = self.engine.connect()
        self._connection.begin()
        # The same tables as after all migrations, created at once.
        create_tables(self._connection)
        self._connection = cast(sa.Connection, Shortcut(self._connection))

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """Yields the one transaction."""
        yield self._connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Yields the one transaction, which sees everything that was written."""
        yield self._connection

    def close(self) -> None:
        """Deletes the database."""
        self._connection.close()
        super().close()
