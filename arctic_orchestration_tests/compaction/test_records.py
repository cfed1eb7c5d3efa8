"""Records of commits: written once, listed, pruned; and what is pruned with them."""

from datetime import datetime, timedelta

import pytest

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import orphaned_outputs, records
from arctic_orchestration.compaction.commit.records import CompactionRecord
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.task import TaskKind, TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts, workers
from arctic_orchestration.compaction.work.workers import WorkerInfo
from arctic_orchestration.errors import NotFound
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import MINUTE, NOON, planned, seen
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.standing_clock import Clock


def recorded(
    table: str = "lake.a", snapshot_id: int = 2**62, at: datetime = NOON
) -> CompactionRecord:
    """A record of one commit."""
    return CompactionRecord(
        table=table, snapshot_id=snapshot_id, at=at, tasks=("t1", "t2"), files_in=9, files_out=2,
        delete_files_removed=1, bytes_in=2**40, bytes_out=2**39, rows=10**10, rows_deleted=3,
        merge_seconds=1.5, waited_seconds=60.25, ways={"append": 1, "decode": 1},
    )  # fmt: skip


def test_a_record_is_read_back_as_it_was_written(database: Database) -> None:
    """Once for a snapshot: the first one stays."""
    with database.begin() as tx:
        assert records.write(tx, recorded())
        assert not records.write(tx, recorded(at=NOON + MINUTE))
        assert records.records(tx) == [recorded()]


def test_records_are_listed_newest_first(database: Database) -> None:
    """Of all tables or one, so many of them."""
    with database.begin() as tx:
        for number, table in enumerate(["lake.a", "lake.b", "lake.a", "lake.b"]):
            records.write(tx, recorded(table, number, NOON + number * MINUTE))
        assert [one.snapshot_id for one in records.records(tx)] == [3, 2, 1, 0]
        assert [one.snapshot_id for one in records.records(tx, table="lake.a")] == [2, 0]
        assert [one.snapshot_id for one in records.records(tx, limit=3)] == [3, 2, 1]
        assert records.records(tx, table="lake.c", limit=1) == []


def test_what_is_old_is_pruned(database: Database) -> None:
    """Records and ended tasks, but no task whose directory is still there, and no live one."""
    clock = Clock()
    with database.begin() as tx:
        for number in (0, 1, 2):
            records.write(tx, recorded("lake.a", number, NOON + number * MINUTE))
        seen(tx, "lake.a")
        superseded, broken, live = offer(
            tx, "lake.a", [planned("a", small_files=0), planned("b"), planned("c")], NOON
        ).taken
        claim = present(attempts.claim(tx, [], "w", time=clock))
        assert claim.task.id == broken
        attempts.failed(tx, broken_id := claim.attempt_id, 1, "x", final=True, time=clock)
        offer(tx, "lake.a", [planned("c")], NOON)
        assert records.prune(tx, NOON) == (0, 0)
        assert records.prune(tx, NOON + MINUTE) == (1, 1)
        with pytest.raises(NotFound):
            task_store.task_by_id(tx, superseded)
        assert task_store.history(tx, superseded) == []
        assert task_store.task_by_id(tx, broken).state is TaskState.QUARANTINED
        orphaned_outputs.cleaned(tx, broken_id, time=clock)
        assert records.prune(tx, NOON + 2 * MINUTE) == (1, 1)
        assert attempt_lookup.attempts_of(tx, broken) == []
        assert [task.id for task in task_store.tasks(tx)] == [live]


def test_a_table_that_is_gone_is_forgotten_with_its_last_task(database: Database) -> None:
    """With when it was merged; one that is there stays however long."""
    with database.begin() as tx:
        seen(tx, "lake.a")
        seen(tx, "lake.b")
        tables.note_merged(tx, "lake.a", [(TaskKind.MAJOR, "")], NOON)
        offer(tx, "lake.a", [planned("a")], NOON)
        tables.table_gone(tx, "lake.a", NOON)
        records.prune(tx, NOON)
        assert [table.name for table in tables.all_tables(tx)] == ["lake.a", "lake.b"]
        records.prune(tx, NOON + MINUTE)
        assert [table.name for table in tables.all_tables(tx)] == ["lake.b"]
        assert tables.partitions_merged_at(tx, "lake.a") == {}


def test_workers_that_were_seen_lately_are_counted(database: Database) -> None:
    """By queue; one without queues works for all; who ends or is silent is gone."""
    clock = Clock()

    def beats(id: str, name: str, *queues: str) -> None:
        about = WorkerInfo(id=id, name=name, queues=queues, parallelism=2, host="h", pid=7)
        workers.record_heartbeat(tx, about, time=clock)

    with database.begin() as tx:
        beats("1", "one", "a", "b")
        clock.passes(seconds=60)
        beats("2", "two")
        beats("3", "three", "b")

        def live(queue: str | None = None) -> list[str]:
            return [worker.name for worker in workers.live_workers(tx, queue, time=clock)]

        assert (live(), live("a"), live("b"), live("c")) == (
            ["one", "two", "three"],
            ["one", "two"],
            ["one", "two", "three"],
            ["two"],
        )
        clock.passes(seconds=60)
        assert live() == ["two", "three"]
        beats("1", "one", "a")
        assert live("b") == ["two", "three"]
        (one, *_) = workers.live_workers(tx, time=clock)
        assert (one.started_at, one.seen_at) == (NOON, NOON + 2 * MINUTE)
        assert (one.queues, one.parallelism, one.host, one.pid) == (("a",), 2, "h", 7)
        workers.forget_worker(tx, "2")
        assert live() == ["one", "three"]
        clock.passes(days=1)
        assert workers.forget_silent_workers(tx, time=clock) == 2
        assert workers.live_workers(tx, within=timedelta(days=9), time=clock) == []
