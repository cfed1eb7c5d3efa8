"""What happens to a run that is canceled."""

from collections.abc import Callable

from dagster import DagsterEventType
from dagster import DagsterRunStatus as Status

from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import (
    RunQueue,
    beyond_upstream,
)


def test_a_run_that_waits_is_canceled_at_once(queue: Callable[..., RunQueue]) -> None:
    """``test_cancel_run``: it is CANCELED, and the daemon does not launch it."""
    here = queue()
    run = here.submit()

    assert here.coordinator.cancel_run(run.run_id) is True

    assert here.status(run) is Status.CANCELED
    assert len(here.events(run, DagsterEventType.RUN_CANCELED)) == 1
    assert here.launcher.terminated == []
    assert here.iterate() == []


@beyond_upstream
def test_a_run_that_was_launched_is_left_to_the_launcher(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: the launcher ends it, whether it has begun or not."""
    here = queue()
    here.launcher.starts = True
    run = here.submit()
    here.iterate()
    outside = here.submit(status=Status.STARTING)

    assert here.coordinator.cancel_run(run.run_id) is True
    assert here.coordinator.cancel_run(outside.run_id) is True

    assert here.launcher.terminated == [run.run_id, outside.run_id]
    assert here.status(run) is Status.STARTED


@beyond_upstream
def test_a_run_that_is_not_there_is_not_canceled(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: the answer is no, and nobody is asked to end it."""
    here = queue()
    assert here.coordinator.cancel_run("00000000-0000-0000-0000-000000000000") is False
    assert here.launcher.terminated == []
