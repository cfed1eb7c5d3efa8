"""A state database on each backend, a log and a clock, for the tests of consumers."""

from collections.abc import Iterator

import pytest

from arctic_orchestration.database.engine import Database
from arctic_orchestration_tests.consuming.arrivals import Clock, Log


@pytest.fixture
def state(database_url: str) -> Iterator[Database]:
    """A fresh state database, once on each backend."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def log() -> Log:
    """An empty log."""
    return Log()


@pytest.fixture
def clock() -> Clock:
    """A clock that stands at noon."""
    return Clock()
