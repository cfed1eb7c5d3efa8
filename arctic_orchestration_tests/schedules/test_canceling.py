"""Jobs that are canceled while they are launching, and the runs that appear nevertheless."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.run_claims import claim
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at, schedule
from arctic_orchestration_tests.schedules.test_control import cancel, changing, job_rows


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
    assert cancel(here, first.id, 3).reason == "canceled manually"
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
def test_suspending_cancels_requests_without_run(world: MakeWorld, ticks: int, state: str) -> None:
    """A run that was requested a moment ago is on its way, and comes."""
    here = world([alone()])
    here.feed.arrive("raw/a", "1")
    for seconds in range(ticks):
        here.tick_without_submitting(1 + seconds)
    with changing(here) as (tx, store, place):
        control.suspend(tx, store, place, "a", at(5))
    assert states(here) == [state]
    assert len(here.tick(6)) == (1 if state == "launching" else 0)


def test_a_run_that_began_is_not_canceled_with_its_job(world: MakeWorld) -> None:
    """The run has claimed the job, and no tick has seen it yet; the message names it."""
    here = world([alone()])
    here.feed.arrive("raw/a", "1")
    (request,) = here.engine.tick(at(1)).requests
    with here.database.begin() as tx:
        assert claim(tx, request.job_id, "run-9") is None
    with pytest.raises(TransitionRefused, match="launching, with run run-9. Terminate the run in"):
        cancel(here, request.job_id, 2)


def test_a_run_of_a_canceled_job_does_not_begin(world: MakeWorld) -> None:
    """Its claim is refused with the reason."""
    here = world([alone()])
    here.feed.arrive("raw/a", "1")
    (request,) = here.engine.tick(at(1)).requests
    cancel(here, request.job_id, 2)
    with here.database.begin() as tx:
        refusal = claim(tx, request.job_id, "run-9")
    assert refusal is not None
    assert (refusal.state, refusal.reason) == ("canceled", "canceled manually")


@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_claim_and_a_cancellation_at_once_do_not_both_succeed(world: MakeWorld) -> None:
    """The cancellation waits for the run's transaction, and then sees its claim."""
    here = world([alone()])
    here.feed.arrive("raw/a", "1")
    (request,) = here.engine.tick(at(1)).requests
    with ThreadPoolExecutor(1) as beside:
        with here.database.begin() as tx:
            assert claim(tx, request.job_id, "run-9") is None
            canceled = beside.submit(cancel, here, request.job_id, 2)
            until(lambda: waits_for_a_lock(here), "the cancellation waits")
        with pytest.raises(TransitionRefused, match="with run run-9"):
            canceled.result()
    assert states(here) == ["launching"]


def waits_for_a_lock(here: World) -> bool:
    with here.database.read() as tx:
        return bool(tx.execute(sa.text("select count(*) from pg_locks where not granted")).scalar())
