"""What happens to a run when it is submitted."""

from collections.abc import Callable

from dagster import DagsterEventType
from dagster import DagsterRunStatus as Status
from dagster._core.run_coordinator import SubmitRunContext

from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import (
    RunQueue,
    beyond_upstream,
)

ENQUEUED = DagsterEventType.PIPELINE_ENQUEUED


def test_a_run_that_is_submitted_waits(queue: Callable[..., RunQueue]) -> None:
    """``test_submit_run``: it is queued, in the answer as in the storage, and not launched."""
    here = queue()
    run = here.submit(status=Status.NOT_STARTED)
    workspace = here.context.create_request_context()

    answer = here.coordinator.submit_run(SubmitRunContext(run, workspace))

    assert (answer.run_id, answer.status) == (run.run_id, Status.QUEUED)
    assert here.status(run) is Status.QUEUED
    assert len(here.events(run, ENQUEUED)) == 1
    assert here.launched == []


@beyond_upstream
def test_a_run_keeps_the_tags_it_has(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: nothing is added to the tags of a run, and nothing taken away."""
    here = queue()
    given = {"database": "tiny", "dagster/priority": "3"}
    made = here.submit("refund", tags=given, status=Status.NOT_STARTED)
    assert made.tags.items() >= {**given, "team": "finance"}.items()

    here.instance.submit_run(made.run_id, here.context.create_request_context())

    assert here.run(made).tags == made.tags


def test_a_run_that_is_not_new_is_left_alone(queue: Callable[..., RunQueue]) -> None:
    """``test_submit_run_checks_status``: to submit it changes nothing and reports no event."""
    here = queue()
    workspace = here.context.create_request_context()
    for status in (Status.STARTED, Status.CANCELING, Status.SUCCESS, Status.CANCELED):
        run = here.submit(status=status)

        answer = here.coordinator.submit_run(SubmitRunContext(run, workspace))

        assert answer == run
        assert here.run(run) == run
        assert here.events(run, ENQUEUED) == []


def test_a_run_that_is_submitted_twice_waits_once(queue: Callable[..., RunQueue]) -> None:
    """``test_submit_run_checks_status``: the second time changes nothing, and it runs once."""
    here = queue()
    run = here.submit()
    here.instance.submit_run(run.run_id, here.context.create_request_context())

    assert here.run(run) == run
    assert len(here.events(run, ENQUEUED)) == 1
    assert here.iterate() == [run.run_id]
    assert here.iterate() == []
