"""A planner that knows which tables have changed plans as one that looks at all of them does."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyiceberg.catalog import Catalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning import catalog_planner, unchanged_tables
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.planning.planner_counts import PlanningCounts
from arctic_orchestration.compaction.queue import queues, task_store
from arctic_orchestration.compaction.queue.queues import CompactionQueue, add_queue
from arctic_orchestration.compaction.queue.task import LIVE
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.lake.table_listing import metadata_locations
from arctic_orchestration.state.compaction_tables import compaction_tasks
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import Lake

NAMES = tuple(f"lake.t{number}" for number in range(4))
STEPS = 100 if os.environ.get("ARCTIC_PROOF") == "full" else 20


class Side:
    """A planner with a state database of its own, over the same lake as the other one."""

    def __init__(self, database: Database, lake: Lake, *, tells: bool) -> None:
        self.database, self.lake, self.tells = database, lake, tells
        self.counts = PlanningCounts()
        self.starts()

    def starts(self) -> None:
        """It forgets what it has seen."""
        self.planner = Planner(self.database, self.lake.catalog)

    def tick(self, now: datetime) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if not self.tells:
                patch.setattr(unchanged_tables, "metadata_locations", lambda _: None)
            self.planner.discover()
            self.counts = self.counts.plus(self.planner.tick(now))

    def state(self) -> list[Any]:
        """What it has planned, and what it says of each table."""
        with self.database.read() as tx:
            tasks = task_store.tasks(tx, states=LIVE)
            rows = tables.all_tables(tx)
        said = [(row.name, row.queue, row.looked_reason, row.looked_snapshot_id) for row in rows]
        return [said, sorted((task.table, task.files, str(task.state)) for task in tasks)]

    def fails(self, name: str, now: datetime) -> None:
        """A worker fails a task, which may be its last attempt."""
        with self.database.begin() as tx:
            claim = attempts.claim(tx, [], "w", table=name)
            if claim is None:
                return
            attempts.failed(tx, claim.attempt_id, claim.token, "a page is broken")
            tx.execute(
                sa.update(compaction_tasks)
                .values(not_before=now - timedelta(days=1))
                .where(compaction_tasks.c.state == "failed")
            )

    def cancels(self, name: str, now: datetime) -> None:
        with self.database.begin() as tx:
            tables.lock_table(tx, name)
            tables.cancel_waiting(tx, name, "a person said so", now)

    def is_reported(self, name: str, now: datetime) -> None:
        with self.database.begin() as tx:
            tables.make_due(tx, name, "an event", now)


@pytest.fixture
def sides(database: Database, tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """One that knows the changes, on each backend, and one that visits all tables."""
    lake = Lake.at(tmp_path / "lake")
    other = Database(f"sqlite:///{tmp_path / 'other.db'}")
    with closing(other):
        other.upgrade()
        yield Side(database, lake, tells=True), Side(other, lake, tells=False)


def _change(lake: Lake, sides: tuple[Side, Side], chance: random.Random, now: datetime) -> None:
    """Something happens to a table, a queue, or a planner."""
    name = chance.choice(NAMES)
    is_there = lake.catalog.table_exists(name)

    def append() -> None:
        lake.append(name, chance.choice([1, 3, 12]))

    def set_property() -> None:
        key, value = chance.choice(
            [("minor__min_files", "2"), ("minor__min_files", "12"), ("enabled", "false"),
             ("enabled", "true"), ("queue", "night"), ("minor__interval", "3m")]
        )  # fmt: skip
        lake.set(name, **{key: value})

    def drop() -> None:
        lake.catalog.drop_table(name)

    def add_night() -> None:
        for side in sides:
            with side.database.begin() as tx:
                if "night" not in {queue.name for queue in queues.queues(tx)}:
                    add_queue(tx, CompactionQueue(name="night"), now)

    def of_both(what: Callable[[Side], None]) -> Callable[[], None]:
        def change_both() -> None:
            for side in sides:
                what(side)

        return change_both

    changes: list[Callable[[], None]] = [
        *3 * [append],
        *3 * [set_property],
        add_night,
        drop,
        of_both(lambda side: side.cancels(name, now)),
        of_both(lambda side: side.is_reported(name, now)),
        *2 * [of_both(lambda side: side.fails(name, now))],
        sides[0].starts,
        sides[1].starts,
    ]
    change = chance.choice(changes) if is_there else lambda: _create(lake, name)
    change()


def _create(lake: Lake, name: str) -> None:
    lake.table(name, files=1, attempts="2", minor__min_files="3")


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10) if os.environ.get("ARCTIC_PROOF") == "full" else [1])
def test_a_planner_that_is_told_plans_the_same(sides: tuple[Side, Side], seed: int) -> None:
    """Whatever happens to tables, tasks, queues and planners, and however time passes."""
    informed, visiting = sides
    chance, now = random.Random(seed), utc_now()
    for name in NAMES:
        _create(informed.lake, name)
    for side in sides:
        side.tick(now)
    for _ in range(STEPS):
        for _ in range(chance.choice([0, 0, 1, 2])):
            _change(informed.lake, sides, chance, now)
        # Longer than the interval of checks: both planners consider each table.
        now += timedelta(seconds=chance.choice([61, 61, 200, 700]))
        for side in sides:
            side.tick(now)
        assert informed.state() == visiting.state()
    assert informed.counts.unchanged > STEPS
    assert visiting.counts.unchanged == 0
    assert informed.counts.looked < visiting.counts.looked / 2


def test_a_planner_that_trusts_its_memory_misses_tasks(sides: tuple[Side, Side]) -> None:
    """The control: what was canceled is not planned again, though the table has not changed."""
    informed, visiting = sides
    informed.lake.table("lake.t0", files=12)
    now = utc_now()
    for side in sides:
        side.tick(now)
        side.cancels("lake.t0", now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog_planner, "find_unchanged", lambda *given: dict(given[2]))
        informed.tick(now + timedelta(minutes=2))
    visiting.tick(now + timedelta(minutes=2))
    assert (informed.state()[1], len(visiting.state()[1])) == ([], 1)


def test_locations_are_those_of_the_tables(sides: tuple[Side, Side]) -> None:
    """In nested namespaces, too; other kinds of catalogs do not tell."""
    catalog = sides[0].lake.catalog
    catalog.create_namespace(("lake", "inner"))
    for name in ("lake.a", "lake.inner.b"):
        sides[0].lake.table(name, files=1)
    expected = {
        name: catalog.load_table(name).metadata_location for name in ("lake.a", "lake.inner.b")
    }
    assert metadata_locations(catalog) == expected
    sides[0].lake.append("lake.a")
    assert metadata_locations(catalog) != expected

    class OtherCatalog(Catalog):
        """Of no kind that we know."""

    OtherCatalog.__abstractmethods__ = frozenset()
    assert metadata_locations(OtherCatalog("other")) is None  # type: ignore[abstract]
