"""What the committer takes and reports, and that only one does for a table."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import commit_leases, commits, orphaned_outputs
from arctic_orchestration.compaction.queue import backoff, task_store
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.task import PlannedTask, TaskKind, TaskState
from arctic_orchestration.compaction.work import attempt_lookup, attempts
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.errors import InvalidInput, NotFound, Refused, TransitionRefused
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.stored import (
    MERGE,
    MIB,
    MINUTE,
    NOON,
    planned,
)
from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.standing_clock import Clock

pytestmark = pytest.mark.usefixtures("two_tables")

SECOND = timedelta(seconds=1)


def merge(database: Database, clock: Clock, table: str, *plan: PlannedTask) -> list[str]:
    """Offers tasks and merges them, a minute each, one after the other; their ids."""
    with database.begin() as tx:
        offer(tx, table, plan, clock.now)
        ids = []
        for _ in plan:
            claim = present(attempts.claim(tx, [], "w", table=table, life=60 * MINUTE, time=clock))
            clock.passes(minutes=1)
            attempts.merged(tx, claim.attempt_id, claim.token, **MERGE, time=clock)
            ids.append(claim.task.id)
    return ids


def test_merged_tasks_come_with_their_groups_and_outputs(database: Database) -> None:
    """In the order in which they were merged; of the table that is requested."""
    clock = Clock()
    first, second = merge(database, clock, "lake.a", planned("a", "b"), planned("c", "d"))
    merge(database, clock, "lake.b", planned("x", "y"))
    with database.begin() as tx:
        found = commits.merged_tasks(tx, "lake.a")
        assert [one.task.id for one in found] == [first, second]
        assert [file.path for file in found[0].group.files] == ["a", "b"]
        assert present(found[0].attempt.outputs)[0].path == "out.parquet"
        assert commits.tables_to_commit(tx, time=clock) == ["lake.a", "lake.b"]
        assert commits.merged_tasks(tx, "lake.c") == []


def test_a_table_that_is_tried_again_lets_those_go_first_that_waited_meanwhile(
    database: Database,
) -> None:
    """``lake.b`` merged later, and can be committed to since before ``lake.a`` can again."""
    clock = Clock()
    merge(database, clock, "lake.a", planned("a", "b"))
    merge(database, clock, "lake.b", planned("x", "y"))
    merged_at = clock.now
    for next_at, order in (
        (merged_at - SECOND, ["lake.a", "lake.b"]),
        (merged_at + SECOND, ["lake.b", "lake.a"]),
        (merged_at + MINUTE, ["lake.b"]),
    ):
        clock.now = merged_at + 30 * SECOND
        with database.begin() as tx:
            lease = present(commit_leases.take_commit_lease(tx, "lake.a", "c", time=clock))
            commit_leases.end_commit_lease(tx, lease, next_commit_at=next_at, trouble="no answer")
            assert commits.tables_to_commit(tx, time=clock) == order


def test_a_commit_ends_its_tasks_and_is_recorded(database: Database) -> None:
    """Two tasks offered at noon, merged in a minute each, committed at 12:05."""
    clock = Clock()
    plan = [
        planned("a", "b", deletes=["d"], partition="day=1"),
        planned("c", "e", "f", kind=TaskKind.MAJOR, partition="day=2"),
    ]
    first, second = merge(database, clock, "lake.a", *plan)
    clock.now = NOON + 5 * MINUTE
    with database.begin() as tx:
        tables.rest(tx, "lake.a", "before", NOON)
        record = commits.committed(tx, [second, first], 77, delete_files_removed=1, time=clock)
        assert record is not None
        assert (record.table, record.snapshot_id, record.at) == ("lake.a", 77, clock.now)
        assert set(record.tasks) == {first, second}
        assert (record.files_in, record.files_out, record.delete_files_removed) == (5, 2, 1)
        assert (record.bytes_in, record.bytes_out) == (5 * MIB + 10, 2000)
        assert (record.rows, record.rows_deleted) == (398, 2)
        assert (record.merge_seconds, record.waited_seconds) == (120.0, 300.0)
        assert record.ways == {"append": 2}
        for id in (first, second):
            task = task_store.task_by_id(tx, id)
            assert (task.state, task.snapshot_id) == (TaskState.COMMITTED, 77)
            assert (task.ended_at, task.reason) == (clock.now, "in snapshot 77")
            assert attempt_lookup.attempts_of(tx, id)[0].state is AttemptState.COMMITTED
        assert task_store.live_paths(tx, "lake.a") == {}
        assert tables.partitions_merged_at(tx, "lake.a") == {
            (TaskKind.MINOR, "day=1"): clock.now,
            (TaskKind.MAJOR, "day=2"): clock.now,
        }
        assert not tables.table_by_name(tx, "lake.a").rests(clock.now)
        assert commits.merged_tasks(tx, "lake.a") == []
        clock.passes(days=1)
        assert orphaned_outputs.to_clean(tx, time=clock) == []


def test_a_commit_that_is_recognised_again_changes_nothing(database: Database) -> None:
    """The second report of a snapshot has no effect; what it names besides is still reported."""
    clock = Clock()
    first, second = merge(database, clock, "lake.a", planned("a"), planned("b"))
    with database.begin() as tx:
        assert commits.committed(tx, [first], 77, time=clock) is not None
        before = task_store.history(tx, first)
        assert commits.committed(tx, [first], 77, time=clock) is None
        assert task_store.history(tx, first) == before
        assert commits.committed(tx, [first, second], 77, time=clock) is not None
        assert commits.committed(tx, [], 77, time=clock) is None
        with pytest.raises(TransitionRefused, match="in snapshot 77 already, .* snapshot 78 too"):
            commits.committed(tx, [first], 78, time=clock)


def test_a_task_that_conflicts_makes_its_table_due(database: Database) -> None:
    """It is superseded, alone; its files are free, and its outputs are removed."""
    clock = Clock()
    first, second = merge(database, clock, "lake.a", planned("a"), planned("b"))
    with database.begin() as tx:
        commits.conflicted(tx, first, "file a is gone", time=clock)
        task = task_store.task_by_id(tx, first)
        assert (task.state, task.reason) == (
            TaskState.SUPERSEDED,
            "the table has changed: file a is gone",
        )
        due = tables.table_by_name(tx, "lake.a")
        assert due.due_reason == f"task {first} came too late: file a is gone"
        assert set(task_store.live_paths(tx, "lake.a")) == {"b"}
        assert [one.task.id for one in commits.merged_tasks(tx, "lake.a")] == [second]
        assert attempt_lookup.attempts_of(tx, first)[0].state is AttemptState.DROPPED
        clock.passes(days=1)
        assert [one.task_id for one in orphaned_outputs.to_clean(tx, time=clock)] == [first]


def test_a_task_with_wrong_outputs_goes_into_quarantine(database: Database) -> None:
    """And its files rest, for ten minutes at first."""
    clock = Clock()
    (id,) = merge(database, clock, "lake.a", planned("a"))
    with database.begin() as tx:
        commits.wrong(tx, id, "198 rows, 199 were expected", time=clock)
        task = task_store.task_by_id(tx, id)
        assert task.state is TaskState.QUARANTINED
        assert task.reason == "its outputs are wrong: 198 rows, 199 were expected"
        (resting,) = backoff.resting(tx, "lake.a", clock.now).values()
        assert (resting.path, resting.until) == ("a", clock.now + 10 * MINUTE)
        assert (
            resting.reason
            == f"task {id} is in quarantine: its outputs are wrong: 198 rows, 199 were expected"
        )
        for report in (commits.wrong, commits.conflicted):
            with pytest.raises(TransitionRefused, match=f"{id} is quarantined"):
                report(tx, id, "again", time=clock)
        with pytest.raises(TransitionRefused, match="is quarantined and cannot become committed"):
            commits.committed(tx, [id], 5, time=clock)


def test_only_merged_tasks_of_one_table_are_committed(database: Database) -> None:
    """A waiting one, one of another table, one that is not there: nothing changes."""
    clock = Clock()
    (mine,) = merge(database, clock, "lake.a", planned("a"))
    (other,) = merge(database, clock, "lake.b", planned("x"))
    with database.begin() as tx:
        (waits,) = offer(tx, "lake.a", [planned("w")], NOON).taken
    for ids, error, message in (
        ([mine, waits], TransitionRefused, "is planned and cannot become committed"),
        ([mine, other], InvalidInput, "tasks of one table"),
        ([mine, "nothing"], NotFound, "no compaction task nothing"),
    ):
        with pytest.raises(error, match=message), database.begin() as tx:
            commits.committed(tx, ids, 5, time=clock)
    with database.begin() as tx:
        for refused in (commits.wrong, commits.conflicted):
            with pytest.raises(TransitionRefused, match=f"{waits} is planned and cannot become"):
                refused(tx, waits, "no", time=clock)
        assert task_store.task_by_id(tx, mine).state is TaskState.MERGED


def test_one_committer_has_a_table_at_a_time(database: Database) -> None:
    """Until it gives it back, or its lease is over; then the late one's reports are refused."""
    clock = Clock()
    first, second = merge(database, clock, "lake.a", planned("a"), planned("b"))
    with database.begin() as tx:
        one = commit_leases.take_commit_lease(tx, "lake.a", "one", time=clock)
        assert one is not None
        assert commit_leases.take_commit_lease(tx, "lake.a", "two", time=clock) is None
        assert commits.tables_to_commit(tx, time=clock) == []
        clock.passes(seconds=59)
        one = commit_leases.renew_commit_lease(tx, one, time=clock)
        assert one is not None
        clock.passes(seconds=59)
        assert commit_leases.take_commit_lease(tx, "lake.a", "two", time=clock) is None
        clock.passes(seconds=2)
        assert commit_leases.renew_commit_lease(tx, one, time=clock) is not None, (
            "nobody has taken it"
        )
        clock.passes(seconds=60)
        two = commit_leases.take_commit_lease(tx, "lake.a", "two", time=clock)
        assert two is not None
        assert two.token == one.token + 1
        assert commit_leases.renew_commit_lease(tx, one, time=clock) is None
        reports: list[Callable[[], object]] = [
            lambda: commits.committed(tx, [first], 5, lease=one, time=clock),
            lambda: commits.conflicted(tx, first, "x", lease=one, time=clock),
            lambda: commits.wrong(tx, first, "x", lease=one, time=clock),
        ]
        for report in reports:
            with pytest.raises(Refused, match=r"committer one has lost table lake\.a"):
                report()
        commit_leases.end_commit_lease(tx, one, next_commit_at=clock.now + timedelta(days=9))
        assert tables.table_by_name(tx, "lake.a").commit_owner == "two"
        assert commits.committed(tx, [first], 5, lease=two, time=clock) is not None
        with pytest.raises(NotFound, match=r"for table lake\.b, the task is of lake\.a"):
            commits.committed(
                tx, [second], 5, time=clock,
                lease=commit_leases.take_commit_lease(tx, "lake.b", "two", time=clock),
            )  # fmt: skip


def test_a_table_is_committed_to_no_earlier_than_its_interval_says(database: Database) -> None:
    """Whoever ends the lease says when the next commit may be."""
    clock = Clock()
    merge(database, clock, "lake.a", planned("a"))
    with database.begin() as tx:
        lease = present(commit_leases.take_commit_lease(tx, "lake.a", "one", time=clock))
        commit_leases.end_commit_lease(tx, lease, next_commit_at=clock.now + MINUTE)
        assert commits.tables_to_commit(tx, time=clock) == []
        clock.passes(seconds=60)
        assert commits.tables_to_commit(tx, time=clock) == ["lake.a"]
        lease = present(commit_leases.take_commit_lease(tx, "lake.a", "one", time=clock))
        commit_leases.end_commit_lease(tx, lease)
        assert commits.tables_to_commit(tx, time=clock) == ["lake.a"]
        assert commit_leases.take_commit_lease(tx, "lake.x", "one", time=clock) is None


def test_a_merged_task_is_taken_back_by_who_has_the_table(database: Database) -> None:
    """Its files are free, its outputs are left over; another's lease, or none, does not do."""
    clock = Clock()
    first, second = merge(database, clock, "lake.a", planned("a"), planned("b"))
    with database.begin() as tx:
        late = commit_leases.take_commit_lease(tx, "lake.a", "late", time=clock)
        assert late is not None
        clock.passes(seconds=60)
        lease = commit_leases.take_commit_lease(tx, "lake.a", "a person", time=clock)
        assert lease is not None
        with pytest.raises(Refused, match=r"committer late has lost table lake\.a"):
            commits.cancel_merged(tx, first, "canceled", late, time=clock)
        version = tables.table_by_name(tx, "lake.a").version
        commits.cancel_merged(tx, first, "canceled by a person", lease, time=clock)
        task = task_store.task_by_id(tx, first)
        assert (task.state, task.reason) == (TaskState.CANCELED, "canceled by a person")
        assert set(task_store.live_paths(tx, "lake.a")) == {"b"}
        assert attempt_lookup.attempts_of(tx, first)[0].state is AttemptState.DROPPED
        assert tables.table_by_name(tx, "lake.a").version == version + 1
        with pytest.raises(TransitionRefused, match=f"{first} is canceled"):
            commits.cancel_merged(tx, first, "again", lease, time=clock)
        assert commits.committed(tx, [second], 5, lease=lease, time=clock) is not None
        clock.passes(days=1)
        assert [one.task_id for one in orphaned_outputs.to_clean(tx, time=clock)] == [first]


def test_what_troubles_the_committer_stands_in_the_row_of_the_table(database: Database) -> None:
    """Until the next one ends without trouble; one that has lost the table changes nothing."""
    clock = Clock()
    with database.begin() as tx:
        lease = present(commit_leases.take_commit_lease(tx, "lake.a", "one", time=clock))
        commit_leases.end_commit_lease(tx, lease, trouble="access \x00denied \udcff")
        # What no database holds in a text is replaced.
        assert tables.table_by_name(tx, "lake.a").commit_trouble == "access \ufffddenied \ufffd"
        two = present(commit_leases.take_commit_lease(tx, "lake.a", "two", time=clock))
        commit_leases.end_commit_lease(tx, lease)
        assert tables.table_by_name(tx, "lake.a").commit_trouble is not None
        commit_leases.end_commit_lease(tx, two)
        assert tables.table_by_name(tx, "lake.a").commit_trouble is None


def test_so_many_merged_tasks_are_taken_at_most(database: Database) -> None:
    """Those that were merged first."""
    ids = merge(database, Clock(), "lake.a", *(planned(f"f{number}") for number in range(4)))
    with database.begin() as tx:
        found = commits.merged_tasks(tx, "lake.a", limit=3)
    assert [one.task.id for one in found] == ids[:3]
