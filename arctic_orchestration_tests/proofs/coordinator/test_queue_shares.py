"""Proof with real processes: a flood in one queue holds up another queue by one start at most.

``ARCTIC_PROOF=full`` floods with 1,000 runs.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from dagster import DagsterRunStatus

from arctic_orchestration_tests.proofs.coordinator.run_queue import PASS, STOCK, RunQueue
from arctic_orchestration_tests.proofs.coordinator.sizes import FULL

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

#: more than the daemon reads as one page of the queue
COUNT = 1000 if FULL else 110
SLOTS = 4
ROUNDS = 20 if FULL else 5
QUEUES: dict[str, Any] = {
    "bulk": {"share": 1, "match": {"job": "low"}},
    "urgent": {"share": 3, "match": {"job": "high"}},
}


class Flood:
    """A queue full of low runs, of which as many are in progress as there are slots."""

    def __init__(self, queue: RunQueue, count: int = COUNT) -> None:
        self.queue = queue
        self.runs = [queue.submit("low") for _ in range(count)]
        queue.start_daemon()
        self.wait_until_full()

    def in_progress(self, job: str) -> int:
        """How many runs of a job have begun, and not ended."""
        return self.queue.count(DagsterRunStatus.STARTED, job)

    def wait_until_full(self) -> None:
        """Returns when all slots are in use."""
        jobs = ("low", "high")
        self.queue.wait(
            lambda: sum(self.in_progress(job) for job in jobs) == SLOTS, "all slots are in use"
        )

    def finish_one(self, job: str = "low") -> None:
        """One run of a job ends, and another run begins in its place."""
        active = self.active(job)
        begun = self.count_begun()
        self.queue.finish(active[0])
        self.queue.wait(lambda: self.count_begun() > begun, "the slot is used again")
        self.wait_until_full()

    def active(self, job: str) -> list[str]:
        """The runs of a job that are in progress."""
        runs = self.queue.instance.get_runs()
        return [
            run.run_id
            for run in reversed(runs)
            if run.job_name == job and run.status is DagsterRunStatus.STARTED
        ]

    def count_begun(self) -> int:
        """How many runs of either queue have left it."""
        statuses = (DagsterRunStatus.STARTED, DagsterRunStatus.SUCCESS)
        return sum(self.queue.count(status, job) for status in statuses for job in ("low", "high"))

    def begun_between(self, high: str) -> int:
        """How many low runs began after the high run was submitted, and before it began."""
        # The record has the time of Postgres, in its zone.
        (queued,) = self.queue.instance.get_records_for_run(high, limit=1).records
        submitted = queued.timestamp
        began = self.queue.places([high])[0].begun_at
        return sum(submitted < held.begun_at < began for held in self.queue.places(self.runs))


def test_a_run_of_another_queue_has_the_next_slot(run_queue: Callable[..., RunQueue]) -> None:
    """All slots are lent to the flood; at most one low run goes before, and shares come back."""
    queue = run_queue(daemon=False, queues=QUEUES, max_concurrent_runs=SLOTS)
    low = Flood(queue)
    assert low.in_progress("low") == SLOTS  # idle shares are lent
    # A slot becomes free just before the run comes, and then one after the other.
    queue.finish(low.active("low")[0])
    high = queue.submit("high")
    while queue.is_queued(high):
        low.wait_until_full()
        if queue.is_queued(high):
            queue.finish(low.active("low")[0])
    queue.wait_until_begun(high)
    between = low.begun_between(high)
    print(f"{COUNT} queued: {between} low runs began between submission and start")
    assert between <= 1

    queue.finish(high)
    queue.wait(lambda: low.in_progress("low") == SLOTS, "its slot is lent again")

    # Of four slots three are the urgent queue's, as soon as it wants them, and for so long only.
    for _ in range(5):
        queue.submit("high")
    queue.let_pass_while_full()
    shares = [low.in_progress("high")]
    for _ in range(4):
        low.finish_one("low")
        shares.append(low.in_progress("high"))
    # The next slot each, until it has its share; the flood keeps its own.
    assert shares == [0, 1, 2, 3, 3]
    # While the urgent queue has more, its slots stay its own; then they are lent again.
    for left in (3, 3, 2, 1, 0):
        low.finish_one("high")
        assert low.in_progress("high") == left
    assert low.in_progress("low") == SLOTS


def test_slots_that_become_free_during_a_pass_are_shared_as_well(
    run_queue: Callable[..., RunQueue],
) -> None:
    """Two runs of the flood end at whatever moment of a pass: one slot is the waiting run's."""
    queue = run_queue(daemon=False, queues=QUEUES, max_concurrent_runs=SLOTS)
    low = Flood(queue, 4 * ROUNDS)
    between = []
    for number in range(ROUNDS):
        high = queue.submit("high")
        queue.let_pass_while_full()
        # The ends are spread over the length of a pass.
        time.sleep(PASS * number / ROUNDS)
        for run in low.active("low")[:2]:
            queue.finish(run)
        low.wait_until_full()
        assert not queue.is_queued(high), f"round {number}: both slots went to the flood"
        between.append(low.begun_between(high))
        queue.finish(high)
        queue.wait(lambda: low.in_progress("low") == SLOTS, "its slot is lent again")
    assert max(between) <= 1
    print(f"{ROUNDS} rounds: {between} low runs began between submission and start")


def test_dagsters_own_coordinator_lets_the_flood_go_first(
    run_queue: Callable[..., RunQueue],
) -> None:
    """The control: the stock class takes runs as they came, and the high run waits for all."""
    queue = run_queue(daemon=False, coordinator=STOCK, max_concurrent_runs=SLOTS)
    low = Flood(queue, 20)
    high = queue.submit("high")
    for _ in range(3):
        low.finish_one("low")
    assert queue.is_queued(high)
    assert len(queue.begun(low.runs)) == SLOTS + 3
