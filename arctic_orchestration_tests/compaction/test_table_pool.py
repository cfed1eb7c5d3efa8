"""Several tables at once: one that hangs or is slow does not hold back the others."""

import threading
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import committer as committing
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.planning import catalog_planner
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.table_pool import Ended, TableJobs, TablePool
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import Worker
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.lake.replacing.replace import replace_files
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import (
    Merging,
    offered,
    rows_of,
    table_of,
    tasks_of,
)

LONG = 60.0
NOT_LONG = timedelta(seconds=1)


class Gate:
    """Work that waits at a gate until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.reached = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(LONG)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def until(holds: Callable[[], bool], tick: Callable[[], Any]) -> None:
    """Ticks until something holds; each tick waits up to its own deadline."""
    for _ in range(100):
        if holds():
            return
        tick()
    raise AssertionError("it does not come to hold")


def heard(into: list[Ended[Any]]) -> Callable[[Ended[Any]], bool]:
    def hear(ended: Ended[Any]) -> bool:
        into.append(ended)
        return True

    return hear


def test_no_table_is_worked_on_twice_at_a_time(gate: Gate) -> None:
    """A second kind of work passes it over while the first one goes on, and takes it later."""
    pool = TablePool()
    slow: TableJobs[str] = TableJobs(pool)
    quick: TableJobs[str] = TableJobs(pool)
    ends: list[Ended[str]] = []

    def waits(name: str) -> str:
        gate.wait()
        return f"slow {name}"

    while not slow.run(["a"], waits, heard(ends), 0.01):
        pass
    assert gate.reached.wait(LONG)
    assert quick.run(["a", "b"], lambda name: f"quick {name}", heard(ends), LONG) == ["b"]
    gate.opened.set()
    quick.wait_for("a", LONG)
    assert quick.run(["a"], lambda name: f"quick {name}", heard(ends), LONG) == ["a"]
    # What ended after the call that began it is heard by the next one.
    slow.run([], waits, heard(ends), LONG)
    assert [one.result for one in ends] == ["quick b", "quick a", "slow a"]


def test_no_more_tables_at_once_than_it_may() -> None:
    """Of six tables always two, each of which waits for the other."""
    pool = TablePool(2)
    jobs: TableJobs[int] = TableJobs(pool)
    both = threading.Barrier(2)
    ends: list[Ended[int]] = []

    def work(name: str) -> int:
        both.wait(LONG)
        at_work = len(pool.busy)
        both.wait(LONG)
        return at_work

    assert jobs.run("abcdef", work, heard(ends), LONG) == list("abcdef")
    assert [one.result for one in ends] == [2] * 6


def test_errors_are_heard_and_a_database_that_is_away_ends_the_run() -> None:
    """The run ends with the database's error, once the others have ended."""
    jobs: TableJobs[str] = TableJobs(TablePool())
    ends: list[Ended[str]] = []

    def work(name: str) -> str:
        if name == "bad":
            raise ValueError("no such thing")
        if name == "lost":
            raise DatabaseUnavailable("no answer")
        return name

    jobs.run(["bad", "good"], work, heard(ends), LONG)
    assert {one.table: (one.result, str(one.error or "")) for one in ends} == {
        "bad": (None, "no such thing"),
        "good": ("good", ""),
    }
    with pytest.raises(DatabaseUnavailable, match="no answer"):
        jobs.run(["lost", "good"], work, heard(ends), LONG)


def merged(state: Database, catalog: Catalog, names: list[str]) -> None:
    """Tables of two files each, whose merges wait for the committer; the first ones first."""
    for name in names:
        offered(state, table_of(catalog, name, files=2))
    Worker(DatabaseSource(state, catalog), Merging(), parallelism=2).run(timedelta(0))
    assert {task.state for task in tasks_of(state)} == {TaskState.MERGED}


def committed(state: Database) -> set[str]:
    return {task.table for task in tasks_of(state) if task.state is TaskState.COMMITTED}


def blocks_for(gate: Gate, name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit to one table waits at the gate; none: that of the table that comes first."""
    real = replace_files

    def replace(table: Any, *more: Any, **options: Any) -> Any:
        if ".".join(table.name()) == name or (name is None and not gate.reached.is_set()):
            gate.wait()
        return real(table, *more, **options)

    monkeypatch.setattr(committing, "replace_files", replace)


def test_a_commit_that_hangs_holds_back_no_other_table(
    state: Database, catalog: Catalog, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 12 tables 11 are committed while the first one waits; it is committed when it goes on."""
    names = [f"lake.t{number:02}" for number in range(12)]
    merged(state, catalog, names)
    blocks_for(gate, names[0], monkeypatch)
    committer = Committer(state, catalog)
    until(lambda: len(committed(state)) >= 11, lambda: committer.tick(at_most=NOT_LONG))
    assert committed(state) == set(names[1:])
    gate.opened.set()
    table = catalog.load_table(names[0])
    until(lambda: committed(state) == set(names), lambda: committer.tick(at_most=NOT_LONG))
    assert len(rows_of(table)) == 20
    assert len(list(table.scan().plan_files())) == 1


def test_with_one_thread_the_others_would_wait(
    state: Database, catalog: Catalog, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above."""
    names = ["lake.a", "lake.b"]
    merged(state, catalog, names)
    # Which of the two merges ended first, and is committed first, is up to the worker's threads.
    blocks_for(gate, None, monkeypatch)
    committer = Committer(state, catalog, pool=TablePool(1))
    short = timedelta(seconds=0.2)
    until(gate.reached.is_set, lambda: committer.tick(at_most=short))
    for _ in range(3):
        committer.tick(at_most=short)
    assert committed(state) == set()


def test_a_table_that_is_slow_to_read_holds_back_no_other_plan(
    state: Database, catalog: Catalog, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it begun a second time by the next tick; when it goes on, its plan is offered."""
    few = {"arctic.compaction.minor.min-files": "3"}
    for name in ("lake.a", "lake.b", "lake.c"):
        table_of(catalog, name, files=3, **few)
    real, reads = load_table, list[str]()

    def load(of: Any, name: str) -> Any:
        reads.append(name)
        if name == "lake.a":
            gate.wait()
        return real(of, name)

    monkeypatch.setattr(catalog_planner, "load_table", load)
    planner, now = Planner(state, catalog), utc_now()

    def tick() -> None:
        planner.tick(now, at_most=NOT_LONG)

    def offered_tables() -> set[str]:
        return {task.table for task in tasks_of(state)}

    until(lambda: offered_tables() == {"lake.b", "lake.c"}, tick)
    assert reads.count("lake.a") == 1
    gate.opened.set()
    until(lambda: "lake.a" in offered_tables(), tick)
    assert reads.count("lake.a") == 1


def hanging(gate: Gate, names: Collection[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading these tables, and committing to them, waits at the gate."""
    real_load, real_replace = load_table, replace_files

    def load(of: Any, name: str) -> Any:
        if name in names:
            gate.wait()
        return real_load(of, name)

    def replace(table: Any, *more: Any, **options: Any) -> Any:
        if ".".join(table.name()) in names:
            gate.wait()
        return real_replace(table, *more, **options)

    monkeypatch.setattr(catalog_planner, "load_table", load)
    monkeypatch.setattr(committing, "replace_files", replace)


BAD = [f"lake.a{number}" for number in range(3)]
GOOD = ["lake.b0", "lake.b1"]
FEW = {"arctic.compaction.minor.min-files": "3"}
#: two places, all of which hanging tables take
SOON = timedelta(seconds=0.05)


def row_of(state: Database, name: str) -> CompactionTable:
    with state.read() as tx:
        return tables.table_by_name(tx, name)


def planned_beside(
    state: Database, catalog: Catalog, pool: TablePool, gate: Gate, rounds: int
) -> set[str]:
    """The tables that have tasks after so many ticks, while others hang."""
    planner, now = Planner(state, catalog, pool=pool), utc_now()
    for _ in range(rounds):
        if {task.table for task in tasks_of(state)} == set(GOOD):
            break
        planner.tick(now, at_most=timedelta(seconds=0.5))
    return {task.table for task in tasks_of(state)}


def test_tables_that_hang_for_ever_leave_places_for_others(
    state: Database, catalog: Catalog, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tables hang in a pool of two; the others are planned, and the rows say who hangs."""
    for name in (*BAD, *GOOD):
        table_of(catalog, name, files=3, **FEW)
    hanging(gate, BAD, monkeypatch)
    pool = TablePool(2, limit=SOON)
    assert planned_beside(state, catalog, pool, gate, 100) == set(GOOD)
    assert pool.overdue() == set(BAD)
    assert not pool.is_stuck
    for name in BAD:
        reason = row_of(state, name).looked_reason
        assert reason == "could not be planned: it has taken longer than 50ms, and goes on"


def test_without_a_limit_they_would_hold_back_the_others(
    state: Database, catalog: Catalog, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: no work is ever overdue, and two that hang have the pool for ever."""
    for name in (*BAD, *GOOD):
        table_of(catalog, name, files=3, **FEW)
    hanging(gate, BAD, monkeypatch)
    assert planned_beside(state, catalog, TablePool(2), gate, 4) == set()


def test_the_places_that_are_given_away_are_bounded() -> None:
    """With one place and one to give away, the third table that hangs is not begun."""
    pool = TablePool(1, limit=SOON, most_overdue=1)
    jobs: TableJobs[None] = TableJobs(pool)
    over = threading.Event()

    def hangs(_: str) -> None:
        over.wait(LONG)

    assert jobs.run("abc", hangs, heard([]), 1.0) == ["a", "b"]
    assert pool.is_stuck
    assert jobs.newly_overdue() == ["a", "b"]
    assert jobs.newly_overdue() == []
    assert jobs.overdue_text().endswith("no other is begun: restart the process")
    over.set()
    for name in "ab":
        jobs.wait_for(name, LONG)
    assert jobs.run("c", hangs, heard([]), LONG) == ["c"]
    assert pool.overdue() == frozenset()


def test_commits_that_hang_for_ever_leave_places_for_others(
    state: Database, catalog: Catalog, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows say which hang, until these have been committed after all."""
    merged(state, catalog, [*BAD, *GOOD])
    hanging(gate, BAD, monkeypatch)
    committer = Committer(state, catalog, pool=TablePool(2, limit=SOON))
    short = timedelta(seconds=0.5)
    until(lambda: committed(state) == set(GOOD), lambda: committer.tick(at_most=short))
    until(
        lambda: all(row_of(state, name).commit_trouble for name in BAD),
        lambda: committer.tick(at_most=short),
    )
    gate.opened.set()
    until(lambda: committed(state) == {*BAD, *GOOD}, lambda: committer.tick(at_most=short))
    assert [row_of(state, name).commit_trouble for name in BAD] == [None] * 3


def test_a_table_that_hangs_first_in_line_for_room_does_not_stop_the_line(
    state: Database, catalog: Catalog, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turn is not waited for again while it hangs."""
    with state.begin() as tx:
        queues.update_queue(tx, "default", capacity=1)
    for name in ("lake.a0", "lake.b0"):
        table_of(catalog, name, files=3, **FEW)
    planner = Planner(state, catalog)
    planner.tick(utc_now())
    (first,) = tasks_of(state)
    with state.begin() as tx:
        queues.update_queue(tx, "default", capacity=9)
    waiting = ({"lake.a0", "lake.b0"} - {first.table}).pop()
    table_of(catalog, "lake.c0", files=3, **FEW)
    hanging(gate, [waiting], monkeypatch)
    planner.discover()
    until(
        lambda: {task.table for task in tasks_of(state)} == {first.table, "lake.c0"},
        lambda: planner.tick(utc_now(), at_most=NOT_LONG),
    )
    assert gate.reached.is_set()
