"""Proof on both databases: jobs that were held together are not let go together.

A schedule with ``coalesce: false`` and a limit of one has a job for each partition. Whatever
held them, they then run one after another, in the order of their arrival. ``ARCTIC_PROOF=full``
holds 300 jobs, by default 20.
"""

import os
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from arctic_orchestration import Schedule, on, only
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import job_events, jobs
from arctic_orchestration_tests.schedules.simulated import World, at

pytestmark = pytest.mark.proof

JOBS = 300 if os.environ.get("ARCTIC_PROOF") == "full" else 20
#: when what holds the jobs lets go of them
_OPEN = 3600.0


def _waiting(database: Database) -> int:
    query = sa.select(sa.func.count()).where(jobs.c.state == "waiting_constraints")
    with database.read() as tx:
        return tx.execute(query).scalar_one()


def _switch(world: World, act: Callable[..., object], seconds: float) -> None:
    with world.database.begin() as tx:
        location = locations.locked(tx, "default", "here")
        act(tx, world.engine.store, location, "piecewise", at(seconds))


@pytest.mark.parametrize("held_by", ["a closed window", "a suspension", "a run of the target"])
def test_a_held_backlog_runs_one_after_another(database: Database, held_by: str) -> None:
    """Each job is one partition, begins when the one before has ended, and none is left out."""
    piecewise = Schedule(
        name="piecewise",
        target="rollup",
        trigger=on.partitions("raw/a"),
        constraints=[
            only.concurrency(1),
            *([only.window("01:00", "00:00")] if held_by == "a closed window" else []),
        ],
        coalesce=False,
        suspend_mode="backlog",
        enabled=True,
    )
    world = World(database, [piecewise])
    world.tick(0)
    if held_by == "a suspension":
        _switch(world, control.suspend, 0)
    elif held_by == "a run of the target":
        world.dagster.start("rollup", "by hand")
    world.tick(1)
    for number in range(JOBS):
        world.feed.arrive("raw/a", str(number), moment=at(2))
        if number % 7 == 0:
            assert world.tick(2 + number) == []
    assert world.tick(_OPEN - 1) == []
    assert _waiting(database) == JOBS

    if held_by == "a suspension":
        _switch(world, control.enable, _OPEN)
    elif held_by == "a run of the target":
        world.dagster.end("by hand", ended_at=at(_OPEN))
    launched: list[str] = []
    seconds, active = _OPEN, ""
    while len(launched) < JOBS:
        made = world.tick(seconds)
        assert len(made) <= (not active), "a second run beside one that is active"
        if made:
            launched += made
            active = made[0]
            # Nothing more begins while the run goes on.
            assert world.tick(seconds + 1) == []
        elif active:
            world.dagster.end(active, ended_at=at(seconds))
            active = ""
        else:
            raise AssertionError(f"nothing runs, and {_waiting(database)} jobs wait")
        seconds += 10
    assert _waiting(database) == 0
    assert _partitions(world, launched) == [str(number) for number in range(JOBS)]


def _partitions(world: World, run_ids: list[str]) -> list[str]:
    """The partitions of runs, in the order in which the runs began."""
    job_ids = [world.dagster.runs[id].tags["arctic/job"] for id in run_ids]
    with world.database.read() as tx:
        rows = tx.execute(sa.select(job_events.c.job_id, job_events.c.partition)).all()
    of_job = {row.job_id: row.partition for row in rows}
    assert len(rows) == len(of_job) == JOBS
    return [of_job[id] for id in job_ids]
