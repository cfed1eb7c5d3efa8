"""Proof: however much a table has to be merged, a worker's memory is bounded.

``ARCTIC_PROOF=full`` merges 200 files of 16 MB in a driver of 2 GB, by default twelve files in one
of 512 MB: two tasks at once, of at most 512 MB each. The bounds are the same in both sizes but for
the heap, and none of them grows with the table:

- The JVM has its heap and, for everything else, what Spark itself asks of a cluster beside a small
  driver's heap: ``spark.driver.memoryOverhead``, 384 MiB.
- Each Python process that the JVM starts to decode by Arrow has 512 MiB, one for each task at once.
  ``lake/merging/arrow_rewrite.py`` says what is in them.
- The worker itself holds no rows: 256 MiB for Python and what it has imported.

So all that decodes by Arrow beside the JVM has 1.25 GiB at once.
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
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import LIVE, TaskState
from arctic_orchestration.compaction.run_once import offer_now
from arctic_orchestration.compaction.work.worker import What
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.compaction.crew import WORKER, Crew, How
from arctic_orchestration_tests.proofs.compaction.sizes import FULL, LONG

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

#: So many files, and MiB of heap.
FILES, HEAP = (200, 2048) if FULL else (12, 512)
PARALLELISM = 2
#: The most memory that each process may have had, in MiB.
JVM, WORKER_ITSELF, PYTHON = HEAP + 384, 256, 512
#: and all of them but the JVM at once
BESIDE = WORKER_ITSELF + PARALLELISM * PYTHON
#: random numbers of eight bytes each do not compress
ROWS = 2_000_000
FILE_SIZE = ROWS * 8
#: of merged files, by default
TARGET = 128 << 20
_SECONDS = 1800 if FULL else PATIENCE_SECONDS

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


class Peaks:
    """The most memory that a worker, its JVM and the JVM's Python processes have had, in MiB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most: dict[int, int] = {}
        self._names: dict[int, str] = {}
        #: of all but the JVM at once
        self.beside = 0

    def look(self) -> None:
        """Takes in what the system has counted since they began; some end between two looks."""
        beside = 0
        first = psutil.Process(self._pid)
        for process in (first, *first.children(recursive=True)):
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
                name = self._names[process.pid] = process.name()
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                continue
            counted = dict(re.findall(r"(VmHWM|VmRSS):\s+(\d+) kB", status))
            if counted:
                self._most[process.pid] = int(counted["VmHWM"]) // 1024
                beside += int(counted["VmRSS"]) // 1024 if name != "java" else 0
        self.beside = max(self.beside, beside)

    @property
    def worker(self) -> int:
        return self._most[self._pid]

    @property
    def jvm(self) -> int:
        (most,) = self._named("java")
        return most

    @property
    def pythons(self) -> list[int]:
        """Of those that decode by Arrow, and of the one that starts them."""
        return self._named("python")

    def _named(self, name: str) -> list[int]:
        others = self._most.keys() - {self._pid}
        return sorted(self._most[pid] for pid in others if self._names[pid].startswith(name))


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize(
    ("way", "engine"),
    [(Way.DECODE, Engine.ARROW), (Way.DECODE, Engine.SPARK), (Way.APPEND, None)],
)
def test_many_large_files_are_merged_in_little_memory(
    state: Database, catalog: Catalog, crew: Crew, way: Way, engine: Engine | None
) -> None:
    """To files of 128 MB; no task is more than four of them, and all rows are there.

    No process has more than its bound.
    """
    table = large_table(catalog)
    assert len(sizes(table)) == FILES
    assert all(size > FILE_SIZE for size in sizes(table))
    before, total = contents(table), sum(sizes(table))
    conf = {"spark.driver.memory": f"{HEAP}m"}
    how = How(life=LONG, conf=conf, parallelism=PARALLELISM, way=way, engine=engine)
    worker = crew.start(WORKER, how, bare=True)
    worker.reports("ready")
    began = time.monotonic()
    _, offered = offer_now(state, catalog, "lake.large", utc_now(), force=True)
    assert offered is not None
    with state.read() as tx:
        tasks = task_store.tasks(tx, table="lake.large")
    assert sum(task.files for task in tasks) == FILES
    assert sum(task.bytes for task in tasks) == total
    assert max(task.bytes for task in tasks) <= Policy.of({}, "lake.large").max_task_size
    assert Policy.of({}, "lake.large").max_task_size == 4 * TARGET
    peaks = Peaks(worker.pid)

    def is_merged() -> bool:
        peaks.look()
        assert worker.is_alive, worker.log()
        assert worker.events_of(What.FAILED) == []
        with state.read() as tx:
            left = task_store.tasks(tx, states=LIVE)
        return all(task.state is TaskState.MERGED for task in left)

    until(is_merged, "all tasks are merged", _SECONDS)
    seconds = time.monotonic() - began
    numbers = (
        f"peaks in MiB: JVM {peaks.jvm} of {JVM}, worker {peaks.worker} of {WORKER_ITSELF}, its "
        f"Python processes {peaks.pythons} of {PYTHON}, all but the JVM {peaks.beside} of {BESIDE}"
    )
    assert peaks.jvm <= JVM, numbers
    assert peaks.worker <= WORKER_ITSELF, numbers
    assert all(peak <= PYTHON for peak in peaks.pythons), numbers
    assert peaks.beside <= BESIDE, numbers
    assert bool(peaks.pythons) == (engine is Engine.ARROW), numbers
    counts = Committer(state, catalog).tick()
    assert counts.committed == len(offered.taken)
    assert contents(table) == before
    files = sizes(table)
    print(
        f"{way} {engine or ''}: {FILES} files of {total / FILES / 1e6:.1f} MB → "
        f"{len(files)} of {sum(files) / len(files) / 1e6:.1f} MB in {counts.committed} tasks, "
        f"{total / 1e6 / seconds:.0f} MB/s, {seconds:.0f} s, {numbers}"
    )
