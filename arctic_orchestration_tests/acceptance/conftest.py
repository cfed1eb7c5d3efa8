"""What scenarios stand on."""

from collections.abc import Iterator

import pytest

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.acceptance.scenario import Story


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A state database, once on each backend, which runs find as they do in Dagster."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    made = Database(database_url)
    yield made
    made.close()


@pytest.fixture
def story(database: Database) -> Story:
    """A story that ticks every ten seconds, unless it says otherwise."""
    return Story(database)
