"""Planning while the catalog lists some namespaces and not others."""

from pathlib import Path

import pytest
from pyiceberg.exceptions import BadRequestError, ForbiddenError

from arctic_orchestration.compaction.queue import queues, table_queues
from arctic_orchestration.compaction.queue.queues import CompactionQueue
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake
from arctic_orchestration_tests.compaction.planned_world import World


@pytest.mark.parametrize("error", [ForbiddenError("token of another scope"), BadRequestError("no")])
def test_tables_of_a_namespace_that_is_not_listed_for_a_while_are_not_gone(
    database: Database, tmp_path: Path, error: Exception
) -> None:
    """They are planned as before, and keep their tasks and queue; the other tables, too."""
    world = World(Lake.at(tmp_path / "lake"), database)
    world.lake.catalog.create_namespace("other")
    for name in ("lake.a", "other.b"):
        world.lake.table(name, files=12)
    with world.database.begin() as tx:
        queues.add_queue(tx, CompactionQueue(name="night"), world.now)
    world.tick()
    with world.database.begin() as tx:
        table_queues.map_table(tx, "other.b", "night", world.now)
    world.lake.catalog.unlisted = {"other": error}
    for name in ("lake.a", "other.b"):
        world.lake.append(name)
    assert world.tick(minutes=10).troubled == 0
    assert world.waiting() == {"lake.a": 13, "other.b": 13}
    assert (world.row("other.b").gone_at, world.row("other.b").queue) == (None, "night")
    world.lake.catalog.unlisted = {}
    world.lake.catalog.drop_table("other.b")
    world.tick(minutes=10)
    assert world.waiting() == {"lake.a": 13}
    assert world.row("other.b").gone_at == world.now
