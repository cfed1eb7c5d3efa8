"""Two planners of one state database, as of two code locations: neither makes the other plan."""

from pathlib import Path

import pytest

from arctic_orchestration.compaction.planning.catalog_planner import Planner, mark_due
from arctic_orchestration.compaction.planning.planner_counts import PlanningCounts
from arctic_orchestration.compaction.queue.queues import update_queue
from arctic_orchestration.lake import catalog_answers
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake
from arctic_orchestration_tests.compaction.planned_world import World


class TwoPlanners(World):
    """Each tick is one of both planners."""

    def __init__(self, lake: Lake, database: Database) -> None:
        super().__init__(lake, database)
        self.other = Planner(database, lake.catalog)

    def tick(self, **passed: float) -> PlanningCounts:
        """The sum of both."""
        return super().tick(**passed).plus(self.other.tick(self.now))


@pytest.fixture
def world(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoPlanners:
    """A catalog that is down is asked without pauses."""
    monkeypatch.setattr(catalog_answers, "_FIRST_WAIT_SECONDS", 0)
    return TwoPlanners(Lake.at(tmp_path / "lake"), database)


def test_each_pauses_after_a_failed_check(world: TwoPlanners) -> None:
    """For 30 s after the first one, and for 60 s after the second."""
    world.lake.table("lake.bad", files=2)
    world.tick()
    world.lake.catalog.down_for = frozenset({"lake.bad"})
    with world.database.begin() as tx:
        mark_due(tx, "lake.bad", "it has arrived", world.now)
    failed = {second: world.tick(seconds=5).troubled for second in range(5, 125, 5)}
    assert {second: count for second, count in failed.items() if count} == {5: 2, 35: 2, 95: 2}
    # An event is no check: both see it at once.
    with world.database.begin() as tx:
        mark_due(tx, "lake.bad", "it has arrived", world.now)
    assert world.tick(seconds=5).troubled == 2


def test_what_finds_no_room_is_planned_again_after_the_check_interval(world: TwoPlanners) -> None:
    """One of three tables has the only place of the queue: the others stay due."""
    with world.database.begin() as tx:
        update_queue(tx, "default", capacity=1)
    for name in ("lake.a", "lake.b", "lake.c"):
        world.lake.table(name, files=12)
    world.tick()
    planned = {second: world.tick(seconds=5).planned for second in range(5, 125, 5)}
    # Two tables, two planners, and an interval of a minute.
    assert {second: count for second, count in planned.items() if count} == {60: 4, 120: 4}
    assert world.row("lake.c").due_reason == (
        "12 of 12 files in 1 task, 1 task without room in queue default"
    )
