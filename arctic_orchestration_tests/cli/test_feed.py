"""``arctic feed restart``, for an instance that was given a new storage."""

import json
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from arctic_orchestration.database.engine import Database
from arctic_orchestration.database.tables import locations
from arctic_orchestration_tests.cli.conftest import Outcome


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A state database with a location that follows a storage."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    made = Database(database_url)
    row = {"cluster": "default", "name": "flights", "position": "{}", "storage_id": "old"}
    with made.begin() as tx:
        tx.execute(sa.insert(locations).values(row))
    return made


def test_a_restart_forgets_position_and_storage(
    database: Database, arctic: Callable[..., Outcome]
) -> None:
    """The next tick begins at the end of whatever storage there is."""
    said = arctic("feed", "restart", "flights", "--json")
    assert json.loads(said.out) == {"location": "flights", "restarted": True}
    with database.read() as tx:
        row = tx.execute(sa.select(locations.c.position, locations.c.storage_id)).one()
    assert tuple(row) == (None, None)


def test_an_unknown_location_is_refused_with_those_there_are(
    database: Database, arctic: Callable[..., Outcome]
) -> None:
    """Exit code 2, and nothing is changed."""
    said = arctic("feed", "restart", "nights")
    assert said.code == 2
    assert "has no location nights; it has: flights" in said.err
    with database.read() as tx:
        assert tx.execute(sa.select(locations.c.storage_id)).scalar() == "old"
