"""What the daemon does with a run that cannot be launched."""

from collections.abc import Callable, Mapping
from typing import Any

from dagster import DagsterEventType, DagsterRun
from dagster import DagsterRunStatus as Status

from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import (
    RunQueue,
    beyond_upstream,
)

#: some moment, in seconds since 1970; the daemon's pauses are counted from it
THEN = 1_700_000_000.0
#: With one thread, the order of the launches is that of the runs.
ONE_THREAD = {"dequeue_num_workers": 1}


def test_runs_that_cannot_be_launched_fail(
    queue: Callable[..., RunQueue], walk: Mapping[str, Any]
) -> None:
    """``test_skip_error_runs``: those behind them are launched, and nothing is tried again."""
    here = queue(**walk)
    broken, good, lost = (here.submit() for _ in range(3))
    here.launcher.break_for(broken)
    here.launcher.lose_code_for(lost)

    assert here.iterate() == [good.run_id]
    assert here.status(broken) is Status.FAILURE
    assert here.status(lost) is Status.FAILURE
    here.launcher.mend()
    assert here.iterate() == []


@beyond_upstream
def test_a_failed_launch_gives_its_slot_back(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: in the next pass, another run has it."""
    here = queue(max_concurrent_runs=1)
    broken, good = (here.submit() for _ in range(2))
    here.launcher.break_for(broken)

    assert here.iterate() == []
    assert here.iterate() == [good.run_id]


def test_a_run_without_its_code_waits_again(
    queue: Callable[..., RunQueue], either_walk: Mapping[str, Any]
) -> None:
    """``test_retry_user_code_error_run``: two retries, and its code location pauses meanwhile.

    A pause is 120 seconds and begins with each attempt. Runs of other code locations are
    launched, those of this one not, whatever their priority.
    """
    here = queue(
        max_user_code_failure_retries=2,
        user_code_failure_retry_delay=120,
        **either_walk,
        **ONE_THREAD,
    )
    broken, good, lost = (here.submit() for _ in range(3))
    here.launcher.break_for(broken)
    here.launcher.lose_code_for(lost)
    assert here.iterate(at=THEN) == [good.run_id]
    assert here.status(broken) is Status.FAILURE
    assert here.status(lost) is Status.QUEUED

    neighbour = here.submit(tags={"dagster/priority": "5"})
    other = here.submit(location="harbour")
    assert here.iterate(at=THEN) == [other.run_id]
    assert here.iterate(at=THEN + 119) == []

    # the first retry, behind a run of a higher priority, which is not to blame
    assert here.iterate(at=THEN + 121) == [neighbour.run_id]
    assert here.status(lost) is Status.QUEUED
    assert here.iterate(at=THEN + 240) == []
    assert here.status(lost) is Status.QUEUED

    # the second retry is the last one
    assert here.iterate(at=THEN + 242) == []
    assert here.status(lost) is Status.FAILURE
    assert len(here.events(lost, DagsterEventType.PIPELINE_ENQUEUED)) == 3


def test_a_run_whose_code_is_there_again_is_launched(
    queue: Callable[..., RunQueue], either_walk: Mapping[str, Any]
) -> None:
    """``test_retry_user_code_error_recovers``: once the pause of five seconds is over."""
    here = queue(max_user_code_failure_retries=1, user_code_failure_retry_delay=5, **either_walk)
    lost = here.submit()
    here.launcher.lose_code_for(lost)
    assert here.iterate(at=THEN) == []
    assert here.status(lost) is Status.QUEUED

    here.launcher.mend()
    assert here.iterate(at=THEN + 4) == []
    assert here.iterate(at=THEN + 6) == [lost.run_id]


@beyond_upstream
def test_the_rest_of_a_pass_is_paused_too(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: runs of the same code location that the same pass has chosen."""
    here = queue(max_user_code_failure_retries=1)
    lost, neighbour = (here.submit() for _ in range(2))
    other = here.submit(location="harbour")
    here.launcher.lose_code_for(lost)

    assert here.iterate(at=THEN) == [other.run_id]
    assert here.status(neighbour) is Status.QUEUED
    here.launcher.mend()
    assert here.iterate(at=THEN + 61) == [lost.run_id, neighbour.run_id]


@beyond_upstream
def test_a_run_that_waits_again_keeps_its_place_and_tags(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: it is not submitted again, only put back as it is."""
    here = queue(max_user_code_failure_retries=1)
    lost = here.submit(tags={"foo": "bar"})
    here.launcher.lose_code_for(lost)
    here.iterate(at=THEN)
    later = here.submit()
    here.launcher.mend()

    assert here.run(lost).tags == lost.tags
    assert here.iterate(at=THEN + 61) == [lost.run_id, later.run_id]


@beyond_upstream
def test_a_launch_that_fails_after_the_run_has_begun_changes_nothing(
    queue: Callable[..., RunQueue],
) -> None:
    """No test of upstream: the run goes on, and is neither failed nor put back."""
    here = queue(max_user_code_failure_retries=1)
    broken, lost = (here.submit() for _ in range(2))
    here.launcher.break_for(broken)
    here.launcher.lose_code_for(lost)

    def start(run: DagsterRun) -> None:
        here.report(run, Status.STARTED)

    here.launcher.before = start

    assert here.iterate(at=THEN) == []
    assert here.status(broken) is Status.STARTED
    assert here.status(lost) is Status.STARTED
