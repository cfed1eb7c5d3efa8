"""Tables whose tasks are given back, as their store refuses them: the others come first."""

from collections.abc import Sequence

import pytest

from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queues import CompactionQueue, add_queue
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.compaction.work.attempts import Claim
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import NOON, planned, seen
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.standing_clock import Clock


class Worker:
    """Claims and gives back, at a moment that stands."""

    def __init__(self, database: Database) -> None:
        self.database, self.clock = database, Clock()

    def claims(self, *queues: str) -> Claim:
        with self.database.begin() as tx:
            return present(attempts.claim(tx, queues, "w", time=self.clock))

    def gives_back(self, claim: Claim, *reason: str) -> None:
        named = dict(zip(["reason"], reason, strict=False))
        with self.database.begin() as tx:
            attempts.release(tx, claim.attempt_id, claim.token, time=self.clock, **named)


@pytest.fixture
def worker(database: Database) -> Worker:
    return Worker(database)


def offered(worker: Worker, names: Sequence[str], *queues: str) -> None:
    """A task for each table, in this order; the first is in a queue of a higher level."""
    with worker.database.begin() as tx:
        for queue in queues:
            add_queue(tx, CompactionQueue(name=queue, level=1), NOON)
        for place, name in enumerate(names):
            seen(tx, name, queue=queues[0] if queues and not place else None)
            offer(tx, name, [planned(name)], NOON)


def test_a_table_whose_store_refuses_keeps_no_other_waiting(worker: Worker) -> None:
    """Its task stays the first of the queue, and is claimed when nothing else waits."""
    offered(worker, ["lake.a", "lake.b", "lake.c"])
    worker.gives_back(worker.claims(), "access denied")
    assert [worker.claims().task.table for _ in range(3)] == ["lake.b", "lake.c", "lake.a"]


def test_nor_one_of_another_queue(worker: Worker) -> None:
    """Of two queues at equal shares, the one of the higher level comes first."""
    offered(worker, ["lake.a", "lake.b"], "night")
    first = worker.claims("night", "default")
    assert first.task.table == "lake.a"
    worker.gives_back(first, "access denied")
    assert worker.claims("night", "default").task.table == "lake.b"
    assert worker.claims("night", "default").task.table == "lake.a"


def test_after_a_minute_it_has_its_place_again(worker: Worker) -> None:
    """And its task is tried."""
    offered(worker, ["lake.a", "lake.b"])
    worker.gives_back(worker.claims(), "access denied")
    worker.clock.passes(seconds=59)
    second = worker.claims()
    assert second.task.table == "lake.b"
    worker.gives_back(second)
    worker.clock.passes(seconds=1)
    assert worker.claims().task.table == "lake.a"


def test_a_worker_that_ends_says_nothing_of_the_table(worker: Worker) -> None:
    """Another one claims the task at once."""
    offered(worker, ["lake.a", "lake.b"])
    worker.gives_back(worker.claims())
    assert worker.claims().task.table == "lake.a"
