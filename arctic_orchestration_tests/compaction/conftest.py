"""A state database on each backend, and a lake, for the tests of compaction."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import lake_in
from arctic_orchestration_tests.compaction.stored import opened


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A fresh state database, once on each backend."""
    with opened(database_url) as made:
        yield made


@pytest.fixture
def state(database: Database) -> Database:
    """The same, beside the lake's catalog, which has a database too."""
    return database


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A catalog without tables."""
    return lake_in(tmp_path / "lake")
