"""Proof with real processes: a group comes to its limit and never exceeds it.

``ARCTIC_PROOF=full`` starts 30 runs, also with Dagster's own launcher: each is a process.
"""

from collections.abc import Callable
from typing import Any

import pytest
from dagster import DagsterRunStatus

from arctic_orchestration_tests.proofs.coordinator.run_history import Sampler, most_together
from arctic_orchestration_tests.proofs.coordinator.run_queue import REAL, STOCK, TOLD, RunQueue
from arctic_orchestration_tests.proofs.coordinator.sizes import FULL

pytestmark = [pytest.mark.proof, pytest.mark.timeout(900)]

LIMIT = 3
GROUPS = {"warehouse": {"limit": LIMIT, "match": {"job": "load"}}}
#: how many runs, and how long each lasts in seconds
SIZES = {"reported": (30, 0.7) if FULL else (12, 0.7), "processes": (30, 1.0) if FULL else (5, 1.0)}


def run_all(queue: RunQueue, count: int, seconds: float, held: int) -> tuple[int, int]:
    """(most runs seen in progress at once, most by the records), when all have succeeded.

    The first ``held`` of them do not end before all of these are in progress.
    """
    started, succeeded = DagsterRunStatus.STARTED, DagsterRunStatus.SUCCESS
    with Sampler(queue.instance, job="load") as sampler:
        first = [queue.submit("load") for _ in range(held)]
        runs = first + [queue.submit("load", seconds=seconds) for _ in range(count - held)]
        queue.wait(lambda: queue.count(started, "load") >= held, f"{held} runs at once")
        queue.let_pass(1)
        for run in first:
            queue.finish(run)
        queue.wait(lambda: queue.count(succeeded, "load") == count, f"{count} runs", 600)
    places = queue.places(runs)
    assert len(places) == count
    print(f"{count} runs: at most {most_together(places)} at once, {sampler.looks} looks")
    return sampler.most, most_together(places)


@pytest.mark.parametrize("launcher", SIZES)
def test_a_group_comes_to_its_limit_and_no_further(
    run_queue: Callable[..., RunQueue], launcher: str
) -> None:
    """Three at once, for as long as there are runs; looked at from outside, and by the records."""
    chosen = REAL if launcher == "processes" else TOLD
    queue = run_queue(launcher=chosen, groups=GROUPS, max_concurrent_runs=20)
    seen, recorded = run_all(queue, *SIZES[launcher], held=LIMIT)
    assert recorded == LIMIT
    assert seen == LIMIT


def test_dagsters_own_coordinator_exceeds_it(run_queue: Callable[..., RunQueue]) -> None:
    """The control: with the stock class more than three are in progress, and both views show it."""
    queue = run_queue(coordinator=STOCK, max_concurrent_runs=20)
    seen, recorded = run_all(queue, LIMIT + 1, 0.1, held=LIMIT + 1)
    assert recorded > LIMIT
    assert seen > LIMIT


def test_each_program_of_a_group_has_its_own_limit(run_queue: Callable[..., RunQueue]) -> None:
    """Of two jobs in one group, one run each is in progress, whoever was first."""
    refunds = {"limit_per_program": 1, "match": [{"job": "load"}, {"job": "report"}]}
    queue = run_queue(groups={"refunds": refunds}, max_concurrent_runs=20)
    loads = [queue.submit("load") for _ in range(3)]
    report = queue.submit("report")
    queue.wait_until_begun(loads[0])
    queue.wait_until_begun(report)
    queue.let_pass()
    assert queue.begun(loads) == loads[:1]
    queue.finish(loads[0])
    queue.wait_until_begun(loads[1])
    queue.let_pass()
    assert queue.begun(loads) == loads[:2]


def test_runs_launched_outside_the_queue_take_places(run_queue: Callable[..., RunQueue]) -> None:
    """Three runs that the queue never saw fill the group: by whatever way they belong to it.

    When one of them ends, one run of the queue starts, and no second.
    """
    groups: Any = {**GROUPS, "other": {"limit": 20}}
    queue = run_queue(daemon=False, groups=groups, max_concurrent_runs=20)
    strays = [
        queue.launch_outside("member"),  # its job has the tag
        queue.launch_outside("load"),  # the rule matches it
        queue.create(
            "plain", {"arctic/group": "other, warehouse"}, status=DagsterRunStatus.STARTED
        ),
    ]
    assert [queue.status(run) for run in strays] == [DagsterRunStatus.STARTED] * LIMIT
    loads = [queue.submit("load") for _ in range(LIMIT + 1)]
    queue.start_daemon()
    queue.let_pass()
    assert queue.begun(loads) == []
    for count, stray in enumerate(strays, 1):
        queue.finish(stray)
        queue.wait_until_begun(loads[count - 1])
        queue.let_pass(1)
        assert queue.begun(loads) == loads[:count]


def test_runs_outside_that_belong_to_no_group_take_no_place(
    run_queue: Callable[..., RunQueue],
) -> None:
    """The control: what takes the places is the group, not that a run is in progress."""
    queue = run_queue(daemon=False, groups=GROUPS, max_concurrent_runs=20)
    for _ in range(LIMIT - 1):
        queue.launch_outside("plain")
    queue.create("plain", status=DagsterRunStatus.STARTED)
    loads = [queue.submit("load") for _ in range(LIMIT)]
    queue.start_daemon()
    for load in loads:
        queue.wait_until_begun(load)
