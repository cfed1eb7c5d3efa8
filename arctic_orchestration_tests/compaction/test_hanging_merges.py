"""A merge that exceeds its time limit loses its task; the worker has another thread for it."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import What, Worker
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.leases import RENEWALS
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.compaction.small_lake import Merging, offered, table_of, tasks_of
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until

AT_ONCE = timedelta(0)
LONG = timedelta(minutes=10)


def test_a_merge_that_hangs_keeps_neither_its_task_nor_the_worker(
    state: Database, catalog: Catalog
) -> None:
    """Its task is taken away, as at the execution timeout; another thread of the worker merges it.

    The worker ends though the first merge still hangs; when that goes on, what it wrote is removed.
    """
    goes_on, hangs = threading.Event(), threading.Lock()

    def first_hangs(group: FileGroup) -> None:
        if hangs.acquire(blocking=False):
            with state.begin() as tx:
                # The worker goes on to renew, and finds out by that.
                assert attempts.expire(tx, time=lambda tx: database_time(tx) + LONG) == 1
            assert goes_on.wait(2 * PATIENCE_SECONDS)

    offered(state, table_of(catalog, files=3))
    merging = Merging(first_hangs)
    worker = Worker(DatabaseSource(state, catalog, life=timedelta(seconds=5 * RENEWALS)), merging)
    done = worker.run(AT_ONCE)
    (task,) = tasks_of(state)
    with state.read() as tx:
        tried = [one.state for one in attempt_lookup.attempts_of(tx, task.id)]
    assert tried[0] is AttemptState.LOST
    assert not goes_on.is_set()
    assert task.state is TaskState.MERGED
    assert (tried, done.of(What.MERGED)) == ([AttemptState.LOST, AttemptState.MERGED], 1)
    hung, merged = (Path(directory) for directory in merging.directories)
    goes_on.set()
    until(lambda: not hung.exists(), "what the hanging merge wrote is removed")
    assert merged.exists()


def test_a_merge_that_ends_as_it_is_replaced_does_not_end_the_worker(
    state: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one thread of the worker ends while the other one is started in its place."""
    goes_on, hangs = threading.Event(), threading.Lock()

    def first_hangs(group: FileGroup) -> None:
        if hangs.acquire(blocking=False):
            with state.begin() as tx:
                assert attempts.expire(tx, time=lambda tx: database_time(tx) + LONG) == 1
            assert goes_on.wait(2 * PATIENCE_SECONDS)

    offered(state, table_of(catalog, files=3))
    source = DatabaseSource(state, catalog, life=timedelta(seconds=RENEWALS))
    worker = Worker(source, Merging(first_hangs))
    start = worker._start_thread

    def start_late() -> None:
        if worker._threads:
            goes_on.set()
            # Set as soon as the worker ends, which it must not.
            worker._draining.wait(1)
        start()

    monkeypatch.setattr(worker, "_start_thread", start_late)
    done = worker.run(AT_ONCE)
    (task,) = tasks_of(state)
    assert (task.state, done.of(What.MERGED), done.of(What.LOST)) == (TaskState.MERGED, 1, 1)
