"""Tables that are only observed: planned and shown, and left as they are."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.planning.planner_counts import PlanningCounts
from arctic_orchestration.compaction.planning.scope import Mode, Scope
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.service import CompactionService
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.compaction.views.task_waits import commit_text
from arctic_orchestration.lake import catalog_answers
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake


class World:
    """A lake that is observed, and a clock that is set manually."""

    def __init__(self, lake: Lake, database: Database) -> None:
        self.lake, self.database = lake, database
        self.now: datetime = utc_now()
        scope = Scope(tables=("lake.b*",), mode=Mode.OBSERVE)
        self.compaction = CompactionService(database, lake.catalog, scope=scope)

    def tick(self, **passed: float) -> PlanningCounts:
        """The counts of a round, after so much time."""
        self.now += timedelta(**passed)
        return self.compaction.tick(self.now).planned

    def row(self, name: str) -> CompactionTable:
        with self.database.read() as tx:
            return tables.table_by_name(tx, name)


@pytest.fixture
def world(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(catalog_answers, "_FIRST_WAIT_SECONDS", 0)
    return World(Lake.at(tmp_path / "lake"), database)


def test_a_plan_is_made_and_shown_and_nothing_is_offered(world: World) -> None:
    """Of the tables that a pattern matches; one that is not to be compacted says so."""
    world.lake.table("lake.busy", files=12)
    world.lake.table("lake.barred", files=12, enabled="false")
    world.lake.table("lake.other", files=12)
    counts = world.tick()
    assert (counts.tables, counts.planned, counts.wanted, counts.offered) == (2, 2, 1, 0)
    assert world.row("lake.busy").observed_reason == "12 of 12 files in 1 task"
    assert world.row("lake.barred").observed_reason == (
        "not compacted: arctic.compaction.enabled is false"
    )
    with world.database.read() as tx:
        assert task_store.tasks(tx) == []
        assert [row.name for row in tables.all_tables(tx)] == ["lake.barred", "lake.busy"]


def test_a_table_is_planned_again_when_it_has_changed(world: World) -> None:
    """Not at each look; but after an append, and once fragments have waited for an hour."""
    world.lake.table("lake.busy", files=3)
    assert world.tick().planned == 1
    assert world.row("lake.busy").observed_reason == "nothing to merge in 3 files"
    counts = world.tick(seconds=61)
    assert (counts.looked, counts.planned) == (1, 0)
    assert (world.tick(hours=1).planned, world.row("lake.busy").observed_reason) == (
        1,
        "3 of 3 files in 1 task",
    )
    world.lake.append("lake.busy")
    assert world.tick(seconds=61).planned == 1
    assert world.row("lake.busy").observed_reason == "4 of 4 files in 1 task"


def test_observing_leaves_no_trace_for_a_later_compaction(world: World) -> None:
    """Also when nothing has changed in the table since."""
    world.lake.table("lake.busy", files=12)
    world.tick(minutes=10)
    assert commit_text(world.row("lake.busy"), world.now) == (
        "the table is only observed, which commits nothing: "
        "arctic compaction tick --tables=lake.busy --mode=run"
    )
    planner = Planner(world.database, world.lake.catalog)
    assert planner.tick(world.now + timedelta(seconds=1)).offered == 1
    row = world.row("lake.busy")
    assert (row.observed_at, row.looked_reason) == (None, "12 of 12 files in 1 task")
    assert commit_text(row, world.now) == "the committer's next round can commit"


def test_a_table_that_cannot_be_read_does_not_keep_others_from_being_planned(world: World) -> None:
    """Whichever comes first."""
    world.lake.table("lake.b1", files=12)
    world.lake.table("lake.b2", files=12)
    world.lake.catalog.down_for = frozenset({"lake.b1"})
    counts = world.tick()
    assert (counts.troubled, counts.wanted) == (1, 1)
    assert world.tick(seconds=30).troubled == 0
    world.lake.catalog.down_for = frozenset()
    assert world.tick(seconds=31).wanted == 1


def test_tables_take_turns_where_a_round_has_time_for_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first by name is due again at each of these rounds, a minute later."""
    for name in ("lake.b1", "lake.b2", "lake.b3"):
        world.lake.table(name, files=1)
    observer = world.compaction._observer
    assert observer is not None
    run = observer._jobs.run
    begun: list[str] = []

    def runs_one(names: list[str], *rest: Any) -> list[str]:
        begun.extend(names[:1])
        return run(names[:1], *rest)

    monkeypatch.setattr(observer._jobs, "run", runs_one)
    assert [world.tick(minutes=1).postponed for _ in range(4)] == [2, 2, 2, 2]
    assert begun == ["lake.b1", "lake.b2", "lake.b3", "lake.b1"]
