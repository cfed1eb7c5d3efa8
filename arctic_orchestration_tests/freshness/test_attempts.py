"""What counts as an attempt of a task, and the pause between two of them."""

from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness.run_requests import TOKEN_TAG
from arctic_orchestration.freshness.run_start import step_begun
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration_tests.freshness.imagined import Place, Run, World, spec


def _fails(place: Place, *, started: bool = True, why: str | None = None) -> None:
    """The one run that waits fails."""
    (run,) = place.waiting_runs()
    place.runs.becomes(run.run_id, RunStatus.FAILURE, started=started, why=why)


@pytest.mark.parametrize("kind", ["asset", "job"])
def test_a_run_that_could_not_start_is_no_attempt(world: World, kind: str) -> None:
    """A task without retries is requested again after 1, 2 and 4 minutes, and made."""
    east = world.place(spec("flights", kind=kind))
    (submission,) = east.submit("flights")
    for number, minutes in enumerate((1, 2, 4), start=1):
        east.tick()
        _fails(east, started=False, why="no node")
        east.tick()
        waiting = world.again(submission)
        assert waiting.state is SubmissionState.RETRYING
        assert waiting.reason == (
            f"run east-lake-{number} could not start: no node; again, {number} of 3 times, "
            f"in {minutes}m"
        )
        assert waiting.next_check_at == world.clock.now + timedelta(minutes=minutes)
        assert world.row("flights").owner is None
        world.clock.passes(minutes=minutes)
    assert world.run_all() == ["flights"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_task_whose_runs_never_start_fails_in_the_end(world: World) -> None:
    """The fourth was the last, also of a task with retries; the reason says what happened."""
    east = world.place(spec("flights", retries=5))
    (submission,) = east.submit("flights")
    for _ in range(4):
        east.tick()
        _fails(east, started=False)
        east.tick()
        world.clock.passes(minutes=4)
    assert world.run_all() == []
    ended = world.again(submission)
    assert ended.state is SubmissionState.FAILED
    assert ended.reason == "run east-lake-4 could not start; it was requested again 3 times"


def test_a_run_that_fails_after_one_that_did_not_start_is_the_first_attempt(world: World) -> None:
    """Of two, as the task has one retry."""
    east = world.place(spec("flights", retries=1))
    (submission,) = east.submit("flights")
    east.tick()
    _fails(east, started=False)
    east.tick()
    world.clock.passes(minutes=1)
    east.tick()
    _fails(east)
    east.tick()
    assert world.again(submission).reason == "attempt 1 of 2: run east-lake-2 failed; again"


def test_the_reason_of_a_failure_is_dagsters_own(world: World) -> None:
    """Of an attempt that is repeated, and of the last one."""
    east = world.place(spec("flights", retries=1))
    (submission,) = east.submit("flights")
    east.tick()
    _fails(east, why="step flights: ValueError: no such airport")
    east.tick()
    reason = "run east-lake-1 failed: step flights: ValueError: no such airport"
    assert world.again(submission).reason == f"attempt 1 of 2: {reason}; again"
    east.tick()
    _fails(east, why="step flights: KeyError: 'JFK'")
    east.tick()
    assert world.again(submission).reason == "run east-lake-2 failed: step flights: KeyError: 'JFK'"


def test_a_log_that_cannot_be_read_leaves_a_failure_a_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it failed is known; why, is not."""
    east = world.place(spec("flights"))
    (submission,) = east.submit("flights")
    east.tick()

    def broken(run_id: str) -> str:
        raise RuntimeError("no log")

    monkeypatch.setattr(east.runs, "why_failed", broken)
    _fails(east)
    east.tick()
    assert world.again(submission).reason == "run east-lake-1 failed"


def test_a_pause_lies_between_a_failed_run_and_the_next(world: World) -> None:
    """Nothing is held meanwhile, and the next attempt begins when it is over."""
    night: dict[str, Any] = {"batch": "night", "concurrency": 1}
    east = world.place(
        spec("flights", retries=1, retry_delay="10m", **night), spec("other", **night)
    )
    (submission,), (other,) = east.submit("flights"), east.submit("other")
    east.tick()
    _fails(east)
    east.tick()
    waiting = world.again(submission)
    assert waiting.state is SubmissionState.RETRYING
    assert waiting.reason == "attempt 1 of 2: run east-lake-1 failed; again in 10m"
    assert world.row("flights").owner is None
    assert world.run_all() == ["other"]
    assert world.state_of(other) is SubmissionState.SUCCEEDED
    world.clock.passes(minutes=9, seconds=59)
    assert world.run_all() == []
    world.clock.passes(seconds=1)
    assert world.run_all() == ["flights"]
    ended = world.again(submission)
    assert (ended.state, ended.attempt) == (SubmissionState.SUCCEEDED, 2)
    assert world.steps(submission)[3:6] == [Step.AGAIN, Step.ACQUIRED, Step.REQUESTED]


def test_who_submits_during_the_pause_shares_the_next_attempt(world: World) -> None:
    """Ten submissions on two clusters are two runs, which is what the task says."""
    flights = spec("flights", retries=1, retry_delay="10m")
    east, west = (world.place(flights, cluster=name) for name in ("east", "west"))
    (first,), (during,) = east.submit("flights"), west.submit("flights")
    east.tick()
    west.tick()
    assert world.state_of(during) is SubmissionState.SHARING
    _fails(east)
    east.tick()
    later = [place.submit("flights")[0] for place in (east, west) * 4]
    assert world.run_all() == []
    reason = f"shares the next attempt of submission {first.id} of cluster east, location lake, "
    assert {world.again(one).reason for one in (during, *later)} == {
        f"{reason}at 2026-01-01 12:10:00Z"
    }
    world.clock.passes(minutes=10)
    east.tick()
    _fails(east)
    world.clock.passes(seconds=10)
    assert world.run_all() == []
    assert {world.state_of(one) for one in (first, during, *later)} == {SubmissionState.FAILED}
    assert (len(east.runs.known), len(west.runs.known)) == (2, 0)


def test_a_pause_of_a_location_that_is_away_is_not_waited_for(world: World) -> None:
    """A minute after its end, another cluster makes the task; the first one finds it fresh."""
    flights = spec("flights", retries=1, retry_delay="10m")
    east, west = (world.place(flights, cluster=name) for name in ("east", "west"))
    (first,) = east.submit("flights")
    east.tick()
    _fails(east)
    east.tick()
    (other,) = west.submit("flights")
    west.tick()
    assert world.state_of(other) is SubmissionState.SHARING
    world.clock.passes(minutes=10, seconds=50)
    west.tick()
    assert world.state_of(other) is SubmissionState.SHARING
    world.clock.passes(seconds=11)
    west.tick()
    assert west.make_all() == ["flights"]
    assert world.run_all() == []
    assert world.state_of(other) is SubmissionState.SUCCEEDED
    assert world.state_of(first) is SubmissionState.FRESH


def _raised(place: Place) -> tuple[Submission, Run]:
    """A step of a task's run has raised, and Dagster is to retry it."""
    (submission,) = place.submit("flights")
    place.tick()
    (run,) = place.waiting_runs()
    with pytest.raises(ValueError, match="no rows"), ExitStack() as stack:
        place.begin(run, stack)
        raise ValueError("no rows yet")
    return submission, run


def test_a_step_that_dagster_retries_after_a_pause_keeps_its_task(world: World) -> None:
    """A retry policy with a pause of two leases: one run, which no other takes over."""
    east = world.place(spec("flights"))
    west = world.place(spec("flights"), cluster="west")
    submission, run = _raised(east)
    (other,) = west.submit("flights")
    for _ in range(6):
        world.clock.passes(seconds=20)
        east.tick()
        west.tick()
    assert world.state_of(submission) is SubmissionState.RUNNING
    assert world.state_of(other) is SubmissionState.SHARING
    east.make(run)
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
    assert [*east.runs.known, *west.runs.known] == [run.run_id]


def test_a_run_that_is_killed_after_a_retry_has_begun_is_silent_after_its_lease(
    world: World,
) -> None:
    """The exception before it is over."""
    east = world.place(spec("flights"))
    submission, run = _raised(east)
    world.clock.passes(seconds=50)
    east.tick()
    with ExitStack() as stack:
        east.begin(run, stack)
    world.clock.passes(seconds=61)
    east.tick()
    assert world.again(submission).reason.startswith(f"run {run.run_id} was silent until")
    assert len(east.runs.known) == 2


def test_a_run_that_raised_and_never_ends_is_silent_after_an_hour(world: World) -> None:
    """Its process was killed before Dagster stored the failure."""
    east = world.place(spec("flights"))
    submission, run = _raised(east)
    world.clock.passes(seconds=20)
    east.tick()
    for _ in range(3):
        world.clock.passes(minutes=20, seconds=-1)
        east.tick()
        assert world.state_of(submission) is SubmissionState.RUNNING
    world.clock.passes(minutes=2)
    east.tick()
    assert world.again(submission).reason.startswith(f"run {run.run_id} was silent until")
    assert len(east.runs.known) == 2


def test_the_run_of_a_job_that_becomes_an_asset_meanwhile_goes_on(world: World) -> None:
    """It never begins as an asset does; its op works for 20 minutes, and the task is made once."""
    east = world.place(spec("report", kind="job", retries=1))
    (submission,) = east.submit("report")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    problem = step_begun(
        world.state, submission=submission.id, token=int(run.tags[TOKEN_TAG]), run_id=run.run_id,
        outcomes=world.outcomes,
    )  # fmt: skip
    assert problem is None
    east.deployed([spec("report", retries=1)])
    for _ in range(40):
        world.clock.passes(seconds=30)
        east.tick()
    assert list(east.runs.known) == [run.run_id]
    east.runs.becomes(run.run_id, RunStatus.SUCCESS)
    east.tick()
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
