"""Jobs that are canceled while they are launching, and the runs that appear nevertheless."""

from collections.abc import Callable, Sequence

import pytest

from arctic_orchestration.constraints import only
from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.scheduling import control
from arctic_orchestration.scheduling.schedule import Schedule
from arctic_orchestration_tests.scheduling.simulated import World, at
from arctic_orchestration_tests.scheduling.test_control import cancel, changing, job_rows, schedule

MakeWorld = Callable[[Sequence[Schedule]], World]


def alone(**fields: object) -> Schedule:
    """A schedule with one run at a time, and a job for each arrival."""
    return schedule("a", constraints=[only.concurrency(1)], coalesce=False, **fields)


def states(world: World) -> list[str]:
    return [row.state for row in job_rows(world)]


def test_a_job_whose_run_never_came_is_canceled(world: MakeWorld) -> None:
    """It is not requested again, and its place is free."""
    here = world([alone()])
    here.feed.arrive("raw/a", "1")
    here.tick_without_submitting(1)
    here.feed.arrive("raw/a", "2")
    here.tick_without_submitting(2)
    assert states(here) == ["launching", "waiting_constraints"]
    first, second = job_rows(here)
    assert cancel(here, first.id, 3).reason == "canceled by hand"
    assert here.tick(4) == ["run-1"]
    assert here.dagster.requests[0].job_id == second.id
    here.tick(5)
    assert states(here) == ["canceled", "launched"]
    with pytest.raises(TransitionRefused, match="it has ended at"):
        cancel(here, first.id, 6)


def test_a_run_that_comes_after_all_is_terminated_and_counts_until_then(world: MakeWorld) -> None:
    """Its request lay in a tick of Dagster while the job was canceled."""
    here = world([alone()])
    here.feed.arrive("raw/a", "1")
    late = here.engine.tick(at(1)).requests
    (job,) = job_rows(here)
    cancel(here, job.id, 2)
    here.tick(3)
    here.dagster.submit(late)
    assert here.engine.tick(at(4)).unwanted == ["run-1"]
    here.feed.arrive("raw/a", "2")
    assert here.tick(5) == []
    assert states(here) == ["canceled", "waiting_constraints"]
    here.dagster.end("run-1")
    assert here.engine.tick(at(6)).unwanted == []
    (canceled, waiting) = job_rows(here)
    assert (canceled.state, canceled.run_id) == ("canceled", None)
    assert waiting.state == "launching"


def test_a_run_that_a_person_starts_again_is_wanted(world: MakeWorld) -> None:
    """Executed again in Dagster, with the tags of the first, whose job was canceled."""
    here = world([alone()])
    here.feed.arrive("raw/a", "1")
    (request,) = here.engine.tick(at(1)).requests
    cancel(here, request.job_id, 2)
    again = {**request.tags, "dagster/parent_run_id": "run-0", "dagster/run_key": request.run_key}
    here.dagster.start("rollup", "again", tags=again)
    assert here.engine.tick(at(3)).unwanted == []


@pytest.mark.parametrize(
    ("ticks", "state"), [(1, "launching"), (2, "canceled")], ids=["requested once", "in vain"]
)
def test_suspending_cancels_what_was_requested_in_vain(
    world: MakeWorld, ticks: int, state: str
) -> None:
    """A run that was requested a moment ago is on its way, and comes."""
    here = world([alone()])
    here.feed.arrive("raw/a", "1")
    for seconds in range(ticks):
        here.tick_without_submitting(1 + seconds)
    with changing(here) as (tx, store, place):
        control.suspend(tx, store, place, "a", at(5))
    assert states(here) == [state]
    assert len(here.tick(6)) == (1 if state == "launching" else 0)
