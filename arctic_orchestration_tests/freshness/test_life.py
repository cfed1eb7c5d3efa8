"""The life of a task, from its submission to its end, each step with its reason."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime

import pytest

from arctic_orchestration import clock
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness.ended_submissions import ending
from arctic_orchestration.freshness.run_reconciler import BEGINS_WITHIN
from arctic_orchestration.freshness.run_start import step_begun
from arctic_orchestration.freshness.status import Step, events_of
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.freshness.imagined import Run, Runs, World, spec
from arctic_orchestration_tests.present import present


def test_a_task_without_parents_is_acquired_run_and_published(world: World) -> None:
    """The whole life, and what each step left behind."""
    east = world.place(spec("flights"))
    (submission,) = east.submit("flights")
    first = east.tick()
    again = east.tick()

    assert [request.run_key for request in first.requests] == [f"{submission.id}-1"]
    # It is requested until it is seen, and seen by the next tick.
    assert again.requests == []
    row = world.row("flights")
    assert (row.token, row.run_id, row.submission) == (1, "east-lake-1", submission.id)
    assert east.make_all() == ["flights"]
    ended = world.again(submission)
    assert ended.state is SubmissionState.SUCCEEDED
    assert ended.ended_at == world.clock.now
    row = world.row("flights")
    assert (row.owner, row.last_success_at, row.last_token) == (None, world.clock.now, 1)
    assert (row.last_success_run, row.last_success_cluster) == ("east-lake-1", "east")
    assert world.steps(submission) == [
        Step.SUBMITTED, Step.ACQUIRED, Step.REQUESTED, Step.BEGUN, Step.PUBLISHED,
    ]  # fmt: skip


def test_a_task_is_acquired_before_its_run_is_requested(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a tick that lasts beyond midnight, a run for the partition of before would be a success of
    the new day: what ends later counts from its acquisition."""
    east = world.place(spec("delays", ["raw"]))
    east.submit("delays")

    def slowly(names: Sequence[str]) -> Mapping[str, datetime]:
        world.clock.passes(seconds=2)
        return dict.fromkeys(names, world.clock.now)

    monkeypatch.setattr(east.assets, "materialized_at", slowly)
    result = east.tick()
    assert [request.task for request in result.requests] == ["delays"]
    assert result.now == world.row("delays").acquired_at


def test_a_task_that_is_fresh_is_not_run(world: World) -> None:
    """Made today, for a task that is to be of today."""
    east = world.place(spec("flights"))
    world.made("flights", hours=2)
    (submission,) = east.submit("flights")
    assert east.tick().requests == []
    ended = world.again(submission)
    assert ended.state is SubmissionState.FRESH
    assert ended.reason == "made 2h ago by run before of cluster east"


def test_a_stale_parent_of_the_location_is_submitted_and_waited_for(world: World) -> None:
    """The child's need of it is the parent's, and the end of the parent wakes the child."""
    east = world.place(spec("flights"), spec("delays", {"flights": 24}))
    world.made("flights", hours=25)
    (submission,) = east.submit("delays")
    assert [one.task for one in east.tick().requests] == ["flights"]
    waiting = world.again(submission)
    assert waiting.state is SubmissionState.WAITING
    assert waiting.reason == (
        "waits for flights (made 1d1h ago, to be at most 24 hours old), which is submitted for it"
    )
    world.clock.passes(seconds=10)
    east.tick()
    assert world.again(submission).reason == (
        "waits for flights (made 1d1h10s ago, to be at most 24 hours old), which was submitted for "
        "it, and is acquired"
    )
    assert world.run_all() == ["flights", "delays"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
    assert world.steps(submission)[:3] == [Step.SUBMITTED, Step.WAITS_FOR_PARENTS, Step.ACQUIRED]


def test_ten_submissions_on_two_clusters_run_once_and_nine_say_whose_run_they_share(
    world: World,
) -> None:
    """Both clusters declare the task; whoever is first makes it."""
    east = world.place(spec("flights"), cluster="east")
    west = world.place(spec("flights"), cluster="west")
    submitted = [one for place in (east, west) * 5 for one in place.submit("flights")]
    east.tick()
    west.tick()
    owners = [one for one in submitted if world.state_of(one) is SubmissionState.ACQUIRED]
    assert len(owners) == 1
    east.tick()
    world.clock.passes(seconds=10)
    west.tick()
    east.tick()
    reason = "shares run east-lake-1 of cluster east, location lake "
    reason += f"(submission {owners[0].id}, token 1)"
    shares = [world.again(one) for one in submitted if one.id != owners[0].id]
    assert [one.reason for one in shares] == [reason] * 9
    assert {one.shares for one in shares} == {owners[0].id}

    assert world.run_all() == ["flights"]
    assert len(east.runs.known) + len(west.runs.known) == 1
    ends = [world.again(one) for one in shares]
    assert {one.state for one in ends} == {SubmissionState.FRESH}
    assert {one.reason for one in ends} == {
        f"made 0s ago by run east-lake-1 of cluster east, which it shared with submission "
        f"{owners[0].id}"
    }


def test_a_run_that_is_canceled_is_not_repeated(world: World) -> None:
    """Whoever canceled it did not want another one."""
    east = world.place(spec("flights", retries=3))
    (submission,) = east.submit("flights")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.CANCELED)
    assert world.run_all() == []
    assert world.state_of(submission) is SubmissionState.CANCELED
    assert world.row("flights").owner is None


def test_a_job_that_knows_nothing_of_tasks_is_renewed_and_published_by_ticks(world: World) -> None:
    """For as long as Dagster says that it runs; and published when it says that it succeeded."""
    east = world.place(spec("report", kind="job"))
    (submission,) = east.submit("report")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    for _ in range(60):
        world.clock.passes(seconds=30)
        east.tick()
        assert world.row("report").is_held(world.clock.now)
    east.runs.becomes(run.run_id, RunStatus.SUCCESS)
    east.tick()
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
    assert world.row("report").last_success_run == run.run_id


def test_a_job_that_ended_while_no_tick_looked_is_as_old_as_its_last_renewal(world: World) -> None:
    """The daemon was down for nine hours: what is needed of the last hour is made again."""
    east = world.place(spec("report", kind="job", freshness_hours=1))
    (first,) = east.submit("report")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    world.clock.passes(seconds=30)
    east.tick()
    renewed_at = world.clock.now
    east.runs.becomes(run.run_id, RunStatus.SUCCESS)
    world.clock.passes(hours=9)
    (second,) = east.submit("report")
    assert [request.submission for request in east.tick().requests] == [second.id]
    assert world.state_of(first) is SubmissionState.SUCCEEDED
    assert world.row("report").last_success_at == renewed_at
    with world.state.read() as tx:
        shown = present(ending(tx, first.id))
    assert (shown.at, present(shown.success).at) == (world.clock.now, renewed_at)


def test_the_first_step_of_a_job_reports_that_its_run_has_begun(world: World) -> None:
    """Once, and the ticks go on renewing; one with a token that is over tells nothing."""
    east = world.place(spec("report", kind="job"))
    (submission,) = east.submit("report")
    east.tick()
    (run,) = east.waiting_runs()

    def step(token: int, run_id: str = run.run_id) -> str | None:
        return step_begun(
            world.state,
            submission=submission.id,
            token=token,
            run_id=run_id,
            outcomes=world.outcomes,
        )

    assert str(step(2)).startswith(f"task report: token 2 of {submission.id}-1 ")
    assert world.state_of(submission) is SubmissionState.ACQUIRED
    assert step(1) is None
    assert step(1) is None
    assert step(1, "again") == f"task report: token 1 is used by run {run.run_id}"
    assert world.state_of(submission) is SubmissionState.RUNNING
    with world.state.read() as tx:
        steps = [one.step for _, one in events_of(tx, task="report")]
    assert steps == ["submitted", "acquired", "requested", "begun"]
    assert world.row("report").run_id == run.run_id
    for _ in range(4):
        world.clock.passes(seconds=30)
        east.tick()
        assert world.row("report").is_held(world.clock.now)
    east.runs.becomes(run.run_id, RunStatus.SUCCESS)
    east.tick()
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_run_that_reports_while_it_is_looked_up_is_not_gone(world: World) -> None:
    """Dagster did not know it yet when it was asked; it does when the next tick asks."""
    east = world.place(spec("report", kind="job"))
    (submission,) = east.submit("report")
    (request,) = east.lifecycle.tick().requests
    # Its lease is to be renewed, so that the tick has something to write.
    world.clock.passes(seconds=30)

    class Late(Runs):
        def runs_by_tag(self, key: str, values: Sequence[str]) -> Mapping[str, Sequence[Run]]:
            found = super().runs_by_tag(key, values)
            self.request_run(request)
            (run_id,) = self.known
            problem = step_begun(
                world.state,
                submission=submission.id,
                token=1,
                run_id=run_id,
                outcomes=world.outcomes,
            )
            assert problem is None
            return found

    east.lifecycle.runs = Late(prefix="late")
    east.lifecycle.tick()
    found = world.again(submission)
    assert (found.state, found.attempt, found.run_id) == ("running", 1, "late-1")


def test_an_asset_that_never_begins_as_a_task_is_given_up(world: World) -> None:
    """Its process has died before it could say anything, and Dagster does not watch."""
    east = world.place(spec("flights"))
    (submission,) = east.submit("flights")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    east.tick()
    world.clock.passes(minutes=14, seconds=59)
    east.tick()
    assert world.state_of(submission) is SubmissionState.ACQUIRED
    # It is looked at when its lease is to be renewed.
    world.clock.passes(seconds=21)
    east.tick()
    assert world.again(submission).reason == f"run {run.run_id} has not begun as a task"


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.STARTED])
def test_a_run_that_was_deleted_in_dagster_is_a_failure(world: World, status: RunStatus) -> None:
    """It will never say so itself, and its task is not held for ever; it is made again."""
    east = world.place(spec("report", kind="job", retries=1))
    (submission,) = east.submit("report")
    east.tick()
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, status)
    east.tick()
    del east.runs.known[run.run_id]
    east.tick()
    again = world.again(submission)
    assert again.state is SubmissionState.ACQUIRED
    assert again.reason == "attempt 1 of 2: run east-lake-1 is gone from Dagster's storage; again"
    # Until a run was seen, there is none that could be gone.
    east.lifecycle.tick()
    world.clock.passes(minutes=5)
    east.lifecycle.tick()
    assert world.state_of(submission) is SubmissionState.ACQUIRED
    assert world.run_all() == ["report"]
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_run_whose_tags_are_gone_is_known_by_its_id(world: World) -> None:
    """Another task of the same run has written its own over them."""
    east = world.place(spec("report", kind="job"))
    (submission,) = east.submit("report")
    east.tick()
    east.tick()
    (run,) = east.waiting_runs()
    tags = {**run.tags, "arctic/submission": "another"}
    east.runs.known[run.run_id] = replace(run, tags=tags, status=RunStatus.SUCCESS)
    east.tick()
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_run_that_has_begun_is_not_given_up_any_more(world: World) -> None:
    """And nothing says until when it would have been."""
    east = world.place(spec("flights"))
    (submission,) = east.submit("flights")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.STARTED)
    east.tick()
    assert world.again(submission).deadline_at == world.clock.now + BEGINS_WITHIN
    with ExitStack() as stack:
        east.begin(run, stack)
        assert world.again(submission).deadline_at is None


def test_no_clock_of_the_process_is_read(state: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However wrong it is, nothing depends on it: time is the database's."""

    class UnusableClock:
        def now(self, zone: object = None) -> None:
            raise AssertionError("the clock of the process was asked")

    monkeypatch.setitem(vars(clock), "datetime", UnusableClock())
    monkeypatch.setattr(time, "time", lambda: 0.0)
    world = World(state)
    world.clock = database_time  # type: ignore[assignment]
    east = world.place(spec("flights", freshness_hours=24), spec("delays", {"flights": 24}))
    (submission,) = east.submit("delays")
    assert world.run_all() == ["flights", "delays"]
    (again,) = east.submit("flights")
    assert world.run_all() == []
    assert world.state_of(submission) is SubmissionState.SUCCEEDED
    assert world.state_of(again) is SubmissionState.FRESH


def test_the_history_is_a_stream(world: World) -> None:
    """Who has read up to an id reads on from there."""
    east = world.place(spec("flights"))
    east.submit("flights")
    with world.state.read() as tx:
        seen = events_of(tx)
    east.tick()
    with world.state.read() as tx:
        new = events_of(tx, after=seen[-1][0])
    assert [event.step for _, event in new] == [Step.ACQUIRED, Step.REQUESTED]
