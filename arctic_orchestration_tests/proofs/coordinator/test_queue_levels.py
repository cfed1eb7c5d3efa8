"""Proof with real processes: levels age, so that the wait of a run has a bound; and they change.

One slot, and a flood of more urgent runs. A run of it ends only while others of it wait, so it is a
flood on any machine. ``ARCTIC_PROOF=full`` makes it last longer.
"""

import math
from collections.abc import Callable
from datetime import datetime

import pytest
from dagster import DagsterRunStatus

from arctic_orchestration.clock import utc_now
from arctic_orchestration.run_queue import aging, levels, tags
from arctic_orchestration_tests.proofs.coordinator.run_queue import STOCK, RunQueue
from arctic_orchestration_tests.proofs.coordinator.sizes import FULL

pytestmark = [pytest.mark.proof, pytest.mark.timeout(900)]

SECONDS_PER_LEVEL = 5 if FULL else 2
URGENT = 3
#: so many of the flood wait, whenever one of it ends
BACKLOG = 3
#: in the control, the flood ends
FLOOD = 30 if FULL else 8


def begin_in_a_flood(
    queue: RunQueue, urgent: dict[str, str], low: dict[str, str], count: float = math.inf
) -> tuple[str, list[str]]:
    """Submits a run into a flood of up to ``count`` urgent ones, and waits until it begins.

    Returns its id, and those of the flood in the order in which they came.
    """
    flood: list[str] = []

    def submit_urgent() -> None:
        if len(flood) < count:
            flood.append(queue.submit("high", urgent))

    def keep_backlog() -> None:
        for _ in range(BACKLOG - queue.count(DagsterRunStatus.QUEUED, "high")):
            submit_urgent()

    submit_urgent()
    queue.wait_until_begun(flood[0])
    running = flood[0]
    keep_backlog()
    low_run = queue.submit("low", low)
    submit_urgent()
    while running != low_run:
        keep_backlog()
        queue.finish(running)
        queue.wait(lambda: queue.count(DagsterRunStatus.STARTED) == 1, "the next one begins")
        running = queue.begun([*flood, low_run])[-1]
    return low_run, flood


def queued_at(queue: RunQueue, run_id: str) -> datetime:
    """When a run was submitted, as it is sorted by."""
    at = tags.queued_at_of(queue.run(run_id).tags)
    assert at is not None
    return at


def test_the_wait_of_a_run_has_the_bound_that_ageing_gives(
    run_queue: Callable[..., RunQueue],
) -> None:
    """No run that came after the bound's moment goes first, though the flood does not end."""
    queue = run_queue(quick=False, seconds_per_level=SECONDS_PER_LEVEL, max_concurrent_runs=1)
    low, flood = begin_in_a_flood(queue, {tags.LEVEL: str(URGENT)}, {tags.LEVEL: "0"})
    queued = {run: queued_at(queue, run) for run in [low, *flood]}
    begun = queue.begun([low, *flood])
    before = begun[: begun.index(low)]
    until = aging.overtaken_until(0, queued[low], URGENT, SECONDS_PER_LEVEL)

    # Levels count: some that came later went first. Ageing counts: none that came too late did.
    overtook = [run for run in before if queued[run] > queued[low]]
    assert overtook
    assert max(queued[run] for run in before) < until
    # The flood was one: urgent runs still waited when the low one began.
    assert len(flood) - len(before) >= BACKLOG
    print(f"{len(before)} urgent runs went first, {len(overtook)} of them came later")


def test_without_ageing_a_run_starves_until_the_flood_ends(
    run_queue: Callable[..., RunQueue],
) -> None:
    """The control: by ``dagster/priority`` alone, every urgent run goes first, whenever it came."""
    queue = run_queue(quick=False, coordinator=STOCK, max_concurrent_runs=1)
    urgent = {tags.PRIORITY: str(URGENT)}
    low, flood = begin_in_a_flood(queue, urgent, {tags.PRIORITY: "0"}, FLOOD)
    assert queue.begun([*flood, low]) == [*flood, low]
    assert len(flood) == FLOOD


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
