"""The REST API over a state database, without a server."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance
from starlette.testclient import TestClient

from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.app import create_app
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.schedules.simulated import World

MakeApi = Callable[..., TestClient]


@pytest.fixture
def database(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Database]:
    """A state database with the current schema, once on each backend; no Dagster beside it."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.setenv("ARCTIC_LAKE", str(tmp_path / "lake"))
    made = Database.open(database_url)
    yield made
    made.close()


@pytest.fixture
def instance(
    backend: str,
    database: Database,
    dagster_instance: Callable[[str], DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
) -> DagsterInstance:
    """A real instance of Dagster, which the service finds in DAGSTER_HOME."""
    made = dagster_instance(backend)
    monkeypatch.setenv("DAGSTER_HOME", made.root_directory)
    return made


@pytest.fixture
def world(database: Database) -> Callable[..., World]:
    """Makes a location with these schedules, named ``here``; its first tick is done."""

    def make(schedules: Sequence[Schedule] = (), location: str = "here") -> World:
        made = World(database, schedules, location=location)
        made.tick(0)
        return made

    return make


@pytest.fixture
def api(database: Database) -> MakeApi:
    """Makes a client of the API: ``api(address=..., headers=..., **rules)``."""

    def make(
        *, address: str = "127.0.0.1", host: str = "localhost:3001", token: str = "", **rules: Any
    ) -> TestClient:
        app = create_app(Settings.from_environment(), database, AccessRules(**rules))
        client = TestClient(
            app,
            base_url=f"http://{host}/api/v1",
            client=(address, 50_000),
            raise_server_exceptions=False,
        )
        if token:
            client.headers["Authorization"] = f"Bearer {token}"
        return client

    return make
