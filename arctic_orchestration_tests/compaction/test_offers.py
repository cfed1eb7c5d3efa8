"""Offering plans: what is taken, what stays, what is replaced, and what finds no room."""

import threading
from collections.abc import Iterator
from datetime import datetime

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arctic_orchestration.compaction.commit import commits
from arctic_orchestration.compaction.planning.table_planner import state_of
from arctic_orchestration.compaction.queue import queues, task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.ranking import rank_of
from arctic_orchestration.compaction.queue.task import LIVE, TaskKind, TaskState
from arctic_orchestration.compaction.tables import table_by_name
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.state import bulk_rows
from arctic_orchestration.state.compaction_tables import compaction_task_files, compaction_tasks
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import (
    MERGE,
    MIB,
    MINUTE,
    NOON,
    cleared,
    opened,
    planned,
    seen,
)
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.standing_clock import Clock


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A fresh state database with a table ``lake.a``, once on each backend."""
    with opened(database_url) as made:
        with made.begin() as tx:
            seen(tx, "lake.a", level=2)
        yield made


def test_an_offered_task_is_written_with_all_that_was_planned(database: Database) -> None:
    """Its group comes back as it was, and its first line of history says why it was made."""
    task = planned("b", "a", partition="day=1", deletes=["d"], reason="two small files")
    with database.begin() as tx:
        (id,) = offer(tx, "lake.a", [task], NOON, max_attempts=2, retry_after=MINUTE).taken
        stored = task_store.task_by_id(tx, id)
        assert task_store.group_of(tx, id) == task.group
        assert task_store.live_paths(tx, "lake.a") == {"a": id, "b": id}
        (made,) = task_store.history(tx, id)
    assert (stored.table, stored.queue, stored.partition) == ("lake.a", "default", "day=1")
    assert (stored.kind, stored.state) == (TaskKind.MINOR, TaskState.PLANNED)
    assert (stored.reason, stored.gain) == ("two small files", "2 files → 1")
    assert (stored.files, stored.delete_files, stored.small_files) == (2, 1, 2)
    assert (stored.bytes, stored.rows) == (2 * MIB + 10, 200)
    assert (stored.max_attempts, stored.retry_seconds, stored.attempts) == (2, 60, 0)
    assert stored.offered_at == stored.waiting_since == NOON
    assert stored.rank == rank_of(NOON, 2, 2, 2 * MIB + 10)
    assert (made.before, made.state, made.reason) == (None, TaskState.PLANNED, "two small files")


def test_the_same_files_stay_the_same_task(database: Database) -> None:
    """With age, attempts and retry; the group is the newer one, the rank follows its numbers."""
    clock = Clock()
    with database.begin() as tx:
        (id,) = offer(tx, "lake.a", [planned("a", "b")], NOON).taken
        claim = present(attempts.claim(tx, [], "w", time=clock))
        attempts.failed(tx, claim.attempt_id, claim.token, "disk full", time=clock)
        newer = planned("b", "a", snapshot_id=5, deletes=["d"])
        seen(tx, "lake.a", level=3)
        offered = offer(tx, "lake.a", [newer], NOON + MINUTE)
        assert (offered.taken, offered.kept, offered.superseded) == ((), (id,), ())
        assert offered.complete
        stored = task_store.task_by_id(tx, id)
        assert (stored.state, stored.attempts) == (TaskState.FAILED, 1)
        assert stored.not_before == NOON + 5 * MINUTE
        assert stored.waiting_since == stored.offered_at == NOON
        assert task_store.group_of(tx, id) == newer.group
        assert stored.rank == rank_of(NOON, 3, 2, 2 * MIB + 10)
        other_kind = offer(tx, "lake.a", [planned("a", "b", kind=TaskKind.MAJOR)], NOON)
        assert (other_kind.kept, other_kind.superseded) == ((), (id,))


def test_a_better_plan_replaces_what_waits(database: Database) -> None:
    """What it leaves out is superseded with the reason, and its files are free again."""
    with database.begin() as tx:
        first, second = offer(tx, "lake.a", [planned("a", "b"), planned("c")], NOON).taken
        offered = offer(tx, "lake.a", [planned("a", "b", "x")], NOON + MINUTE, reason="3 > 2")
        assert set(offered.superseded) == {first, second}
        ended = task_store.task_by_id(tx, second)
        assert (ended.state, ended.reason) == (TaskState.SUPERSEDED, "3 > 2")
        assert ended.ended_at == NOON + MINUTE
        assert set(task_store.live_paths(tx, "lake.a")) == {"a", "b", "x"}
        nothing = offer(tx, "lake.a", [], NOON + 2 * MINUTE)
        assert nothing.superseded == offered.taken
        assert task_store.live_paths(tx, "lake.a") == {}


def test_an_age_is_handed_on_once(database: Database) -> None:
    """Two parts of one old task: the first has its age, the second none. Joined: the older age."""
    with database.begin() as tx:
        offer(tx, "lake.a", [planned("a", "b", "c", "d")], NOON)
        parts = [planned("b", "a"), planned("c", "d"), planned("e")]
        ids = offer(tx, "lake.a", parts, NOON + MINUTE).taken
        ages = [task_store.task_by_id(tx, id).waiting_since - NOON for id in ids]
        assert ages == [0 * MINUTE, MINUTE, MINUTE]
        assert task_store.task_by_id(tx, ids[0]).offered_at == NOON + MINUTE
        joined = offer(tx, "lake.a", [planned("e", "d"), planned("c", "b")], NOON + 2 * MINUTE)
        ages = [task_store.task_by_id(tx, id).waiting_since - NOON for id in joined.taken]
        assert ages == [MINUTE, 0 * MINUTE]


def test_what_a_worker_has_is_not_touched(database: Database) -> None:
    """Claimed or merged: a plan with one of its files waits, a plan with others is taken."""
    clock = Clock()
    with database.begin() as tx:
        merged, claimed = offer(tx, "lake.a", [planned("a", "b"), planned("c", "d")], NOON).taken
        first = present(attempts.claim(tx, [], "w", time=clock))
        attempts.claim(tx, [], "w", time=clock)
        attempts.merged(tx, first.attempt_id, first.token, **MERGE, time=clock)
        plan = [planned("b", "x"), planned("c", "d"), planned("y", "z")]
        offered = offer(tx, "lake.a", plan, NOON + MINUTE)
        assert offered.busy == (plan[0], plan[1])
        assert len(offered.taken) == 1
        assert not offered.complete
        states = {task.id: task.state for task in task_store.tasks(tx, table="lake.a")}
        assert states[merged] is TaskState.MERGED
        assert states[claimed] is TaskState.CLAIMED


def test_a_requested_task_is_not_replaced_before_a_worker_has_had_it(
    database: Database,
) -> None:
    """The planner's plan takes the place of the others; another one of a person takes its place."""
    clock = Clock()
    with database.begin() as tx:
        (forced,) = offer(tx, "lake.a", [planned("a", "b")], NOON, forced=True).taken
        assert task_store.task_by_id(tx, forced).forced
        (other,) = offer(tx, "lake.a", [planned("c"), planned("b", "d")], NOON).taken
        offered = offer(tx, "lake.a", [], NOON)
        assert offered.superseded == (other,)
        assert set(task_store.live_paths(tx, "lake.a")) == {"a", "b"}
        assert state_of(tx, "lake.a", NOON).held_files == {"a", "b"}
        again = offer(tx, "lake.a", [planned("b", "x")], NOON, forced=True)
        assert again.superseded == (forced,)
        claim = present(attempts.claim(tx, [], "w", time=clock))
        attempts.failed(tx, claim.attempt_id, claim.token, "no file b", time=clock)
        assert offer(tx, "lake.a", [], NOON).superseded == again.taken


def test_a_full_queue_takes_no_more(database: Database) -> None:
    """All live tasks of all its tables count; what stays has its room; the rest is blocked."""
    clock = Clock()
    with database.begin() as tx:
        queues.update_queue(tx, "default", capacity=3)
        seen(tx, "lake.b")
        offer(tx, "lake.b", [planned("b1"), planned("b2")], NOON)
        attempts.claim(tx, [], "w", time=clock)
        plan = [planned("a1"), planned("a2"), planned("a3")]
        offered = offer(tx, "lake.a", plan, NOON)
        assert (len(offered.taken), offered.blocked) == (1, (plan[1], plan[2]))
        again = offer(tx, "lake.a", plan, NOON + MINUTE)
        assert (again.taken, again.kept, again.blocked) == ((), offered.taken, (plan[1], plan[2]))
        offer(tx, "lake.b", [], NOON)
        more = offer(tx, "lake.a", plan, NOON + MINUTE)
        assert (len(more.taken), more.blocked) == (1, (plan[2],))
        queues.update_queue(tx, "default", capacity=1)
        assert offer(tx, "lake.a", plan, NOON + MINUTE).blocked == (plan[2],)


def test_a_plan_from_before_a_commit_or_another_plan_is_stale(database: Database) -> None:
    """Nothing changes; with the version as it is now, the same plan is taken."""
    clock = Clock()
    with database.begin() as tx:
        before = table_by_name(tx, "lake.a").version
        (id,) = offer(tx, "lake.a", [planned("a", "b")], NOON, version=before).taken
        assert offer(tx, "lake.a", [], NOON, version=before).stale
        assert task_store.task_by_id(tx, id).state is TaskState.PLANNED
        claim = present(attempts.claim(tx, [], "w", time=clock))
        attempts.merged(tx, claim.attempt_id, claim.token, **MERGE, time=clock)
        planned_from = table_by_name(tx, "lake.a").version
        commits.committed(tx, [id], 9, time=clock)
        stale = offer(tx, "lake.a", [planned("a", "b")], NOON, version=planned_from)
        assert stale.stale
        assert not stale.complete
        assert stale.taken == ()
        now = table_by_name(tx, "lake.a").version
        assert offer(tx, "lake.a", [planned("c", "d")], NOON, version=now).complete


def test_bad_plans_change_nothing(database: Database) -> None:
    """A file twice, no files, no attempts, an unknown table."""
    with database.begin() as tx:
        (id,) = offer(tx, "lake.a", [planned("a", "b")], NOON).taken
        with pytest.raises(InvalidInput, match=r"tasks\[1\].group.files: got 'x', .* tasks\[0\]"):
            offer(tx, "lake.a", [planned("x", "y"), planned("z", "x")], NOON)
        with pytest.raises(InvalidInput, match=r"tasks\[0\].group.files: got \(\), expected one"):
            offer(tx, "lake.a", [planned()], NOON)
        with pytest.raises(InvalidInput, match="max_attempts: got 0"):
            offer(tx, "lake.a", [], NOON, max_attempts=0)
        with pytest.raises(NotFound, match=r"no table lake\.x"):
            offer(tx, "lake.x", [planned("x")], NOON)
        assert [task.id for task in task_store.tasks(tx, states=LIVE)] == [id]


def test_nothing_is_half_offered_when_it_breaks_off(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each write of an offer in turn: the old plan is there as if nothing had been."""
    with database.begin() as tx:
        (old,) = offer(tx, "lake.a", [planned("a", "b")], NOON).taken
    plan = [planned("a", "b", "c"), planned("d", "e")]
    insert_rows, broken = bulk_rows.insert_rows, list[str]()

    def breaking(tx: sa.Connection, table: sa.Table, *rest: object) -> None:
        if len(broken) < writes and len(calls) == len(broken):
            broken.append(table.name)
            raise RuntimeError("killed")
        calls.append(table.name)
        insert_rows(tx, table, *rest)  # type: ignore[arg-type]

    writes = 4
    monkeypatch.setattr(bulk_rows, "insert_rows", breaking)
    for _ in range(writes):
        calls: list[str] = []
        with pytest.raises(RuntimeError), database.begin() as tx:
            offer(tx, "lake.a", plan, NOON + MINUTE)
        with database.begin() as tx:
            assert [task.id for task in task_store.tasks(tx)] == [old]
            assert task_store.task_by_id(tx, old).state is TaskState.PLANNED
            assert set(task_store.live_paths(tx, "lake.a")) == {"a", "b"}
            assert len(task_store.history(tx, old)) == 1
    assert broken == [
        "arctic_compaction_moves",
        "arctic_compaction_tasks",
        "arctic_compaction_task_files",
        "arctic_compaction_moves",
    ]
    calls = []
    with database.begin() as tx:
        assert len(offer(tx, "lake.a", plan, NOON + MINUTE).taken) == 2


def test_the_database_itself_refuses_a_file_in_two_tasks(database: Database) -> None:
    """Whatever a program does: the key is the table and the path."""
    with database.begin() as tx:
        (id,) = offer(tx, "lake.a", [planned("a", "b")], NOON).taken
    row = {"table_name": "lake.a", "path": "a", "task_id": id}
    with pytest.raises(sa.exc.IntegrityError), database.begin() as tx:
        tx.execute(sa.insert(compaction_task_files), row)


def test_planners_at_once_take_turns(database: Database) -> None:
    """Eight offers of overlapping plans to two tables of one small queue: never more than fit."""
    with database.begin() as tx:
        seen(tx, "lake.b")
        queues.update_queue(tx, "default", capacity=7)
    errors: list[Exception] = []

    def offering(number: int) -> None:
        table = "lake.a" if number % 2 else "lake.b"
        try:
            for turn in range(4):
                size = 2 + (number + turn) % 3
                plan = [planned(*(f"{n}-{m}" for m in range(size))) for n in range(5)]
                with database.begin() as tx:
                    offer(tx, table, plan, NOON)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=offering, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with database.begin() as tx:
        live = task_store.tasks(tx, states=LIVE)
        assert len(live) == 7
        for table in ("lake.a", "lake.b"):
            mine = [task for task in live if task.table == table]
            paths = [path for task in mine for path in _paths(tx, task.id)]
            assert sorted(paths) == sorted(task_store.live_paths(tx, table))
            assert len(set(paths)) == len(paths)


_files = st.frozensets(st.integers(0, 7), min_size=1, max_size=4)
_plans = st.lists(st.lists(_files, max_size=4), min_size=1, max_size=5)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans=_plans, claims=st.lists(st.integers(0, 2), min_size=5, max_size=5))
def test_whatever_is_offered_no_file_is_in_two_live_tasks(
    database: Database, plans: list[list[frozenset[int]]], claims: list[int]
) -> None:
    """And the waiting tasks are a part of the last plan; what it lacks is blocked or busy."""
    clock = Clock()
    with database.begin() as tx:
        cleared(tx)
        seen(tx, "lake.a")
        queues.update_queue(tx, "default", capacity=4)
        for plan, number in zip(plans, claims, strict=False):
            taken: set[int] = set()
            apart = []
            for files in plan:
                if not files & taken:
                    apart.append(planned(*(f"f{n}" for n in sorted(files))))
                    taken |= files
            clock.passes(minutes=1)
            ages = _ages(tx)
            offered = offer(tx, "lake.a", apart, clock.now)
            live = task_store.tasks(tx, table="lake.a", states=LIVE)
            waiting = {task.digest for task in live if task.state is TaskState.PLANNED}
            left_out = {task.digest for task in (*offered.blocked, *offered.busy)}
            assert waiting | left_out == {task.digest for task in apart}
            assert not waiting & left_out
            paths = [path for task in live for path in _paths(tx, task.id)]
            assert len(set(paths)) == len(paths)
            assert set(paths) == set(task_store.live_paths(tx, "lake.a"))
            assert len(live) <= 4
            # No age is there more often than before.
            old = [age for age in _ages(tx) if age < clock.now]
            assert all(old.count(age) <= ages.count(age) for age in old)
            for _ in range(number):
                attempts.claim(tx, [], "w", time=clock)


def _ages(tx: sa.Connection) -> list[datetime]:
    return [task.waiting_since for task in task_store.tasks(tx, states=[TaskState.PLANNED])]


def _paths(tx: sa.Connection, id: str) -> list[str]:
    return [file.path for file in task_store.group_of(tx, id).files]


def test_a_task_that_is_requested_again_stays_and_can_be_claimed_at_once(
    database: Database,
) -> None:
    """A failed task does not wait for its retry interval; a plan by thresholds does not take it."""
    clock = Clock()
    with database.begin() as tx:
        (id,) = offer(tx, "lake.a", [planned("a", "b")], NOON).taken
        claim = present(attempts.claim(tx, [], "w", time=clock))
        attempts.failed(tx, claim.attempt_id, claim.token, "disk full", time=clock)
        again = offer(tx, "lake.a", [planned("a", "b")], NOON + MINUTE, forced=True)
        assert (again.taken, again.kept, again.superseded) == ((), (id,), ())
        stored = task_store.task_by_id(tx, id)
        assert (stored.state, stored.not_before, stored.forced) == (TaskState.PLANNED, None, True)
        assert stored.reason == "requested manually, before its retry interval was over"
        assert offer(tx, "lake.a", [], NOON + MINUTE).superseded == ()


def test_the_tables_of_a_queue_take_turns(database: Database) -> None:
    """Eight tasks of one table, and a minute later eight of another: one of each in turn.

    All have the same benefit, so half a level, 1800 s, is divided by the places: the n-th of a
    table comes n / (n + 8) * 1800 s later than its first: 0, 200, 360, 490, 600, 692, 771, 840.
    Up to the sixth a minute is less than from one to the next (692 - 600 = 92, 771 - 692 = 79).
    """
    clock = Clock()
    with database.begin() as tx:
        seen(tx, "lake.a")
        seen(tx, "lake.b")
        for table, at in (("lake.a", NOON), ("lake.b", NOON + MINUTE)):
            offer(tx, table, [planned(f"{number}x", f"{number}y") for number in range(8)], at)
        claimed = []
        while claim := attempts.claim(tx, [], "w", time=clock):
            claimed.append(claim.task.table)
    assert claimed == ["lake.a", "lake.b"] * 8


def test_a_place_is_given_once(database: Database) -> None:
    """It stays when a task is planned again, and goes to the task that replaces it."""
    places = {}
    with database.begin() as tx:
        offer(tx, "lake.a", [planned("a"), planned("b"), planned("c")], NOON)
        plan = [planned("c"), planned("b", "x"), planned("d")]
        offer(tx, "lake.a", plan, NOON + MINUTE)
        query = sa.select(compaction_tasks.c.id, compaction_tasks.c.place)
        for id, place in tx.execute(query.where(compaction_tasks.c.ended_at.is_(None))):
            places[tuple(file.path for file in task_store.group_of(tx, id).files)] = place
    # One other task, c, is live when b with x and d are offered: d is the second of these.
    assert places == {("c",): 2, ("b", "x"): 1, ("d",): 2}
