"""A stored row that cannot be read stops nothing but its own schedule."""

from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.inventory import Inventory
from arctic_orchestration.schedules.lookup import location_by_name
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.views.explanation import explain_schedule
from arctic_orchestration.schedules.views.listing import list_jobs, list_schedules
from arctic_orchestration.schedules.views.schedule_filter import ScheduleFilter
from arctic_orchestration.state.tables import jobs, schedules
from arctic_orchestration_tests.schedules.simulated import MakeWorld, World, at

IS_ODD = schedules.c.name == "odd"


def two(world: MakeWorld) -> World:
    """A schedule whose job waits for a second partition, and one beside it."""
    trigger = on.partitions("raw/b", count=2) | on.cron("0 4 * * *")
    here = world(
        [
            Schedule(name="odd", target="odd", trigger=trigger, enabled=True),
            Schedule(name="good", target="good", trigger=on.partitions("raw/a"), enabled=True),
        ]
    )
    here.feed.arrive("raw/b", "1")
    here.tick(1)
    return here


def launched(here: World) -> list[str]:
    return [request.target.job or "" for request in here.dagster.requests]


@pytest.mark.parametrize("spec", ["{", "[]", "null", "3"])
def test_a_definition_that_is_no_mapping_stops_its_schedule_alone(
    world: MakeWorld, spec: str
) -> None:
    """The other one goes on, at events and at the tick of the odd one; the list has both."""
    here = two(world)
    with here.database.begin() as tx:
        tx.execute(sa.update(schedules).where(IS_ODD).values(spec=spec))
    here.engine = here.new_engine()
    here.feed.arrive("raw/a", "1")
    here.feed.arrive("raw/b", "2")
    here.tick(5)
    here.tick(4 * 3600)
    assert launched(here) == ["good"]
    with here.database.read() as tx:
        place = location_by_name(tx, "default", "here")
        listed = list_schedules(tx, ScheduleStore(), place).listed
        problems = [problem for (problem,) in tx.execute(sa.select(schedules.c.problem))]
    assert {one.row.name: one.schedule is None for one in listed} == {"good": False, "odd": True}
    assert sum(problem is not None for problem in problems) == 1


@pytest.mark.parametrize("spec", ["{", "[]"])
def test_new_code_failed_runs_and_people_go_on_beside_such_a_definition(
    world: MakeWorld, spec: str
) -> None:
    """A deployment with another inventory, a run of the odd one that fails, filters, a deletion."""
    here = two(world)
    here.feed.arrive("raw/b", "2")
    (run,) = here.tick(2)
    here.tick(3)
    with here.database.begin() as tx:
        manual = {"origin": "api", "declared_digest": None}
        tx.execute(sa.update(schedules).where(IS_ODD).values(spec=spec, **manual))
    here.engine = here.new_engine()
    here.engine.inventory = Inventory(jobs=frozenset({"good", "odd"}))
    here.dagster.end(run, RunStatus.FAILURE)
    here.feed.arrive("raw/a", "1")
    here.tick(5)
    assert launched(here) == ["odd", "good"]
    with here.database.begin() as tx:
        place, store = location_by_name(tx, "default", "here"), ScheduleStore()
        assert tx.execute(sa.select(jobs.c.state).where(jobs.c.run_id == run)).scalar() == "failed"
        assert explain_schedule(tx, store, place, "good", at(5)).schedule.name == "good"
        listed = list_schedules(tx, store, place, ScheduleFilter(name="*o*")).listed
        assert [one.row.name for one in listed] == ["good", "odd"]
        control.delete(tx, store, place, "odd", at(5))


def test_a_deployment_leaves_out_the_name_of_such_a_definition_that_was_made_manually(
    world: MakeWorld,
) -> None:
    """What the code declares under it stays out; the other schedule goes on."""
    here = two(world)
    with here.database.begin() as tx:
        manual = {"origin": "api", "declared_digest": None}
        tx.execute(sa.update(schedules).where(IS_ODD).values(spec="{", **manual))
    odd, good = here.schedules
    here.schedules = [odd, good.model_copy(update={"description": "anew"})]
    here.engine = here.new_engine()
    here.feed.arrive("raw/a", "1")
    deployed = here.engine.tick(at(5))
    assert (deployed.counts["name_taken"], deployed.counts["updated"]) == (1, 1)
    here.feed.arrive("raw/a", "2")
    here.tick(6)
    assert launched(here) == ["good"]


@pytest.mark.parametrize("arrivals", ["[", "3", "[[1]]", "[]", '[[1, 1, 0, "x", "y"], []]'])
def test_a_job_whose_arrivals_cannot_be_read_is_discarded(world: MakeWorld, arrivals: str) -> None:
    """The other schedule goes on, and its own with a job that counts anew."""
    here = two(world)
    with here.database.begin() as tx:
        tx.execute(sa.update(jobs).values(arrivals=arrivals))
    with here.database.read() as tx:
        list_jobs(tx, location_by_name(tx, "default", "here"))
    here.feed.arrive("raw/a", "1")
    here.feed.arrive("raw/b", "2")
    here.tick(5)
    assert launched(here) == ["good"]
    here.feed.arrive("raw/b", "3")
    here.tick(6)
    assert launched(here) == ["good", "odd"]
    with here.database.read() as tx:
        rows: list[Any] = list(tx.execute(sa.select(jobs).order_by(jobs.c.created_at)).all())
    assert (rows[0].state, rows[0].reason) == (
        "discarded",
        "what it has counted cannot be read: another version of the package wrote it",
    )


def test_a_launched_job_needs_no_arrivals(world: MakeWorld) -> None:
    """Its run ends it as any other."""
    here = two(world)
    here.feed.arrive("raw/b", "2")
    (run,) = here.tick(2)
    here.tick(3)
    with here.database.begin() as tx:
        tx.execute(sa.update(jobs).values(arrivals="["))
    here.dagster.end(run)
    here.tick(4)
    with here.database.read() as tx:
        assert tx.execute(sa.select(jobs.c.state)).scalars().all() == ["succeeded"]
