"""Compaction in the demo: whether it is at rest, and its effect."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dagster as dg
import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import records
from arctic_orchestration.compaction.dagster.worker_job import JOB
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import LIVE
from arctic_orchestration.lake.manifests import live_entries, live_files

_MEASUREMENTS = 3
_ENDED = (
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of compaction."""

    commits: int
    #: tasks that wait, are claimed, or wait for the commit
    tasks: int
    #: live runs of the worker
    runs: int
    #: why it is not at rest; empty: it is
    restless: str = ""
    #: failed runs of the worker
    failed_runs: int = 0


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The cost of reading all rows of some files."""

    files: int
    rows: int
    #: the median of three
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """A table as it was written and as it is now; both have the same rows."""

    #: commits of compaction
    commits: int
    #: the files that writers have added: the table's files without compaction
    before: Scan
    after: Scan


def progress(
    tx: sa.Connection, catalog: Catalog, instance: dg.DagsterInstance, names: Sequence[str]
) -> Progress:
    """Returns the progress of compaction of these tables; reads the metadata of each."""
    known = {table.name: table for table in tables.all_tables(tx)}
    live = [task for name in names for task in task_store.tasks(tx, table=name, states=LIVE)]
    failed = instance.get_runs_count(
        dg.RunsFilter(job_name=JOB, statuses=[dg.DagsterRunStatus.FAILURE])
    )
    statuses = [status for status in dg.DagsterRunStatus if status not in _ENDED]
    runs = instance.get_runs_count(dg.RunsFilter(job_name=JOB, statuses=statuses))
    restless = []
    for name in names:
        snapshot = catalog.load_table(name).current_snapshot()
        row = known.get(name)
        if row is None or row.due_since is not None:
            restless.append(f"{name} was not planned yet")
        elif snapshot is not None and row.looked_snapshot_id != snapshot.snapshot_id:
            restless.append(f"{name} has a snapshot that was not planned yet")
    if live:
        restless.append(f"{len(live)} tasks are not finished: {live[0].reason}")
    if runs:
        restless.append(f"{runs} runs of {JOB} have not ended")
    return Progress(
        commits=sum(len(records.records(tx, table=name)) for name in names),
        tasks=len(live),
        runs=runs,
        restless="; ".join(restless),
        failed_runs=failed,
    )


def compacted(table: Table) -> Compacted | None:
    """Measures a table of data files without deletes; none: its files as written are unknown.

    They are unknown if another process has rewritten rows that were compacted before.
    """
    snapshots = sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0)
    live: dict[str, FileScanTask] = {}
    written: dict[str, FileScanTask] = {}
    commits = 0
    for snapshot in snapshots:
        now = _tasks(table, snapshot.snapshot_id)
        added = {path: task for path, task in now.items() if path not in live}
        removed = live.keys() - now.keys()
        live = now
        if snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE:
            commits += 1
            continue
        written = {path: task for path, task in written.items() if path not in removed} | added
    if _rows(written) != _rows(live):
        return None
    before, after = list(written.values()), list(live.values())
    seconds = _medians(lambda: _read(table, before), lambda: _read(table, after))
    return Compacted(
        commits=commits,
        before=Scan(files=len(before), rows=_rows(written), seconds=seconds[0]),
        after=Scan(files=len(after), rows=_rows(live), seconds=seconds[1]),
    )


def _tasks(table: Table, snapshot_id: int) -> dict[str, FileScanTask]:
    paths = [file.path for file in live_files(table, snapshot_id).files]
    entries = live_entries(table, snapshot_id, paths)
    return {path: FileScanTask(entry.data_file) for path, entry in entries.items()}


def _rows(tasks: dict[str, FileScanTask]) -> int:
    return sum(task.file.record_count for task in tasks.values())


def _read(table: Table, tasks: Sequence[FileScanTask]) -> None:
    """Reads all columns of all rows, like a scan of pyiceberg."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    scan.to_table(tasks)


def _medians(*work: Callable[[], None]) -> list[float]:
    """Returns the median seconds of each, measured in turns, after one turn that does not count."""
    measured: list[list[float]] = [[] for _ in work]
    for turn in range(_MEASUREMENTS + 1):
        for one, seconds in zip(work, measured, strict=True):
            begin = time.perf_counter()
            one()
            if turn:
                seconds.append(time.perf_counter() - begin)
    return [statistics.median(seconds) for seconds in measured]
