"""Who gets the room of a full queue: nobody is left without, whatever floods it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import commits
from arctic_orchestration.compaction.planning.catalog_planner import Planner, mark_due
from arctic_orchestration.compaction.queue import queues, task_store, waitlist
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.planned_lake import BY_ORIGIN, Lake
from arctic_orchestration_tests.compaction.stored import (
    MERGE,
    MINUTE,
    NOON,
    planned,
    seen,
)

TICK = timedelta(seconds=30)


@dataclass
class FullQueue:
    """A lake whose tables all want to be in the queue, and a worker with one slot."""

    lake: Lake
    database: Database
    now: datetime = field(default_factory=utc_now)
    #: what was claimed, the oldest first
    ended: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new process plans, and asks at each tick which tables there are."""
        self.planner = Planner(self.database, self.lake.catalog, discovery=timedelta(0))

    def flood(self, name: str, **properties: str) -> None:
        """A table with two tasks to offer, which are never merged in it: it always has them."""
        self.lake.table(name, BY_ORIGIN, 2, minor__min_files="2", **properties)
        self.lake.append(name, 2, "EWR")

    def trickle(self, name: str) -> None:
        """A table with one task to offer."""
        self.lake.table(name, BY_ORIGIN, 2, minor__min_files="2")

    def tick(self) -> None:
        """Half a minute later."""
        self.now += TICK
        self.planner.tick(self.now)

    def one_ends(self) -> None:
        """The task that is claimed next is merged and committed."""
        with self.database.begin() as tx:
            claim = attempts.claim(tx, [], "w")
            assert claim is not None
            attempts.merged(tx, claim.attempt_id, claim.token, **MERGE)
            commits.committed(tx, [claim.task.id], len(self.ended) + 1)
        self.ended.append(claim.task.table)

    def offered(self) -> set[str]:
        """The tables that have or had tasks."""
        with self.database.read() as tx:
            return {task.table for task in task_store.tasks(tx)}


@pytest.fixture
def full(database: Database, tmp_path: Path) -> FullQueue:
    """With room for one task."""
    with database.begin() as tx:
        queues.update_queue(tx, "default", capacity=1)
    return FullQueue(Lake.at(tmp_path / "lake"), database)


def as_it_is(full: FullQueue) -> None:
    """The planner goes on."""


def begun_again(full: FullQueue) -> None:
    """Each tick is another process's."""
    full.begin()


def reported(full: FullQueue) -> None:
    """The flood says before each tick that it has changed."""
    with full.database.begin() as tx:
        for name in ("lake.aaa", "lake.zzz"):
            if name in {row.name for row in tables.all_tables(tx)}:
                mark_due(tx, name, "a commit", full.now)


def starved(full: FullQueue, flood: str, trickle: str, before: Callable[[FullQueue], None]) -> int:
    """How many tasks end until the trickle is offered; 5: it is not.

    The flood is looked at by each tick, the trickle by every other one, and not by the one that
    finds room.
    """
    full.flood(flood, check_interval="30s")
    full.tick()
    full.trickle(trickle)
    for ends in range(5):
        before(full)
        full.tick()
        if trickle in full.offered():
            return ends
        full.one_ends()
        before(full)
        full.tick()
    return 5


@pytest.mark.parametrize("before", [as_it_is, begun_again, reported])
@pytest.mark.parametrize("names", [("lake.aaa", "lake.zzz"), ("lake.zzz", "lake.aaa")])
def test_a_flood_does_not_keep_a_table_out_of_a_full_queue(
    full: FullQueue, names: tuple[str, str], before: Callable[[FullQueue], None]
) -> None:
    """Two tables are in line: it gets the second room at the latest."""
    assert starved(full, *names, before) <= 2


def test_without_the_line_it_would_be_kept_out(
    full: FullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flood is looked at twice as often, and is there first each time."""
    monkeypatch.setattr(waitlist, "waiting_for_room", lambda tx, now: [])
    assert starved(full, "lake.aaa", "lake.zzz", as_it_is) == 5


def test_each_table_in_line_gets_room_once_before_any_gets_it_twice(full: FullQueue) -> None:
    """A flood fills the queue; then come a second one and three tables of one task each."""
    full.flood("lake.b_flood")
    full.tick()
    full.flood("lake.a_flood")
    for name in ("lake.c", "lake.d", "lake.e"):
        full.trickle(name)
    # The tick looks at all of them, and the queue is full.
    full.begin()
    full.tick()
    assert full.offered() == {"lake.b_flood"}
    counts = []
    for _ in range(5):
        full.one_ends()
        full.tick()
        counts.append(full.offered())
    # Five are in line: the first flood since the first tick, the others since the second one.
    assert [len(found) for found in counts] == [1, 2, 3, 4, 5]
    assert "lake.a_flood" in counts[1]


def test_who_got_room_stands_behind_those_who_got_none(database: Database) -> None:
    """Whoever was looked at first; a table of a queue without room is not in the line at all."""
    with database.begin() as tx:
        queues.update_queue(tx, "default", capacity=1)
        queues.add_queue(tx, queues.CompactionQueue(name="full", capacity=1), NOON)
        for number, name in enumerate(("lake.a", "lake.b", "lake.c")):
            seen(tx, name)
            tables.make_due(tx, name, "a commit", NOON + number * MINUTE)
        seen(tx, "lake.full", queue="full")
        tables.make_due(tx, "lake.full", "a commit", NOON)
        offer(tx, "lake.full", [planned("a")], NOON)
        assert waitlist.waiting_for_room(tx, NOON + 9 * MINUTE) == []

        def look(name: str, minute: int, *, got_room: bool = False) -> list[str]:
            row = tables.table_by_name(tx, name)
            now = NOON + minute * MINUTE
            tables.record_check(tx, name, due_number=row.due_number, snapshot_id=1,
                          reason="no room", now=now, still_due=True, got_room=got_room)  # fmt: skip
            return [row.name for row in waitlist.waiting_for_room(tx, now)]

        assert look("lake.full", 10) == []
        assert look("lake.b", 11) == ["lake.b"]
        assert look("lake.a", 12) == ["lake.a", "lake.b"]
        assert look("lake.a", 13) == ["lake.a", "lake.b"]
        assert look("lake.a", 14, got_room=True) == ["lake.b", "lake.a"]
        assert look("lake.c", 15) == ["lake.b", "lake.c", "lake.a"]
        until = tables.rest(tx, "lake.b", "task x is in quarantine", NOON + 16 * MINUTE)
        assert look("lake.c", 17) == ["lake.c", "lake.a"]
        assert waitlist.waiting_for_room(tx, until)[0].name == "lake.b"
        offer(tx, "lake.a", [planned("b")], NOON)
        assert waitlist.waiting_for_room(tx, until) == []


def test_what_became_due_after_a_tick_began_stands_in_line_too(database: Database) -> None:
    """A tick commits before it plans, and others have clocks of their own."""
    with database.begin() as tx:
        seen(tx, "lake.late")
        tables.make_due(tx, "lake.late", "task x came too late", NOON + MINUTE)
        row = tables.table_by_name(tx, "lake.late")
        tables.record_check(tx, "lake.late", due_number=row.due_number, snapshot_id=1,
                      reason="no room", now=NOON, still_due=True)  # fmt: skip
        (waiting,) = waitlist.waiting_for_room(tx, NOON)
        assert (waiting.name, waiting.due_since) == ("lake.late", NOON)
