from collections.abc import Callable, Iterator

import dagster as dg
import pytest

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.conftest import BACKENDS
from arctic_orchestration_tests.schedules.adoption.project import Project

#: for a test whose subject is what the storages store
on_both = pytest.mark.parametrize("backend", BACKENDS, indirect=True)


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def project(
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Project]:
    """The project of ``lake.py``, on SQLite and, if a test asks for both, on Postgres."""
    instance = dagster_instance(backend)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    database = Database(database_url)
    made = Project(
        instance=instance,
        database=database,
        module="arctic_orchestration_tests.schedules.adoption.lake",
        patch=monkeypatch,
    )
    yield made
    made.close()
    database.close()
