"""A table whose level is changed while its tasks wait."""

from pathlib import Path

from arctic_orchestration.compaction import control
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake
from arctic_orchestration_tests.compaction.planned_world import World
from arctic_orchestration_tests.present import present


def test_waiting_tasks_get_the_level_that_their_table_gets(
    database: Database, tmp_path: Path
) -> None:
    """Without a new snapshot; a level that a user gave to a task stays, and so does its age."""
    world = World(Lake.at(tmp_path / "lake"), database)
    for name in ("lake.a", "lake.b", "lake.own"):
        world.lake.table(name, files=12)
    world.tick()
    (own,) = [task for task in world.tasks() if task.table == "lake.own"]
    with world.database.begin() as tx:
        control.prioritize_task(tx, own, 3, Actor(name="ann"))
    world.lake.set("lake.b", level="5")
    world.lake.set("lake.own", level="-1")
    counts = world.tick(minutes=1)
    assert (counts.planned, counts.offered, counts.superseded) == (2, 0, 0)
    assert {task.table: (task.level, task.waiting_since) for task in world.tasks()} == {
        "lake.a": (0, own.waiting_since),
        "lake.b": (5, own.waiting_since),
        "lake.own": (3, own.waiting_since),
    }
    with world.database.begin() as tx:
        claims = [present(attempts.claim(tx, [], "w")).task.table for _ in range(3)]
    assert claims == ["lake.b", "lake.own", "lake.a"]
    assert {name: world.row(name).due_since for name in claims} == dict.fromkeys(claims)
    assert world.tick(minutes=1).planned == 0
