"""A state database on each backend, a lake, and the processes that compact it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import lake_in
from arctic_orchestration_tests.lake.sessions import RunningJvm
from arctic_orchestration_tests.proofs.compaction.crew import Crew
from arctic_orchestration_tests.proofs.compaction.killed import Killed
from arctic_orchestration_tests.proofs.compaction.sizes import FULL
from arctic_orchestration_tests.proofs.compaction.written_tables import written_tables


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """The directory of the embedded catalog."""
    return tmp_path / "lake"


@pytest.fixture
def catalog(lake: Path) -> Catalog:
    """A catalog without tables."""
    return lake_in(lake)


@pytest.fixture
def writers_lake(lake: Path) -> Path:
    """Where the writers of tables find the catalog."""
    return lake


@pytest.fixture
def crew(state: Database, tmp_path: Path, lake: Path, database_url: str) -> Iterator[Crew]:
    """Nothing is started yet."""
    with Crew(tmp_path, lake, database_url) as made:
        yield made


@pytest.fixture
def killed(
    crew: Crew, state: Database, catalog: Catalog, writers_lake: Path, classic_spark: SparkSession
) -> Iterator[Killed]:
    """Nothing is started yet but the writers."""
    jvm = None if FULL else RunningJvm.of(classic_spark)
    with written_tables(catalog, writers_lake) as written:
        yield Killed(crew, state, written, jvm)
