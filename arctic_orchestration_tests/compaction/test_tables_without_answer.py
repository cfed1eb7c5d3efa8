"""Tables that do not answer, and a catalog that does not: the planner tells the two apart."""

from pathlib import Path

import pytest
from pyiceberg.table import Table

from arctic_orchestration.compaction.table_pool import AT_ONCE
from arctic_orchestration.lake import catalog_answers
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake
from arctic_orchestration_tests.compaction.planned_world import World

NAMES = [f"lake.a{number:02}" for number in range(16)]


@pytest.fixture
def world(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Sixteen tables with nothing to merge, and the last one with a task."""
    monkeypatch.setattr(catalog_answers, "_FIRST_WAIT_SECONDS", 0)
    made = World(Lake.at(tmp_path / "lake"), database)
    for name in NAMES:
        made.lake.table(name, files=0)
    made.lake.table("lake.z", files=12)
    return made


def test_however_many_tables_do_not_answer_the_others_have_their_turn(world: World) -> None:
    """Their store is away, or they may be listed and not read. They come first, by their names."""
    world.lake.catalog.down_for = frozenset(NAMES)
    counts = world.tick()
    assert (counts.troubled, counts.offered, counts.postponed) == (16, 1, 0)


def test_a_catalog_that_goes_away_in_a_tick_is_not_asked_for_each_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are being loaded end in vain, and the next tick goes on."""
    catalog = world.lake.catalog
    load = catalog.load_table

    def gone(identifier: str) -> Table:
        catalog.down = True
        return load(identifier)

    with monkeypatch.context() as patched:
        patched.setattr(catalog, "load_table", gone)
        counts = world.tick()
    assert 3 <= counts.troubled <= 3 + AT_ONCE
    assert counts.troubled + counts.postponed == 17
    catalog.down = False
    assert world.tick(seconds=1).offered == 1
