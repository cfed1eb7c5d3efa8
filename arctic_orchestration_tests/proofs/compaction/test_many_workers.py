"""Proof: several worker processes share the tasks of one table, and each is done once.

``ARCTIC_PROOF=full`` has four workers of two tasks at once and 96 tasks, by default two and 12, in
one JVM. That one stands until all workers have as many tasks as they take: else the first of them
might have done all when the second one looks.
"""

import time
from collections import Counter
from datetime import datetime

import psutil
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.work import attempt_lookup
from arctic_orchestration.compaction.work.attempt import Attempt, AttemptState
from arctic_orchestration.compaction.work.worker import What
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import offered, rows_of, table_of
from arctic_orchestration_tests.lake.sessions import RunningJvm
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.proofs.compaction.crew import WORKER, Crew, How
from arctic_orchestration_tests.proofs.compaction.sizes import FULL, LONG

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

WORKERS, PARALLELISM, TASKS = (4, 2, 96) if FULL else (2, 2, 12)
FILES_OF_A_TASK = 2


def test_each_task_is_done_once_and_several_at_a_time(
    state: Database, catalog: Catalog, crew: Crew, classic_spark: SparkSession
) -> None:
    """All workers take part, at the same time, and no two of them in one task."""
    jvm = RunningJvm.of(classic_spark)
    table = table_of(catalog, files=TASKS * FILES_OF_A_TASK)
    before = rows_of(table)
    how = How(life=LONG, parallelism=PARALLELISM, jvm=None if FULL else jvm)
    workers = [crew.start(WORKER, how) for _ in range(WORKERS)]
    for worker in workers:
        worker.reports("ready")
    began = time.monotonic()

    def tasks_of(what: What) -> list[str]:
        return [one["task"] for worker in workers for one in worker.events_of(what)]

    psutil.Process(jvm.pid).suspend()
    try:
        assert len(offered(state, table, at_once=FILES_OF_A_TASK).taken) == TASKS
        at_once = WORKERS * PARALLELISM
        until(lambda: len(tasks_of(What.CLAIMED)) >= at_once, "all workers have tasks")
    finally:
        psutil.Process(jvm.pid).resume()
    # They say so when the database has it.
    until(lambda: len(tasks_of(What.MERGED)) >= TASKS, "all tasks are merged")
    seconds = time.monotonic() - began
    done = Counter(tasks_of(What.MERGED))
    with state.read() as tx:
        tasks = task_store.tasks(tx)
        made = [attempt for task in tasks for attempt in attempt_lookup.attempts_of(tx, task.id)]
    assert done == {task.id: 1 for task in tasks}
    assert [attempt.state for attempt in made] == [AttemptState.MERGED] * TASKS
    shares = Counter(attempt.worker for attempt in made)
    assert len(shares) == WORKERS
    assert most_at_once(made) > PARALLELISM, "no two workers were at work at the same time"
    counts = Committer(state, catalog).tick()
    assert (counts.snapshots, counts.committed) == (1, TASKS)
    assert rows_of(table) == before
    assert len(list(table.scan().plan_files())) == TASKS
    print(f"{TASKS} tasks, {dict(shares)}, at most {most_at_once(made)} at a time, {seconds:.1f} s")


def most_at_once(made: list[Attempt]) -> int:
    """The most attempts that were under way at one moment."""
    changes: list[tuple[datetime, int]] = []
    for attempt in made:
        assert attempt.ended_at is not None
        changes += [(attempt.claimed_at, 1), (attempt.ended_at, -1)]
    most = now = 0
    # Those that end at a moment have ended before others begin.
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
