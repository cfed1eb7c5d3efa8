from collections.abc import Callable, Iterator

import dagster as dg
import pytest

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
    module = "arctic_orchestration_tests.schedules.adoption.lake"
    with Project.opened(dagster_instance(backend), database_url, module, monkeypatch) as made:
        yield made
