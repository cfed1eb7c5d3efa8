"""Proof: however much a table has to be merged, a worker's memory is bounded.

``ARCTIC_PROOF=full`` merges 200 files of 16 MB in a driver of 2 GB, by default twelve files in one
of 512 MB: two tasks at once, of at most 512 MB each.
"""

import re
import time
from pathlib import Path

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import task_rows
from arctic_orchestration.compaction.committer import Committer
from arctic_orchestration.compaction.now import offer_now
from arctic_orchestration.compaction.task import LIVE, TaskState
from arctic_orchestration.compaction.worker import What
from arctic_orchestration.database.engine import Database
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.merging.merge import Engine, Way
from arctic_orchestration_tests.proofs.compaction.crew import WORKER, Crew, How
from arctic_orchestration_tests.proofs.compaction.sizes import FULL
from arctic_orchestration_tests.proofs.dagster_processes import until

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

FILES, MEMORY = (200, "2g") if FULL else (12, "512m")
#: random numbers of eight bytes each do not compress
ROWS = 2_000_000
FILE_SIZE = ROWS * 8
_SECONDS = 1800 if FULL else 300

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "value", LongType()))


def large_table(catalog: Catalog) -> Table:
    """A table of files of 16 MB."""
    table = ensure_table(catalog, "lake.large", SCHEMA)
    chance = np.random.default_rng(7)
    for number in range(FILES):
        values = chance.integers(-(2**63), 2**63 - 1, ROWS)
        ids = np.full(ROWS, number)
        table.append(pa.table({"id": ids, "value": values}))
    return table


def contents(table: Table) -> tuple[int, int, int]:
    """How many rows an independent reader finds, and two numbers that tell all of them."""
    files = [task.file.file_path for task in table.refresh().scan().plan_files()]
    query = "select count(*), sum(id), bit_xor(hash(id, value)) from read_parquet(?)"
    row = duckdb.execute(query, [files]).fetchone()
    assert row is not None
    return row


def sizes(table: Table) -> list[int]:
    return [task.file.file_size_in_bytes for task in table.refresh().scan().plan_files()]


def peak_megabytes(pid: int) -> int:
    """The most memory that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(
    ("way", "engine"),
    [(Way.DECODE, Engine.ARROW), (Way.DECODE, Engine.SPARK), (Way.APPEND, None)],
)
def test_many_large_files_are_merged_in_little_memory(
    state: Database, catalog: Catalog, crew: Crew, way: Way, engine: Engine | None
) -> None:
    """To files of 128 MB; no task is more than four of them, and all rows are there."""
    table = large_table(catalog)
    assert len(sizes(table)) == FILES
    assert all(size > FILE_SIZE for size in sizes(table))
    before, total = contents(table), sum(sizes(table))
    conf = {"spark.driver.memory": MEMORY}
    worker = crew.start(WORKER, How(conf=conf, parallelism=2, way=way, engine=engine))
    worker.says("ready")
    began = time.monotonic()
    _, offered = offer_now(state, catalog, "lake.large", utc_now(), force=True)
    assert offered is not None

    def is_merged() -> bool:
        assert worker.is_alive, worker.log()
        assert worker.said(What.FAILED) == []
        with state.read() as tx:
            left = task_rows.tasks(tx, states=LIVE)
        return all(task.state is TaskState.MERGED for task in left)

    until(is_merged, _SECONDS, "all tasks are merged")
    seconds = time.monotonic() - began
    peaks = {
        process.name(): peak_megabytes(process.pid)
        for process in (psutil.Process(worker.pid), *psutil.Process(worker.pid).children())
    }
    counts = Committer(state, catalog).tick()
    assert counts.committed == len(offered.taken)
    assert contents(table) == before
    files = sizes(table)
    print(
        f"{way} {engine or ''}: {FILES} files of {total / FILES / 1e6:.1f} MB → "
        f"{len(files)} of {sum(files) / len(files) / 1e6:.1f} MB in {counts.committed} tasks, "
        f"{total / 1e6 / seconds:.0f} MB/s, {seconds:.0f} s, peaks in MB {peaks}"
    )
