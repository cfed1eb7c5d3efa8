"""What becomes of a task that a worker has when its table is disabled, or refused."""

from pathlib import Path

import pytest

from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake
from arctic_orchestration_tests.compaction.planned_world import World
from arctic_orchestration_tests.present import present


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("enabled", "false", "arctic.compaction.enabled is false"),
        ("max_files", "many", "arctic.compaction.max-files of lake.busy: got 'many', expected"),
        ("sort", "lost", "arctic.compaction.sort of lake.busy: got 'lost', expected"),
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_task_that_is_given_back_after_its_table_was_refused_is_canceled(
    database: Database, tmp_path: Path, name: str, value: str, reason: str, restarts: bool
) -> None:
    """Else a worker would merge it all the same; as long as a worker has it, it stays."""
    world = World(Lake.at(tmp_path / "lake"), database)
    world.lake.table("lake.busy", files=12)
    world.tick()
    with database.begin() as tx:
        claim = present(attempts.claim(tx, [], "w"))
    world.lake.set("lake.busy", **{name: value})
    for _ in range(3):
        world.tick(minutes=5)
    assert [task.state for task in world.tasks()] == [TaskState.CLAIMED]
    if restarts:
        world.planner = Planner(database, world.lake.catalog)
        world.tick(minutes=5)
    with database.begin() as tx:
        attempts.release(tx, claim.attempt_id, claim.token)
    world.tick(minutes=5)
    (task,) = world.tasks()
    assert task.state is TaskState.CANCELED
    assert task.reason.startswith(f"not compacted: {reason}")
    counts = world.tick(minutes=5)
    assert (counts.unchanged, counts.looked, counts.planned) == (1, 0, 0)
