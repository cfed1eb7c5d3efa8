"""What becomes of the tasks of a table that is dropped, and of a new table of its name."""

from pathlib import Path

import pytest

from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake
from arctic_orchestration_tests.compaction.planned_world import World
from arctic_orchestration_tests.present import present


@pytest.fixture
def world(database: Database, tmp_path: Path) -> World:
    return World(Lake.at(tmp_path / "lake"), database)


@pytest.mark.parametrize("fails", [False, True])
def test_a_task_that_is_given_back_after_its_table_was_dropped_is_canceled(
    world: World, fails: bool
) -> None:
    """Or fails; else workers would claim it and give it back without end."""
    world.lake.table("lake.busy", files=12)
    world.tick()
    with world.database.begin() as tx:
        claim = present(attempts.claim(tx, [], "w"))
    world.lake.catalog.drop_table("lake.busy")
    world.tick(minutes=3)
    gone_at = world.now
    assert [task.state for task in world.tasks()] == [TaskState.CLAIMED]
    report = attempts.failed if fails else attempts.release
    with world.database.begin() as tx:
        report(tx, claim.attempt_id, claim.token, reason="no table lake.busy")
    world.tick(minutes=3)
    (task,) = world.tasks()
    assert task.state is TaskState.CANCELED
    assert task.reason == "the catalog has the table no more"
    assert world.row("lake.busy").gone_at == gone_at
