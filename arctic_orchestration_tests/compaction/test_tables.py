"""What is known of a table: when it is due, how long it rests, what its end does."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import queues, table_queues, task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.task import TaskKind, TaskState
from arctic_orchestration.errors import NotFound
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import MINUTE, NOON, planned, seen


def test_a_table_is_due_since_the_first_reason(database: Database) -> None:
    """A later one is shown, and the table does not go to the end of the line."""
    with database.begin() as tx:
        seen(tx, "lake.a")
        assert tables.table_by_name(tx, "lake.a").due_since is None
        assert tables.make_due(tx, "lake.a", "a commit", NOON)
        assert tables.make_due(tx, "lake.a", "its interval", NOON + 2 * MINUTE)
        due = tables.table_by_name(tx, "lake.a")
        assert (due.due_since, due.due_reason) == (NOON, "its interval")
        assert not tables.make_due(tx, "lake.c", "a commit", NOON)


def test_a_table_that_stays_due_after_a_look_is_left_due(database: Database) -> None:
    """Since then as before, or since it last got room; one that nobody has looked at is not."""
    with database.begin() as tx:
        for name in ("lake.a", "lake.b"):
            seen(tx, name)
            tables.make_due(tx, name, "a commit", NOON)
        assert tables.left_due(tx, NOON) == []
        done: dict[str, Any] = {"snapshot_id": 1, "reason": "the queue is full", "still_due": True}
        tables.record_check(tx, "lake.a", due_number=1, now=NOON + MINUTE, **done)
        (left,) = tables.left_due(tx, NOON + MINUTE)
        assert (left.name, left.due_since) == ("lake.a", NOON)
        later = NOON + 2 * MINUTE
        tables.record_check(tx, "lake.a", due_number=1, now=later, got_room=True, **done)
        (left,) = tables.left_due(tx, later)
        assert left.due_since == later
        # It does not wait for room.
        tables.record_failed_check(tx, left, "the catalog did not answer", later)
        assert tables.left_due(tx, later) == []
        assert tables.table_by_name(tx, "lake.a").due_since == later


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_who_is_left_due_is_found_among_many_tables(database: Database) -> None:
    """Asked before each look: by the index, not by reading all rows."""
    statements: list[tuple[str, Any]] = []
    with database.begin() as tx:
        sa.event.listen(
            tx,
            "before_cursor_execute",
            lambda *arguments: statements.append((arguments[2], arguments[3])),
        )
        tables.left_due(tx, NOON)
        ((statement, values),) = statements
        (first, *_) = tx.exec_driver_sql(f"explain query plan {statement}", values).all()
    assert first.detail.startswith("SEARCH arctic_compaction_tables USING INDEX "), first
    assert "ix_arctic_compaction_tables_due_since" in first.detail, first


def test_what_makes_a_table_due_while_it_is_planned_is_not_lost(database: Database) -> None:
    """The look ends what it has seen; the commit that came after its beginning stays."""
    with database.begin() as tx:
        seen(tx, "lake.a")
        tables.make_due(tx, "lake.a", "a commit", NOON)
        before = tables.table_by_name(tx, "lake.a")
        tables.make_due(tx, "lake.a", "another commit", NOON + MINUTE)
        done: dict[str, Any] = {
            "snapshot_id": 7,
            "reason": "nothing to gain",
            "now": NOON + 2 * MINUTE,
        }
        tables.record_check(tx, "lake.a", due_number=before.due_number, **done)
        again = tables.table_by_name(tx, "lake.a")
        assert again.due_reason == "another commit"
        assert (again.looked_snapshot_id, again.looked_reason) == (7, "nothing to gain")
        tables.record_check(tx, "lake.a", due_number=again.due_number, still_due=True, **done)
        assert tables.table_by_name(tx, "lake.a").due_since == NOON
        tables.record_check(tx, "lake.a", due_number=again.due_number, refused="format v3", **done)
        refused = tables.table_by_name(tx, "lake.a")
        assert (refused.due_since, refused.refused) == (None, "format v3")
        tables.record_check(tx, "lake.a", due_number=again.due_number, **done)
        assert tables.table_by_name(tx, "lake.a").refused is None


def test_a_table_rests_twice_as_long_each_time_up_to_a_day(database: Database) -> None:
    """10 minutes, 20, ... 1280 (21 h 20), then a day; what fails while it rests adds nothing."""
    minutes = [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440]
    now = NOON
    with database.begin() as tx:
        seen(tx, "lake.a")
        tables.make_due(tx, "lake.a", "a commit", NOON)
        done: dict[str, Any] = {"due_number": 1, "snapshot_id": 1, "reason": "no room"}
        tables.record_check(tx, "lake.a", now=NOON, still_due=True, **done)
        for length in minutes:
            until = tables.rest(tx, "lake.a", "task x is in quarantine", now)
            assert until == now + length * MINUTE
            assert tables.rest(tx, "lake.a", "another one", now + MINUTE) == until
            assert tables.left_due(tx, until - timedelta(seconds=1)) == []
            assert [table.name for table in tables.left_due(tx, until)] == ["lake.a"]
            now = until
        assert tables.table_by_name(tx, "lake.a").rests(now) is False
        tables.wake(tx, "lake.a")
        assert tables.table_by_name(tx, "lake.a").failures == 0
        assert tables.rest(tx, "lake.a", "task y", now) == now + 10 * MINUTE
        assert tables.table_by_name(tx, "lake.a").rests(now) is True


def test_the_moments_of_merges_are_kept_by_kind_and_partition(database: Database) -> None:
    """The last one counts; other tables have their own."""
    with database.begin() as tx:
        for name in ("lake.a", "lake.b"):
            seen(tx, name)
        minor, major = TaskKind.MINOR, TaskKind.MAJOR
        tables.note_merged(tx, "lake.a", [(minor, "day=1"), (minor, "day=1"), (major, "")], NOON)
        tables.note_merged(tx, "lake.a", [(minor, "day=1")], NOON + MINUTE)
        tables.note_merged(tx, "lake.b", [], NOON)
        assert tables.partitions_merged_at(tx, "lake.a") == {
            (minor, "day=1"): NOON + MINUTE,
            (major, ""): NOON,
        }
        assert tables.partitions_merged_at(tx, "lake.b") == {}


def test_the_end_of_a_table_cancels_what_waits(database: Database) -> None:
    """It is not due any more, frees its queue, and comes back as new when it is seen again."""
    with database.begin() as tx:
        queues.add_queue(tx, queues.CompactionQueue(name="own"), NOON)
        seen(tx, "lake.a")
        table_queues.map_table(tx, "lake.a", "own", NOON)
        (id,) = offer(tx, "lake.a", [planned("a", "b")], NOON).taken
        tables.make_due(tx, "lake.a", "a commit", NOON)
        assert tables.table_gone(tx, "lake.a", NOON + MINUTE) == 1
        task = task_store.task_by_id(tx, id)
        assert (task.state, task.ended_at) == (TaskState.CANCELED, NOON + MINUTE)
        assert task.reason == "the catalog has the table no more"
        assert task_store.live_paths(tx, "lake.a") == {}
        gone = tables.table_by_name(tx, "lake.a")
        assert (gone.due_since, gone.gone_at) == (None, NOON + MINUTE)
        queues.delete_queue(tx, "own")
        seen(tx, "lake.a", now=NOON + 2 * MINUTE)
        assert tables.table_by_name(tx, "lake.a").gone_at is None
        assert tables.table_by_name(tx, "lake.a").queue == "default"


def test_an_unknown_table_is_refused_with_the_names_of_those_there_are(database: Database) -> None:
    """As far as eight names go."""
    with database.begin() as tx:
        with pytest.raises(NotFound, match=r"knows no table lake\.x, nor any"):
            tables.table_by_name(tx, "lake.x")
        for number in range(9):
            seen(tx, f"lake.t{number}")
        with pytest.raises(NotFound) as refused:
            tables.lock_table(tx, "lake.x")
        assert str(refused.value).endswith("it knows: " + ", ".join(
            f"lake.t{number}" for number in range(8)
        ) + " and more")  # fmt: skip
        assert [table.name for table in tables.all_tables(tx)][8] == "lake.t8"
