"""Proof with real processes: no span of the rate's length sees more starts than its limit.

``ARCTIC_PROOF=full`` takes a real minute, by default it is some seconds.
"""

from collections.abc import Callable

import pytest

from arctic_orchestration_tests.proofs.coordinator.run_history import Held, most_begun_within
from arctic_orchestration_tests.proofs.coordinator.run_queue import STOCK, RunQueue
from arctic_orchestration_tests.proofs.coordinator.sizes import FULL

pytestmark = [pytest.mark.proof, pytest.mark.timeout(900)]

LIMIT, SECONDS, COUNT = (10, 60, 25) if FULL else (3, 4, 8)
RATES = {"api": {"limit": LIMIT, "per": f"{SECONDS}s", "match": {"job": "load"}}}
#: A minute shows that it is a pass; in the small size a slow machine may need as long for one.
_LATE = 5 if FULL else 60


def start_all(queue: RunQueue, count: int) -> list[Held]:
    """The places of runs, most of them submitted at once, some while the rate is in force.

    Every second run has ended long before the next can start, the others are in progress still.
    """
    lasting = [0.1, SECONDS / 2] * count
    runs = [queue.submit("load", seconds=lasting.pop()) for _ in range(count - 2)]
    queue.let_pass(1)
    runs += [queue.submit("load", seconds=lasting.pop()) for _ in range(2)]
    spans = -(-count // LIMIT)
    queue.wait(lambda: len(queue.begun(runs)) == count, "all begin", spans * (SECONDS + _LATE))
    return queue.places(runs)


def test_no_span_sees_more_starts_than_the_limit(run_queue: Callable[..., RunQueue]) -> None:
    """Nor fewer than it may, give or take a pass of the daemon."""
    queue = run_queue(rates=RATES, max_concurrent_runs=20)
    held = start_all(queue, COUNT)
    assert most_begun_within(held, SECONDS) == LIMIT
    took = held[-1].begun_at - held[0].begun_at
    full_spans = (COUNT - 1) // LIMIT
    assert full_spans * SECONDS <= took < full_spans * (SECONDS + _LATE)
    print(f"{COUNT} starts, {LIMIT} in {SECONDS} s: {took:.1f} s")


def test_a_daemon_that_starts_again_knows_what_was_started(
    run_queue: Callable[..., RunQueue],
) -> None:
    """The starts before a crash count: a new daemon does not grant them once more."""
    queue = run_queue(rates=RATES, max_concurrent_runs=20)
    runs = [queue.submit("load", seconds=0.1) for _ in range(2 * LIMIT)]
    queue.wait(lambda: len(queue.begun(runs)) == LIMIT, "the first starts")
    queue.kill_daemon()
    queue.start_daemon()
    queue.wait(lambda: len(queue.begun(runs)) == 2 * LIMIT, "the rest", SECONDS + 60)
    assert most_begun_within(queue.places(runs), SECONDS) == LIMIT


def test_dagsters_own_coordinator_exceeds_it(run_queue: Callable[..., RunQueue]) -> None:
    """The control: the stock class starts all of them in one span."""
    queue = run_queue(coordinator=STOCK, max_concurrent_runs=20)
    held = start_all(queue, COUNT)
    assert most_begun_within(held, SECONDS) > LIMIT
