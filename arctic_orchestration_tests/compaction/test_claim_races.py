"""Eight processes claim from one queue of 200 tasks, on both databases.

The control takes tasks as one would without knowing better: it looks which is first, and then
takes it, without a lock and without a condition. If it took each task once, the race would show
nothing.
"""

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.compaction.commit import commits
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.state.compaction_tables import compaction_tasks, is_planned
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import MERGE, NOON, opened, planned, seen
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

PROCESSES = 8
TASKS = 200


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A state database with the tasks of one plan, once on each backend."""
    with opened(database_url) as made:
        with made.begin() as tx:
            seen(tx, "lake.a")
            plan = [planned(f"a{n}", f"b{n}") for n in range(TASKS)]
            assert len(offer(tx, "lake.a", plan, NOON).taken) == TASKS
        yield made


def claim_all(url: str, number: int, barrier: Any, answers: Any) -> None:
    """Claims and merges until nothing is left; all have a task before any has its second."""
    database, taken = Database(url), list[tuple[str, int]]()
    while True:
        if len(taken) < 2:
            barrier.wait(PATIENCE_SECONDS)
        with database.begin() as tx:
            claim = attempts.claim(tx, ["default"], f"w{number}")
        if claim is None:
            break
        taken.append((claim.task.id, claim.token))
        with database.begin() as tx:
            attempts.merged(tx, claim.attempt_id, claim.token, **MERGE)
    answers.put(taken)
    database.close()


def look_then_take(url: str, number: int, barrier: Any, answers: Any) -> None:
    """The control: all look before any takes, once; then each as fast as it can."""
    database, taken = Database(url), []
    first = sa.select(compaction_tasks.c.id).where(is_planned).order_by(compaction_tasks.c.rank)
    waited = False
    while True:
        with database.read() as tx:
            id = tx.execute(first.limit(1)).scalar()
        if not waited:
            barrier.wait(PATIENCE_SECONDS)
            waited = True
        if id is None:
            break
        with database.begin() as tx:
            tx.execute(
                sa.update(compaction_tasks)
                .where(compaction_tasks.c.id == id)
                .values(state=TaskState.CLAIMED.value)
            )
        taken.append((id, number))
    answers.put(taken)
    database.close()


def raced(url: str, target: Any) -> list[list[tuple[str, int]]]:
    """What each process took."""
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=target, args=(url, number, barrier, answers))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    taken = [answers.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    return taken


def test_each_task_is_claimed_by_one_process(database: Database, database_url: str) -> None:
    """Once, with the first token, and merged by who has it; each process got some."""
    taken = raced(database_url, claim_all)
    ids = Counter(id for one in taken for id, _ in one)
    assert len(ids) == TASKS
    assert set(ids.values()) == {1}
    assert {token for one in taken for _, token in one} == {1}
    assert all(taken)
    with database.begin() as tx:
        assert len(commits.merged_tasks(tx, "lake.a")) == TASKS
        assert {task.attempts for task in task_store.tasks(tx)} == {1}


def test_the_race_is_lost_without_lock_and_condition(database: Database, database_url: str) -> None:
    """Some task is taken by more than one process."""
    taken = raced(database_url, look_then_take)
    ids = Counter(id for one in taken for id, _ in one)
    assert len(ids) == TASKS
    assert max(ids.values()) > 1
