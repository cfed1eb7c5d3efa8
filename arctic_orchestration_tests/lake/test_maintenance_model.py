"""Any sequence of writes, branches and clean-ups: what stays reads as it did, and no file is left.

``ARCTIC_PROOF=full`` runs 500 sequences, by default 15.
"""

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from arctic_orchestration.lake import ensure_table, open_catalog
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots, remove_orphans
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.delete_writer import add_position_deletes
from arctic_orchestration_tests.lake.row_filters import EqualTo

EXAMPLES = 500 if os.environ.get("ARCTIC_PROOF") == "full" else 15
SCHEMA = Schema(NestedField(1, "id", LongType()))
LATER = datetime.now(UTC) + timedelta(days=1)

small = st.integers(0, 5)
steps = st.one_of(
    st.tuples(st.just("append"), small),
    st.tuples(st.just("overwrite"), small),
    st.tuples(st.just("delete"), small),
    st.tuples(st.just("position"), small),
    st.tuples(st.just("branch"), small),
    st.tuples(st.just("tag"), small),
    st.tuples(st.just("litter"), small),
    st.tuples(st.just("expire"), small),
    st.tuples(st.just("orphans"), small),
)


def contents(table: Table, snapshot_id: int) -> list[int]:
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA.as_arrow())


def do(table: Table, step: str, number: int) -> None:
    head = table.refresh().current_snapshot()
    match step:
        case "append":
            table.append(rows(number, number + 1))
        case "overwrite":
            table.overwrite(rows(number + 100))
        case "delete":
            table.delete(EqualTo("id", number))
        case "position":
            for task in list(table.scan().plan_files())[:1]:
                add_position_deletes(table, {task.file.file_path: [0]})
        case "branch" if head is not None:
            name = f"branch-{number}"
            if name in table.refs():
                table.append(rows(number + 200), branch=name)
            else:
                table.manage_snapshots().create_branch(head.snapshot_id, name).commit()
        case "tag" if head is not None:
            table.manage_snapshots().create_tag(head.snapshot_id, f"tag-{number}").commit()
        case "litter":
            directory = Path(table.location()) / "data"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"litter-{number}.parquet").write_bytes(b"x")
        case "expire":
            moments = [snapshot.timestamp_ms for snapshot in table.metadata.snapshots]
            before = sorted(moments)[-number:] if moments else []
            limit = datetime.fromtimestamp(before[0] / 1000, UTC) if before else LATER
            expire_snapshots(table, older_than=limit, keep_last=1 + number % 3)
        case "orphans":
            remove_orphans(table, older_than=LATER, any_age=True)


def needed(table: Table) -> set[str]:
    """What the table names, read by pyiceberg's own reader of manifests."""
    found = {table.metadata_location}
    found |= {entry.metadata_file for entry in table.metadata.metadata_log}
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {
                entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)
            }
    return found


@pytest.fixture(scope="module")
def lake() -> Iterator[Catalog]:
    with tempfile.TemporaryDirectory() as folder:
        yield open_catalog(settings_for(Path(folder)))


@pytest.mark.proof
@given(st.lists(steps, min_size=3, max_size=14))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_stays_reads_as_before_and_nothing_else_is_left(
    lake: Catalog, sequence: list[tuple[str, Any]]
) -> None:
    table = ensure_table(lake, "lake.modelled", SCHEMA)
    remembered: dict[int, list[int]] = {}
    try:
        for step, number in sequence:
            refs = dict(table.refs())
            do(table, step, number)
            table.refresh()
            if step in ("expire", "orphans"):
                assert table.refs() == refs
            for snapshot in table.metadata.snapshots:
                read = contents(table, snapshot.snapshot_id)
                assert remembered.setdefault(snapshot.snapshot_id, read) == read
        do(table, "orphans", 0)
        on_disk = {str(path) for path in Path(table.location()).rglob("*") if path.is_file()}
        assert on_disk == needed(table.refresh())
        expire_snapshots(table, older_than=LATER)
        heads = {ref.snapshot_id for ref in table.refresh().refs().values()}
        assert {snapshot.snapshot_id for snapshot in table.metadata.snapshots} == heads
        assert all(contents(table, head) == remembered[head] for head in heads)
        on_disk = {str(path) for path in Path(table.location()).rglob("*") if path.is_file()}
        # The metadata file of the expiry alone is new; nothing was left for the clean-up.
        assert on_disk == needed(table)
    finally:
        lake.purge_table("lake.modelled")
        for path in sorted(Path(table.location()).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
