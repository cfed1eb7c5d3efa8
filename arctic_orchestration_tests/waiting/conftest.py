from collections.abc import Iterator

import pytest

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.waiting.planted import plant


@pytest.fixture
def planted(database_url: str) -> Iterator[Database]:
    """A state database in which something waits for each planted cause, once on each backend."""
    made = Database(database_url)
    plant(made)
    yield made
    made.close()
