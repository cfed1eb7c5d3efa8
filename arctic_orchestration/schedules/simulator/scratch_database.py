"""A state database in memory that one simulation has to itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import sqlalchemy as sa

from arctic_orchestration.schedules.simulator.shortcut import Shortcut
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import metadata


class PrivateDatabase(Database):
    """SQLite in memory, in one transaction from the first to the last.

    Nobody else reads it, and it does not survive its simulation: to begin and commit a
    transaction would only cost, several times a tick. What raises inside one ends the simulation.
    """

    def __init__(self) -> None:
        super().__init__("sqlite://")
        self._connection = self.engine.connect()
        self._connection.begin()
        # As migrations would make it, without reading and running them one after another.
        metadata.create_all(self._connection, checkfirst=False)
        self._connection = cast(sa.Connection, Shortcut(self._connection))

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """The one transaction."""
        yield self._connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """The one transaction, which sees all that was written."""
        yield self._connection

    def close(self) -> None:
        """Forgets everything."""
        self._connection.close()
        super().close()
