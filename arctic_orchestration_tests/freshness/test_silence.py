"""Runs that fall silent: who makes the task instead, and what becomes of their submission."""

from contextlib import ExitStack
from datetime import timedelta

import pytest

from arctic_orchestration.errors import Refused
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness.run_reconciler import BEGINS_WITHIN
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration_tests.freshness.imagined import World, spec


def test_a_run_that_is_killed_is_taken_over_after_its_lease_and_publishes_nothing(
    world: World,
) -> None:
    """Another cluster shares the run, and makes the task once the lease is over."""
    east = world.place(spec("flights"), cluster="east")
    west = world.place(spec("flights"), cluster="west")
    east.submit("flights")
    east.tick()
    (other,) = west.submit("flights")
    west.tick()
    (run,) = east.waiting_runs()
    with ExitStack() as stack, pytest.raises(Refused, match="superseded"):
        running = east.begin(run, stack)
        world.clock.passes(seconds=61)
        west.tick()
        assert world.row("flights").token == 2
        assert Step.TOOK_OVER in world.steps(other)
        running.publish()
    assert west.make_all() == ["flights"]
    assert world.row("flights").last_token == 2


def test_a_run_that_begins_with_an_old_token_touches_nothing(world: World) -> None:
    """Its location was silent for longer than the lease, and another cluster was faster."""
    east = world.place(spec("flights"), cluster="east")
    west = world.place(spec("flights"), cluster="west")
    (submission,) = east.submit("flights")
    east.tick()
    (run,) = east.waiting_runs()
    west.submit("flights")
    world.clock.passes(seconds=61)
    west.tick()
    with ExitStack() as stack, pytest.raises(Refused, match="was superseded"):
        east.begin(run, stack)
    assert world.row("flights").run_id is None
    assert world.steps(submission)[-1] is Step.REFUSED
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    east.tick()
    assert world.run_all() == ["flights"]
    assert world.state_of(submission) is SubmissionState.FRESH


def test_a_location_that_was_away_for_long_goes_on_with_its_run_without_take_over(
    world: World,
) -> None:
    """A run that waited in Dagster's queue meanwhile begins under its old token."""
    east = world.place(spec("flights"))
    (submission,) = east.submit("flights")
    east.tick()
    world.clock.passes(hours=3)
    assert world.run_all() == ["flights"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
    assert world.row("flights").last_token == 1


def test_a_run_that_fell_silent_is_repeated_whatever_the_retries(world: World) -> None:
    """Three times, each under a new token; then its submission is lost, with the moment."""
    east = world.place(spec("flights"))
    (submission,) = east.submit("flights")
    east.tick()
    for attempt in (1, 2, 3, 4):
        (run,) = east.waiting_runs()
        assert run.request.run_key == f"{submission.id}-{attempt}"
        with ExitStack() as stack:
            east.begin(run, stack)
            east.tick()
            world.clock.passes(seconds=61)
            # As if the process was killed: nobody renews, and Dagster has not noticed.
            east.tick()
    assert east.waiting_runs() == []
    assert world.row("flights").token == 4
    lost = world.again(submission)
    assert (lost.state, lost.attempt) == (SubmissionState.LOST, 4)
    assert lost.reason == (
        "run east-lake-4 was silent until 2026-01-01 12:04:03Z, when its lease was over; it was "
        "retried 3 times"
    )


def test_a_run_that_was_superseded_leaves_its_submission_all_its_patience(world: World) -> None:
    """Until when it had to begin says nothing of how long its parents are waited for then."""
    east = world.place(spec("delays", {"flights": 3.0}), cluster="east")
    world.place(spec("flights"), cluster="west")
    world.made("flights", hours=2)
    (submission,) = east.submit("delays")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    east.tick()
    assert world.again(submission).deadline_at == world.clock.now + BEGINS_WITHIN
    world.clock.passes(hours=2)
    with world.started_manually("delays", cluster="west"):
        east.tick()
    waiting = world.again(submission)
    assert waiting.state is SubmissionState.WAITING, waiting.reason
    assert waiting.deadline_at == world.clock.now + timedelta(minutes=30)


def test_what_failed_and_what_fell_silent_are_counted_apart(world: World) -> None:
    """A failure after a silence is the first one; and without retries it is the last."""
    east = world.place(spec("a", retries=1), spec("b"))
    (twice,), (once,) = east.submit("a"), east.submit("b")
    east.tick()
    with ExitStack() as stack:
        for run in east.waiting_runs():
            east.begin(run, stack)
        world.clock.passes(seconds=61)
        east.tick()
    for run in east.waiting_runs():
        east.runs.becomes(run.run_id, RunStatus.FAILURE)
    east.tick()
    assert world.again(once).reason == "run east-lake-4 failed"
    again = world.again(twice)
    assert (again.state, again.attempt) == (SubmissionState.ACQUIRED, 3)
    assert again.reason == "attempt 1 of 2: run east-lake-3 failed; again"
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    east.tick()
    assert world.state_of(twice) is SubmissionState.FAILED


@pytest.mark.parametrize("noticed", [RunStatus.STARTED, RunStatus.FAILURE])
def test_a_run_that_outlived_its_lease_is_made_again_without_retries(
    world: World, noticed: RunStatus
) -> None:
    """The database was away for a minute: what the run says of itself is no failure."""
    east = world.place(spec("flights"))
    (submission,) = east.submit("flights")
    east.tick()
    (run,) = east.waiting_runs()
    with pytest.raises(Refused, match="has lost its lease"), ExitStack() as stack:
        running = east.begin(run, stack)
        world.clock.passes(seconds=61)
        running.publish()
    east.runs.becomes(run.run_id, noticed)
    assert world.run_all() == ["flights"]
    assert world.again(submission).state is SubmissionState.SUCCEEDED
    assert world.row("flights").last_token == 2


def test_a_run_that_raised_is_a_failure_however_late_that_is_seen(world: World) -> None:
    """The control: its location was away, and what it noted is not taken for silence."""
    east = world.place(spec("flights"))
    (submission,) = east.submit("flights")
    east.tick()
    (run,) = east.waiting_runs()
    with pytest.raises(ZeroDivisionError), ExitStack() as stack:
        east.begin(run, stack)
        raise ZeroDivisionError("by nothing")
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    world.clock.passes(minutes=5)
    assert world.run_all() == []
    assert world.again(submission).reason == "run east-lake-1 failed: ZeroDivisionError: by nothing"


def test_a_run_that_could_not_begin_for_the_database_is_requested_again(world: World) -> None:
    """It waited for ten minutes and failed, while nobody could renew its lease either."""
    east = world.place(spec("flights"))
    (submission,) = east.submit("flights")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    east.tick()
    world.clock.passes(minutes=20)
    east.tick()
    assert world.state_of(submission) is SubmissionState.ACQUIRED
    world.clock.passes(minutes=20)
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    assert world.run_all() == ["flights"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
