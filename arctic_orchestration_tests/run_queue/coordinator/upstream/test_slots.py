"""``max_concurrent_runs``: how many runs are in progress at once."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from dagster import DagsterRunStatus as Status

from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import (
    SUSPENDED,
    RunQueue,
    beyond_upstream,
)

IN_PROGRESS = (Status.STARTING, Status.STARTED, Status.CANCELING)


@pytest.mark.parametrize(("in_progress", "launched"), [(1, 3), (5, 0)])
def test_so_many_are_launched_as_there_are_slots(
    queue: Callable[..., RunQueue], either_walk: Mapping[str, Any], in_progress: int, launched: int
) -> None:
    """``test_get_queued_runs_max_runs``: four slots, of which runs in progress hold some.

    These are starting, started and canceling; nobody asked the queue for them.
    """
    here = queue(max_concurrent_runs=4, **either_walk)
    for number in range(in_progress):
        here.submit(status=IN_PROGRESS[number % 3])
    runs = [here.submit().run_id for _ in range(5)]

    assert sorted(here.iterate()) == sorted(runs[:launched])


def test_every_run_in_progress_holds_a_slot(queue: Callable[..., RunQueue]) -> None:
    """``test_get_queued_runs_max_runs``: starting, started and canceling are three of four."""
    here = queue(max_concurrent_runs=4)
    for status in IN_PROGRESS:
        here.submit(status=status)
    first, _ = (here.submit() for _ in range(2))
    assert here.iterate() == [first.run_id]
    assert here.iterate() == []


def test_a_run_that_is_suspended_or_over_holds_no_slot(queue: Callable[..., RunQueue]) -> None:
    """``test_get_queued_runs_max_runs``, the others: no worker works for them."""
    here = queue(max_concurrent_runs=1)
    for status in (*SUSPENDED, Status.SUCCESS, Status.FAILURE, Status.CANCELED):
        here.submit(status=status)
    run = here.submit()
    assert here.iterate() == [run.run_id]


@beyond_upstream
def test_a_slot_is_free_again_when_its_run_has_ended(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: one after the other, however a run ends."""
    here = queue(max_concurrent_runs=1)
    runs = [here.submit().run_id for _ in range(4)]
    for run_id, end in zip(runs, (Status.SUCCESS, Status.FAILURE, Status.CANCELED), strict=False):
        assert here.iterate() == [run_id]
        assert here.iterate() == []
        here.report(run_id, Status.STARTED)
        here.report(run_id, end)
    assert here.iterate() == runs[3:]


def test_minus_one_is_no_limit(
    queue: Callable[..., RunQueue], either_walk: Mapping[str, Any]
) -> None:
    """``test_disable_max_concurrent_runs_limit``: more than the usual ten are in progress."""
    here = queue(max_concurrent_runs=-1, **either_walk)
    for number in range(6):
        here.submit(status=IN_PROGRESS[number % 3])
    runs = {here.submit().run_id for _ in range(6)}
    assert set(here.iterate()) == runs


@beyond_upstream
def test_zero_launches_nothing(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: with no slot at all, everything waits."""
    here = queue(max_concurrent_runs=0)
    run = here.submit()
    assert here.iterate() == []
    assert here.status(run) is Status.QUEUED
