"""Proof with real processes: levels age, so that the wait of a run has a bound; and they change.

One slot, and more urgent runs that come twice as fast as they are worked off.
``ARCTIC_PROOF=full`` makes them come for longer.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
from dagster import DagsterRunStatus

from arctic_orchestration.clock import utc_now
from arctic_orchestration.run_queue import aging, levels, tags
from arctic_orchestration_tests.proofs.coordinator.run_queue import PASS, STOCK, RunQueue
from arctic_orchestration_tests.proofs.coordinator.sizes import FULL

pytestmark = [pytest.mark.proof, pytest.mark.timeout(900)]

SECONDS_PER_LEVEL = 5 if FULL else 1
URGENT = 3
#: seconds that a run lasts, and between two of the flood
LASTS, PAUSE = 0.3, 0.4
#: Where fewer of the flood wait, the next one comes at once: on a machine that has a lot to do,
#: the pace is not kept, and the flood would be none.
BACKLOG = 4
#: what a pass may take longer than ``PASS``: Dagster's daemon waits half seconds, then it works
_SLOWER = 1.5
SLOTS = 1
#: in the control, the flood ends
FLOOD = 30 if FULL else 8


@contextmanager
def flood(queue: RunQueue, named: dict[str, str], count: float = math.inf) -> Iterator[list[str]]:
    """Submits urgent runs at a steady pace, until the block ends or there are ``count``."""
    runs: list[str] = []
    ended = threading.Event()

    def submit() -> None:
        began = time.monotonic()
        while len(runs) < count:
            runs.append(queue.submit("high", named, seconds=LASTS))
            few = queue.count(DagsterRunStatus.QUEUED, "high") < BACKLOG
            pause = 0 if few else began + PAUSE * len(runs) - time.monotonic()
            if ended.wait(max(pause, 0)):
                return

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    try:
        yield runs
    finally:
        ended.set()
        thread.join()


def queued_at(queue: RunQueue, run_id: str) -> datetime:
    """When a run was submitted, as it is sorted by."""
    at = tags.queued_at_of(queue.run(run_id).tags)
    assert at is not None
    return at


def test_the_wait_of_a_run_has_the_bound_that_ageing_gives(
    run_queue: Callable[..., RunQueue],
) -> None:
    """No run that came after the bound's moment goes first, though the flood does not end."""
    queue = run_queue(quick=False, seconds_per_level=SECONDS_PER_LEVEL, max_concurrent_runs=SLOTS)
    with flood(queue, {tags.LEVEL: str(URGENT)}) as runs:
        queue.wait(lambda: len(runs) >= BACKLOG, "a backlog")
        low = queue.submit("low", {tags.LEVEL: "0"}, seconds=LASTS)
        queue.wait_until_begun(low, 120)
        low_place = queue.places([low])[0]
    urgent = queue.places(runs)
    before = [held for held in urgent if held.begun_at < low_place.begun_at]
    since = queued_at(queue, low)
    until = aging.overtaken_until(0, since, URGENT, SECONDS_PER_LEVEL)
    queued = {run: queued_at(queue, run) for run in runs}

    # Levels count: some that came later went first. Ageing counts: none that came too late did.
    overtook = [held for held in before if queued[held.run_id] > since]
    assert overtook
    assert max(queued[held.run_id] for held in before) < until
    # The flood was one: urgent runs that came before the low one began waited behind it.
    begun_at = {held.run_id: held.begun_at for held in urgent}
    assert [
        run
        for run in runs
        if queued[run].timestamp() < low_place.begun_at < begun_at.get(run, math.inf)
    ]
    # The bound, in seconds: everything that may go first is worked off, one pass for each slot.
    ahead = [run for run in runs if queued[run] < until]
    bound = until.timestamp() + (math.ceil(len(ahead) / SLOTS) + 1) * (LASTS + PASS + _SLOWER)
    assert low_place.begun_at <= bound
    print(
        f"{len(before)} urgent runs went first, {len(overtook)} of them came later; it waited "
        f"{low_place.begun_at - since.timestamp():.1f} s of at most "
        f"{bound - since.timestamp():.1f} s"
    )


def test_without_ageing_a_run_starves_until_the_flood_ends(
    run_queue: Callable[..., RunQueue],
) -> None:
    """The control: by ``dagster/priority`` alone, every urgent run goes first, whenever it came."""
    queue = run_queue(quick=False, coordinator=STOCK, max_concurrent_runs=SLOTS)
    with flood(queue, {tags.PRIORITY: str(URGENT)}, FLOOD) as runs:
        queue.wait(lambda: len(runs) >= 3, "a backlog")
        low = queue.submit("low", {tags.PRIORITY: "0"}, seconds=LASTS)
        queue.wait_until_begun(low, 120)
    assert queue.begun([*runs, low]) == [*runs, low]
    assert len(runs) == FLOOD


def test_a_level_that_is_changed_counts_in_the_next_pass(
    run_queue: Callable[..., RunQueue],
) -> None:
    """The last of four waiting runs is raised, the first lowered; the others keep their order."""
    queue = run_queue(seconds_per_level=600, max_concurrent_runs=1)
    blocking = queue.submit("plain")
    queue.wait_until_begun(blocking)
    lowered, unchanged, unchanged_too, raised = (queue.submit("load") for _ in range(4))
    with queue.database.begin() as tx:
        for run, level in ((lowered, -1), (raised, 5)):
            levels.request_level(tx, "default", run, level, utc_now())
    queue.let_pass_while_full()
    queue.finish(blocking)
    order: list[str] = []
    for _ in range(4):
        queue.wait(lambda: queue.count(DagsterRunStatus.STARTED, "load") == 1, "one begins")
        order.append(queue.begun([lowered, unchanged, unchanged_too, raised])[-1])
        queue.finish(order[-1])
    assert order == [raised, unchanged, unchanged_too, lowered]
