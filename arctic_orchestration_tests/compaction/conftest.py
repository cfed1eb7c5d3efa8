"""A state database on each backend, and a lake, for the tests of compaction."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import lake_in
from arctic_orchestration_tests.compaction.stored import seen


@pytest.fixture
def two_tables(database: Database) -> None:
    """The state database has the tables ``lake.a`` and ``lake.b``."""
    with database.begin() as tx:
        seen(tx, "lake.a")
        seen(tx, "lake.b")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A catalog without tables."""
    return lake_in(tmp_path / "lake")
