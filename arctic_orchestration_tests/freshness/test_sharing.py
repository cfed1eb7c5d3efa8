"""Submissions of a task that is being made already: they share its run, and its failure."""

import pytest

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration_tests.freshness.imagined import Place, World, spec


def _fail(place: Place) -> None:
    """The one run that waits fails."""
    (run,) = place.waiting_runs()
    place.runs.becomes(run.run_id, RunStatus.FAILURE)


@pytest.mark.parametrize("concurrency", [None, 1, 2])
def test_ten_submissions_of_a_task_that_fails_are_one_run(
    world: World, concurrency: int | None
) -> None:
    """Also while the task itself takes the last place of its batch."""
    east = world.place(spec("flights", batch="night", concurrency=concurrency))
    submitted = [one for _ in range(10) for one in east.submit("flights")]
    east.tick()
    east.tick()
    _fail(east)
    assert world.run_all() == []
    assert [run.run_id for run in east.runs.known.values()] == ["east-lake-1"]
    assert [world.state_of(one) for one in submitted] == [SubmissionState.FAILED] * 10
    assert [world.steps(one)[-1] for one in submitted].count(Step.SHARED_FAILURE) == 9


def test_a_failure_is_shared_by_all_that_waited_for_a_place_at_the_time(world: World) -> None:
    """The place became free, and the task was made and failed, between two ticks of the other."""
    night = [spec(name, batch="night", concurrency=1) for name in ("before", "flights")]
    east, west = (world.place(*night, cluster=name) for name in ("east", "west"))
    east.submit("before")
    east.tick()
    (first,), (second,) = east.submit("flights"), west.submit("flights")
    east.tick()
    west.tick()
    assert world.steps(second)[-1] is Step.WAITS_FOR_PLACE
    assert east.make_all() == ["before"]
    east.tick()
    world.clock.passes(seconds=5)
    _fail(east)
    east.tick()
    assert world.state_of(first) is SubmissionState.FAILED
    assert world.run_all() == []
    assert world.again(second).reason == (
        "shared run east-lake-2 of cluster east, location lake, which failed: run east-lake-2 "
        "failed"
    )
    assert west.runs.known == {}


def test_a_failure_is_shared_by_what_was_submitted_while_the_task_was_made(world: World) -> None:
    """No tick came in between; what is submitted after the failure is another attempt."""
    east = world.place(spec("flights"))
    east.submit("flights")
    east.tick()
    (during,) = east.submit("flights")
    world.clock.passes(seconds=5)
    _fail(east)
    east.lifecycle.tick()
    assert world.state_of(during) is SubmissionState.FAILED
    (after,) = east.submit("flights")
    assert world.run_all() == ["flights"]
    assert world.state_of(after) is SubmissionState.SUCCEEDED


def test_a_failure_from_before_its_parents_were_fresh_is_not_shared(world: World) -> None:
    """What waited for its parents meanwhile had not come to the point of being made."""
    east = world.place(
        spec("flights", kind="job"), spec("delays", {"flights": 2.0}), cluster="east"
    )
    world.made("flights", hours=1)
    east.submit("delays")
    east.tick()
    world.clock.passes(minutes=70)
    (other,) = east.submit("delays")
    east.tick()
    assert world.state_of(other) is SubmissionState.WAITING
    run = next(run for run in east.waiting_runs() if run.request.task == "delays")
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    assert world.run_all() == ["flights", "delays"]
    assert world.state_of(other) is SubmissionState.SUCCEEDED


def test_taking_over_a_silent_run_takes_no_place_besides(world: World) -> None:
    """The task that is taken over has its place already."""
    night = [spec(name, batch="night", concurrency=1) for name in ("flights", "other")]
    east, west = (world.place(*night, cluster=name) for name in ("east", "west"))
    east.submit("flights")
    east.tick()
    (second,), (other,) = west.submit("flights"), west.submit("other")
    west.tick()
    assert world.state_of(second) is SubmissionState.SHARING
    world.clock.passes(seconds=71)
    west.tick()
    assert world.state_of(second) is SubmissionState.ACQUIRED
    assert world.state_of(other) is SubmissionState.WAITING
