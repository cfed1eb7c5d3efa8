"""A state database on each backend."""

from collections.abc import Iterator

import pytest

from arctic_orchestration.state.database import Database


@pytest.fixture
def state(database_url: str) -> Iterator[Database]:
    """A fresh state database, once on each backend."""
    made = Database(database_url)
    yield made
    made.close()
