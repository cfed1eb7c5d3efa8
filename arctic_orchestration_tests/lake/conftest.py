"""A lake of its own for each test, and Spark in two kinds."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from arctic_orchestration.lake import open_catalog, spark_properties
from arctic_orchestration.lake.connect import connect_session
from arctic_orchestration.lake.spark_versions import HAS_CONNECT, READS_OLDER_SCHEMAS
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.spark_daemons import connect_server

#: PySpark's functions make columns of Connect while it is set.
_MODE = "SPARK_CONNECT_MODE_ENABLED"


def settings_for(lake: Path, **environment: str) -> Settings:
    """Settings with the embedded catalog in a directory, and Spark on two threads."""
    return Settings.from_environment(
        {"ARCTIC_LAKE": str(lake), "ARCTIC_SPARK_MASTER": "local[2]", **environment}
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_for(tmp_path / "lake")


@pytest.fixture
def catalog(settings: Settings) -> Catalog:
    return open_catalog(settings)


@pytest.fixture(scope="module", params=["classic", "connect"])
def spark(request: pytest.FixtureRequest) -> SparkSession:
    """A session in this process, and one on a Connect server."""
    session: SparkSession = request.getfixturevalue(f"{request.param}_spark")
    return session


@pytest.fixture(scope="session")
def connect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server that lives as long as this process."""
    if not HAS_CONNECT:
        pytest.skip("Spark Connect is supported from PySpark 4.3 on")
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.fixture(scope="session")
def connect_spark(connect_url: str) -> Iterator[SparkSession]:
    """A session on that server."""
    settings = Settings.from_environment({"ARCTIC_SPARK_REMOTE": connect_url})
    session = connect_session(connect_url, spark_properties(settings))
    yield session
    session.stop()
    os.environ.pop(_MODE, None)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """What the package refuses with an older PySpark, naming the newer one, is no failure."""
    try:
        return (yield)
    except Exception as error:
        if READS_OLDER_SCHEMAS or "expected PySpark 4" not in str(error):
            raise
        pytest.skip(f"refused, as documented: {error}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Function) -> Iterator[None]:
    """One process has both kinds of Spark, which PySpark takes for one kind after the other."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    with pytest.MonkeyPatch.context() as patch:
        if parameters.get("spark") == "connect":
            patch.setenv(_MODE, "1")
        else:
            patch.delenv(_MODE, raising=False)
        return (yield)
