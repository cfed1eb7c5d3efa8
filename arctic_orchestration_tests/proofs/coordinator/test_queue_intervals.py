"""Proof with real processes: a program rests after its run, and other programs do not."""

from collections.abc import Callable

import pytest
from dagster import DagsterEventType

from arctic_orchestration_tests.proofs.coordinator.run_queue import STOCK, RunQueue
from arctic_orchestration_tests.proofs.coordinator.sizes import FULL

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]

SECONDS = 60 if FULL else 4
INTERVALS = {"calm": {"duration": f"{SECONDS}s", "match": [{"job": "rollup"}, {"job": "report"}]}}
#: longer than a slow machine needs to begin a run that nothing holds
LONG = {"calm": {**INTERVALS["calm"], "duration": "600s"}}
#: A minute shows that it is a pass; in the small size a slow machine may need as long for one.
_LATE = 5 if FULL else 60


def test_the_second_run_starts_an_interval_after_the_end_of_the_first(
    run_queue: Callable[..., RunQueue],
) -> None:
    """Two runs of one program are queued at once; a run of another one does not wait for them."""
    queue = run_queue(intervals=INTERVALS, max_concurrent_runs=20)
    first, second = queue.submit("rollup"), queue.submit("rollup")
    other = queue.submit("report")
    queue.wait_until_begun(first)
    queue.wait_until_begun(other)
    queue.let_pass()
    assert queue.is_queued(second)

    queue.finish(first)
    queue.wait_until_begun(second, SECONDS + 60)
    ended, begun = queue.places([first, second])
    assert ended.ended_at is not None
    rested = begun.begun_at - ended.ended_at
    assert SECONDS <= rested < SECONDS + _LATE
    print(f"an interval of {SECONDS} s: {rested:.2f} s")


def test_after_a_failure_the_interval_counts_from_the_last_success(
    run_queue: Callable[..., RunQueue],
) -> None:
    """A failed run starts no rest of its own, but nothing starts beside it."""
    queue = run_queue(intervals=LONG, max_concurrent_runs=20)
    first, second = queue.submit("rollup"), queue.submit("rollup")
    queue.wait_until_begun(first)
    queue.let_pass()
    assert queue.is_queued(second)
    queue.finish(first, DagsterEventType.RUN_FAILURE)
    queue.wait_until_begun(second)
    ended, begun = queue.places([first, second])
    assert ended.ended_at is not None
    assert ended.ended_at <= begun.begun_at


def test_dagsters_own_coordinator_starts_both_at_once(
    run_queue: Callable[..., RunQueue],
) -> None:
    """The control: the stock class lets the second run begin beside the first."""
    queue = run_queue(coordinator=STOCK, max_concurrent_runs=20)
    runs = [queue.submit("rollup", {"arctic/interval": "calm"}) for _ in range(2)]
    for run in runs:
        queue.wait_until_begun(run)
    assert [held.ended_at for held in queue.places(runs)] == [None, None]
