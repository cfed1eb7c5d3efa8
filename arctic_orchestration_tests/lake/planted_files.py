"""Unknown files below a table: planted, made old, and listed when they are removed."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.upkeep.maintenance import Orphans

SCHEMA = Schema(NestedField(1, "id", LongType()))
NOW = datetime.now(UTC)
WEEK_AGO = NOW - timedelta(days=7)
#: Before everything that a test makes old, and after everything else.
LIMIT = NOW - timedelta(days=3)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return ensure_table(catalog, "lake.flights", SCHEMA)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA.as_arrow())


def ids(table: Table, snapshot_id: int | None = None) -> list[int]:
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())


def plant(table: Table, name: str, *, size: int = 5, at: datetime = WEEK_AGO) -> str:
    """A file that nobody knows, below the table."""
    path = Path(table.location()) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at.timestamp(), at.timestamp()))
    return str(path)


def age_everything(table: Table) -> set[str]:
    """Makes all files of the table a week old; returns them."""
    found = {str(path) for path in Path(table.location()).rglob("*") if path.is_file()}
    for path in found:
        os.utime(path, (WEEK_AGO.timestamp(), WEEK_AGO.timestamp()))
    return found


def removed(orphans: Orphans) -> set[str]:
    return {file.path for file in orphans.files}
