"""What it costs to find the files of a table of 50,000 data files, and the deletes on them.

``python -m benchmarks.manifests`` makes the table in a directory of its own, in many commits as
a lake that is written every few seconds has them, and prints medians of five readings: seconds of
wall time, with CPU seconds of this process beside them. The data files are in the metadata only;
each has statistics of 15 columns. pyiceberg's own planner, which refuses equality deletes, plans
the same table before these are added.
"""

import argparse
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from rich.console import Console
from rich.table import Table as Printed

from arctic_orchestration.lake.manifests import live_files, numbers_of
from arctic_orchestration.lake.tables import ensure_table, open_catalog
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.delete_writer import (
    Scope,
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.imagined_files import commit_files, imagined

FILES, A_COMMIT, COLUMNS, PARTITIONS = 50_000, 200, 15, 365
POSITION_DELETES, EQUALITY_DELETES = 2_000, 20
READINGS = 5
_ROWS, _BYTES = 1_000, 1_000_000


@dataclass(frozen=True)
class Cost:
    """Medians: seconds of wall time, and of CPU time of this process."""

    wall: float
    cpu: float


def cost(what: Callable[[], Any], readings: int = READINGS) -> Cost:
    walls, cpus = [], []
    for _ in range(readings):
        wall, cpu = time.perf_counter(), time.process_time()
        what()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return Cost(statistics.median(walls), statistics.median(cpus))


def make_table(directory: Path, files: int = FILES, a_commit: int = A_COMMIT) -> Table:
    """A table of so many files, by origin and bucket, with so many of them in each commit."""
    columns = [
        NestedField(number, f"column_{number}", LongType() if number % 2 else StringType())
        for number in range(1, COLUMNS + 1)
    ]
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "origin"),
        PartitionField(1, 1001, BucketTransform(PARTITIONS), "bucket"),
    )
    catalog = open_catalog(settings_for(directory))
    table = ensure_table(catalog, "lake.large", Schema(*columns), partition_spec=spec)
    for first in range(0, files, a_commit):
        numbers = range(first, min(first + a_commit, files))
        commit_files(table, [_file(table, number) for number in numbers])
    return table


def add_deletes(table: Table, position: int, equality: int) -> None:
    """Deletes by position on so many files, in ten commits, and so many deletes by value."""
    paths = [file.path for file in live_files(table).files[:position]]
    for part in range(10):
        chosen = {path: [0] for path in paths[part::10]}
        if chosen:
            add_position_deletes(table, chosen, scope=Scope.FILE)
    for number in range(equality):
        values = pa.table({"column_1": [number]})
        add_equality_deletes(table, values, ["column_1"], partition=["JFK", number])


def _file(table: Table, number: int) -> DataFile:
    columns = range(1, COLUMNS + 1)
    return imagined(
        f"{table.location()}/data/origin=JFK/bucket={number % PARTITIONS}/{number:08d}.parquet",
        ["JFK", number % PARTITIONS],
        size=_BYTES + number,
        rows=_ROWS,
        column_sizes={column: number * column for column in columns},
        value_counts=dict.fromkeys(columns, _ROWS),
        null_value_counts=dict.fromkeys(columns, 0),
        nan_value_counts={},
        lower_bounds=dict.fromkeys(columns, b"aaaaaaaa"),
        upper_bounds=dict.fromkeys(columns, b"zzzzzzzz"),
        split_offsets=[4],
    )


def measure(directory: Path, files: int, position: int, equality: int) -> dict[str, Cost]:
    table = make_table(directory, files)
    costs = {
        "live_files, no deletes": cost(lambda: live_files(table)),
        "pyiceberg's plan_files, no deletes": cost(lambda: list(table.scan().plan_files())),
    }
    add_deletes(table, position, equality)
    costs["live_files, with deletes"] = cost(lambda: live_files(table))
    live = live_files(table)
    assert len(live.files) == files
    costs["counting what was found"] = cost(lambda: numbers_of(live, 128 * 1024 * 1024))
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--position-deletes", type=int, default=POSITION_DELETES)
    parser.add_argument("--equality-deletes", type=int, default=EQUALITY_DELETES)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        costs = measure(
            Path(directory), chosen.files, chosen.position_deletes, chosen.equality_deletes
        )
    printed = Printed(
        title=f"{chosen.files:,} data files, {chosen.position_deletes:,} position and "
        f"{chosen.equality_deletes:,} equality deletes; Python {platform.python_version()}"
    )
    for heading in ("what", "seconds", "CPU seconds"):
        printed.add_column(heading, justify="left" if heading == "what" else "right")
    for what, one in costs.items():
        printed.add_row(what, f"{one.wall:.2f}", f"{one.cpu:.2f}")
    console = Console(width=100)
    console.print(printed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    console.print(f"Peak memory of the process, with the making of the table: {peak:,} MB")


if __name__ == "__main__":
    main()
