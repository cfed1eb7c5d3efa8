"""Texts that are too long for an index of Postgres stop only what has them."""

import sqlalchemy as sa

from arctic_orchestration.schedules.checker import UNREADABLE_SCHEDULE
from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.tables import schedules
from arctic_orchestration_tests.noise import noise
from arctic_orchestration_tests.schedules.simulated import MakeWorld, at, schedule
from arctic_orchestration_tests.schedules.test_engine import job_rows


def test_a_stored_group_that_no_index_holds_stops_only_its_own_schedule(world: MakeWorld) -> None:
    """An earlier version stored it; on Postgres its row of the group would be refused."""
    group = [only.concurrency(1, group="g"), only.delay("5s")]
    here = world([schedule("long", constraints=group), schedule("good", target="other")])
    here.feed.arrive("raw/a", "1")
    assert here.tick(1) == ["run-1"]
    with here.database.begin() as tx:
        spec = tx.execute(sa.select(schedules.c.spec).where(schedules.c.name == "long")).scalar()
        longer = str(spec).replace('"group": "g"', f'"group": "{noise(6_000)}"')
        tx.execute(sa.update(schedules).where(schedules.c.name == "long").values(spec=longer))
    here.engine = here.new_engine()
    here.feed.arrive("raw/a", "2")
    here.dagster.end("run-1")
    assert here.tick(10) == ["run-2"]
    assert [row["reason"] for row in job_rows(here) if row["state"] == "waiting_constraints"] == [
        UNREADABLE_SCHEDULE
    ]
    with here.database.read() as tx:
        query = sa.select(schedules.c.problem).where(schedules.c.name == "long")
        problem = tx.execute(query).scalar_one()
    assert problem.startswith("spec.constraints[0].concurrency.group: ")
    assert problem.endswith("expected text of at most 1,000 bytes in UTF-8")


def test_the_tag_of_a_trigger_with_many_branches_is_short(world: MakeWorld) -> None:
    """An index of Dagster's tags would refuse the run; the stored job has the whole text."""
    many = [f"raw/{noise(24, n)}" for n in range(120)]
    here = world([schedule(trigger=on.all_of(*map(on.partitions, many)))])
    for asset in many:
        here.feed.arrive(asset, "1")
    (request,) = here.engine.tick(at(1)).requests
    tag = request.tags["arctic/trigger"]
    assert (len(tag), tag[-3:]) == (500, "...")
    (row,) = job_rows(here)
    assert many[-1] in row["launch"]
