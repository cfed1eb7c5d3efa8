"""Clocks of hosts: one that is ahead of the database's, and one that is set back."""

from datetime import timedelta
from pathlib import Path

import pytest

from arctic_orchestration.compaction import control
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.service import CompactionService
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.compaction.planned_lake import Lake
from arctic_orchestration_tests.compaction.planned_world import World

AHEAD = timedelta(days=40)


@pytest.fixture
def world(database: Database, tmp_path: Path) -> World:
    """A lake without tables."""
    return World(Lake.at(tmp_path / "lake"), database)


def test_a_round_of_a_host_whose_clock_is_ahead_neither_prunes_nor_ends_rests(world: World) -> None:
    """By its clock the history is older than 30 days, and a canceled task's files have rested."""
    world.lake.table("lake.a", files=12)
    assert world.tick().offered == 1
    (task,) = world.tasks()
    with world.database.begin() as tx:
        control.cancel_task(tx, task, database_time(tx), Actor(name="ann"))
    service = CompactionService(world.database, world.lake.catalog)
    assert service.tick(world.now + AHEAD).planned.offered == 0
    assert [(one.id, one.state) for one in world.tasks()] == [(task.id, TaskState.CANCELED)]


def test_a_task_of_a_host_whose_clock_is_ahead_has_not_to_wait_longer(world: World) -> None:
    """Its rank is that of the moment of its offer: all later tasks would precede it."""
    world.lake.table("lake.a", files=12)
    service = CompactionService(world.database, world.lake.catalog)
    assert service.tick(world.now + AHEAD).planned.offered == 1
    (task,) = world.tasks()
    with world.database.read() as tx:
        assert task.waiting_since <= database_time(tx)


def test_a_planner_whose_clock_is_set_back_goes_on(world: World) -> None:
    """It was eight hours ahead: until then, no table would be found, and none checked."""
    world.lake.table("lake.old", files=1)
    world.tick(hours=8)
    world.lake.table("lake.new", files=12)
    world.lake.append("lake.old", files=12)
    assert world.tick(hours=-8).offered == 2
    assert world.tick(seconds=5).looked == 0
