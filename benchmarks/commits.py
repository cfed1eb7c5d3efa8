"""What it costs to commit a compaction to a table with a long history.

``python -m benchmarks.commits`` makes a table of 5,000 data files and 10,000 snapshots and replaces
all files by one. The data files and all snapshots but the first ones are in the metadata only; the
output is a real file, as its footer is read. Beside it: the same change by pyiceberg's own
``overwrite``, which cannot keep sequence numbers; and what loading, planning, expiring and the
search for orphans cost in such a table. CPU seconds are of this process.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import SnapshotLogEntry
from pyiceberg.types import LongType, NestedField, StringType
from rich.console import Console
from rich.table import Table as Printed

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.table_plan import PlanState
from arctic_orchestration.compaction.planning.table_planner import plan_loaded
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.file_metrics import describe
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration.lake.tables import ensure_table, open_catalog
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots
from arctic_orchestration.lake.upkeep.orphans import remove_orphans
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.imagined_files import commit_files, imagined

FILES, SNAPSHOTS = 5_000, 10_000
GOAL = 5.0
_ROWS, _COMMITS = 10, 5
_NAME = "lake.old"
_SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "origin", StringType()))


@dataclass(frozen=True)
class Cost:
    """Seconds of wall time, and CPU seconds of this process."""

    wall: float
    cpu: float


def cost(what: Callable[[], Any]) -> Cost:
    """What one call costs."""
    wall, cpu = time.perf_counter(), time.process_time()
    what()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def old_table(catalog: Catalog, *, files: int, snapshots: int, name: str = _NAME) -> Table:
    """A table of imagined files, appended in a few commits at the end of a long history.

    The snapshots before these are of an empty table, and share its list of manifests.
    """
    table = ensure_table(catalog, name, _SCHEMA)
    table.append(schema_to_pyarrow(_SCHEMA, include_field_ids=False).empty_table())
    for part in range(_COMMITS):
        commit_files(table, [_file(table, number) for number in range(part, files, _COMMITS)])
    _lengthen(catalog, catalog.load_table(name), snapshots, name)
    return catalog.load_table(name)


def _lengthen(catalog: Catalog, table: Table, snapshots: int, name: str) -> None:
    """Puts so many snapshots before a table's first one that it has as many as wanted."""
    first, *others = table.metadata.snapshots
    older = snapshots - 1 - len(others)
    history = [
        first.model_copy(
            update={
                "snapshot_id": number,
                "parent_snapshot_id": number - 1 if number > 1 else None,
                "timestamp_ms": first.timestamp_ms - (older - number + 1) * 60_000,
            }
        )
        for number in range(1, older + 1)
    ]
    history += [first.model_copy(update={"parent_snapshot_id": older}), *others]
    log = [
        SnapshotLogEntry(snapshot_id=one.snapshot_id, timestamp_ms=one.timestamp_ms)
        for one in history
    ]
    metadata = table.metadata.model_copy(update={"snapshots": history, "snapshot_log": log})
    path = table.location_provider().new_table_metadata_file_location(snapshots)
    ToOutputFile.table_metadata(metadata, table.io.new_output(path))
    catalog.drop_table(name)
    catalog.register_table(name, path)


def _file(table: Table, number: int) -> DataFile:
    return imagined(
        f"{table.location()}/data/{number:08d}.parquet",
        size=1_000 + number,
        rows=_ROWS,
        column_sizes={1: 80, 2: 40},
        value_counts={1: _ROWS, 2: _ROWS},
        null_value_counts={1: 0, 2: 0},
        lower_bounds={1: b"\0" * 8, 2: b"EWR"},
        upper_bounds={1: b"\x7f" * 8, 2: b"JFK"},
    )


def replacement_of(table: Table, name: str = "task-1") -> Replacement:
    """All files of a table, and one real file with as many rows in their place."""
    live = live_files(table)
    assert live.snapshot_id is not None
    rows = sum(file.rows for file in live.files)
    path = f"{table.location()}/data/compaction-{name}/0.parquet"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    columns = {"id": pa.array(range(rows), pa.int64()), "origin": pa.array(["JFK"] * rows)}
    pq.write_table(pa.table(columns, schema=schema_to_pyarrow(_SCHEMA)), path)
    group = FileGroup(
        snapshot_id=live.snapshot_id,
        sequence_number=live.sequence_number,
        spec_id=0,
        files=tuple(live.files),
    )
    return Replacement(id=name, group=group, outputs=(path,), rows_deleted=0, sort_order_id=None)


def committed(files: int, snapshots: int) -> tuple[Cost, Cost]:
    """What it costs to replace all files by one: by us, and by pyiceberg's own ``overwrite``."""
    costs = []
    for stock in (False, True):
        with tempfile.TemporaryDirectory(prefix="bench-commits-") as folder:
            catalog = open_catalog(settings_for(Path(folder)))
            table = old_table(catalog, files=files, snapshots=snapshots)
            merged = replacement_of(table)
            if stock:
                gone = [one.file for one in table.scan().plan_files()]
                added = [describe(table, path, spec_id=0, partition=()) for path in merged.outputs]
                costs.append(cost(lambda t=table, a=added, g=gone: commit_files(t, a, g)))  # type: ignore[misc]
            else:
                costs.append(cost(lambda t=table, m=merged: replace_files(t, [m])))  # type: ignore[misc]
            summary = catalog.load_table(_NAME).metadata.snapshots[-1].summary
            assert summary is not None and summary["total-data-files"] == "1", summary
    return costs[0], costs[1]


def kept_up(files: int, snapshots: int) -> dict[str, Cost]:
    """What the rest of a round costs in such a table."""
    with tempfile.TemporaryDirectory(prefix="bench-commits-") as folder:
        catalog = open_catalog(settings_for(Path(folder)))
        table = old_table(catalog, files=files, snapshots=snapshots)
        now = utc_now()
        return {
            "load the table": cost(lambda: catalog.load_table(_NAME)),
            "plan": cost(lambda: plan_loaded(table, Policy(), PlanState(), now)),
            "find orphans": cost(
                lambda: remove_orphans(table, older_than=now - timedelta(days=7), dry_run=True)
            ),
            "expire all snapshots but 100": cost(
                lambda: expire_snapshots(table, older_than=now, keep_last=100)
            ),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--snapshots", type=int, default=SNAPSHOTS)
    given = parser.parse_args()
    console = Console(width=100)
    printed = Printed(
        title=f"{given.files:,} data files and {given.snapshots:,} snapshots; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    for heading in ("what", "seconds", "CPU seconds"):
        printed.add_column(heading, justify="left" if heading == "what" else "right")
    ours, stock = committed(given.files, given.snapshots)
    rows = {"commit, ours": ours, "commit, pyiceberg's overwrite": stock}
    for what, one in (rows | kept_up(given.files, given.snapshots)).items():
        printed.add_row(what, f"{one.wall:.2f}", f"{one.cpu:.2f}")
    console.print(printed)


if __name__ == "__main__":
    main()
