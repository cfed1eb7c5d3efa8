"""A state database that is away for a while.

On Postgres its server is ended as by a crash; on SQLite another connection keeps everybody out.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.postgres import PostgresServer

Outage = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def outage(backend: str, state: Database, request: pytest.FixtureRequest) -> Outage:
    """The database is away while the block lasts."""

    @contextmanager
    def postgres() -> Iterator[None]:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        server.stop(immediate=True)
        try:
            yield
        finally:
            server.start()

    @contextmanager
    def sqlite() -> Iterator[None]:
        other = sqlite3.connect(str(state.engine.url.database), isolation_level=None, timeout=60)
        other.execute("begin exclusive")
        try:
            yield
        finally:
            other.execute("rollback")
            other.close()

    return sqlite if backend == "sqlite" else postgres
