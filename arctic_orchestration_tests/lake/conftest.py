"""One warm Spark session for the whole folder, and a lake of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from arctic_orchestration.lake import open_catalog, spark_session
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.sessions import FAST


def settings_for(lake: Path, **environment: str) -> Settings:
    """Settings with the embedded catalog in a directory, and Spark on two threads."""
    return Settings.from_environment(
        {"ARCTIC_LAKE": str(lake), "ARCTIC_SPARK_MASTER": "local[2]", **environment}
    )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(settings_for(tmp_path_factory.mktemp("spark")), FAST) as session:
        yield session


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_for(tmp_path / "lake")


@pytest.fixture
def catalog(settings: Settings) -> Catalog:
    return open_catalog(settings)
