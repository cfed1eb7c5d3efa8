"""Several tables at once: one that hangs or is slow does not hold back the others."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import committer as committing
from arctic_orchestration.compaction import planning
from arctic_orchestration.compaction.committer import Committer
from arctic_orchestration.compaction.planning import Planner
from arctic_orchestration.compaction.table_pool import Ended, TableJobs, TablePool
from arctic_orchestration.compaction.task import TaskState
from arctic_orchestration.compaction.worker import Worker
from arctic_orchestration.database.engine import Database
from arctic_orchestration.errors import DatabaseUnavailable
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
    Worker(state, catalog, Merging(), parallelism=2).run(timedelta(0))
    assert {task.state for task in tasks_of(state)} == {TaskState.MERGED}


def committed(state: Database) -> set[str]:
    return {task.table for task in tasks_of(state) if task.state is TaskState.COMMITTED}


def blocks_for(gate: Gate, name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit to one table waits at the gate; none: that of the table that comes first."""
    real = committing.replace_files

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
    real, reads = planning.load_table, list[str]()

    def load(of: Any, name: str) -> Any:
        reads.append(name)
        if name == "lake.a":
            gate.wait()
        return real(of, name)

    monkeypatch.setattr(planning, "load_table", load)
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
