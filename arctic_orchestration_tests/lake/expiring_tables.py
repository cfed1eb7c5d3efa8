"""Tables with snapshots that can expire."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from arctic_orchestration.lake import ensure_table

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "origin", StringType()))
BY_ORIGIN = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "origin"))
#: After everything that a test writes.
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return ensure_table(catalog, "lake.flights", SCHEMA, partition_spec=BY_ORIGIN)


def rows(*ids: int, origin: str = "JFK") -> pa.Table:
    return pa.table({"id": list(ids), "origin": [origin] * len(ids)}, schema=SCHEMA.as_arrow())


def ids(table: Table, snapshot_id: int | None = None) -> list[int]:
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())


def on_disk(table: Table) -> set[str]:
    """All files of the table but its metadata files, which expiry leaves to others."""
    found = {str(path) for path in Path(table.location()).rglob("*") if path.is_file()}
    return {path for path in found if not path.endswith(".metadata.json")}


def snapshot_ids(table: Table) -> list[int]:
    return [snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots]


def overwritten(table: Table) -> tuple[set[str], set[str]]:
    """Rows 1 are replaced by rows 2; the files before, and those that the replacing left alone."""
    table.append(rows(1))
    table.append(rows(5, origin="EWR"))
    before = on_disk(table)
    table.overwrite(rows(2), overwrite_filter="origin == 'JFK'")
    return before, on_disk(table) - before
