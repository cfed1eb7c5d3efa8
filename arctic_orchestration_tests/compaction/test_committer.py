"""The committer publishes merged tasks: once, all of a table together, whatever goes wrong."""

import threading
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from arctic_orchestration import leases
from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.commit import commit_leases, commits, records
from arctic_orchestration.compaction.commit import committer as module
from arctic_orchestration.compaction.commit.cleaner import clean
from arctic_orchestration.compaction.commit.committer import Committer
from arctic_orchestration.compaction.planning.catalog_planner import Planner
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.tables import table_by_name
from arctic_orchestration.compaction.work import attempt_lookup
from arctic_orchestration.lake.replacing.replace import TASKS, replace_files
from arctic_orchestration.quantities import parse_duration
from arctic_orchestration.state.compaction_tables import (
    compaction_tables,
)
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.compaction.merged_tasks import files_of, merged, states_of, tasks_of
from arctic_orchestration_tests.compaction.small_lake import (
    add_file,
    rows_of,
    table_of,
)
from arctic_orchestration_tests.compaction.stored import NOON
from arctic_orchestration_tests.lake.row_filters import EqualTo
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.present import present


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table of six files with ten rows each."""
    return table_of(catalog, files=6)


def end_leases(state: Database) -> None:
    """As if the time of all leases to commit were over."""
    with state.begin() as tx:
        tx.execute(
            sa.update(compaction_tables).values(
                commit_expires_at=database_time(tx) - timedelta(seconds=1)
            )
        )


def test_all_merged_tasks_of_a_table_are_one_snapshot(
    state: Database, catalog: Catalog, table: Table
) -> None:
    """It replaces, names its tasks, and readers see the same rows."""
    before, snapshots = rows_of(table), len(table.refresh().snapshots())
    ids = merged(state, catalog, table)
    counts = Committer(state, catalog).tick()
    assert (counts.snapshots, counts.committed, counts.conflicts, counts.wrong) == (1, 3, 0, 0)
    assert rows_of(table) == before
    assert (files_of(table), len(table.snapshots())) == (3, snapshots + 1)
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation.value == "replace"
    assert sorted(present(head.summary[TASKS]).split(",")) == sorted(ids)
    assert states_of(state) == [TaskState.COMMITTED] * 3
    with state.read() as tx:
        (record,) = records.records(tx)
    assert (record.table, record.snapshot_id) == ("lake.words", head.snapshot_id)
    assert (record.files_in, record.files_out, record.rows) == (6, 3, 60)
    assert sorted(record.tasks) == sorted(ids)


def test_it_commits_no_more_often_than_the_table_wants(
    state: Database, catalog: Catalog, table: Table
) -> None:
    """A minute by itself, less by the table's property; who is asked for the table, commits."""
    merged(state, catalog, table)
    assert Committer(state, catalog).tick().snapshots == 1
    for number in range(10, 12):
        add_file(table, number)
    with state.read() as tx:
        assert table_by_name(tx, "lake.words").next_commit_at is not None
    merged(state, catalog, table)
    assert Committer(state, catalog).tick().snapshots == 0
    round_ = Committer(state, catalog).commit("lake.words")
    assert round_ is not None
    assert round_.counts.snapshots == 1


@pytest.mark.parametrize(("named", "interval"), [(None, "60s"), ("10m", "10m"), ("0s", "0s")])
def test_the_next_commit_is_a_commit_interval_later(
    state: Database, catalog: Catalog, monkeypatch: pytest.MonkeyPatch,
    named: str | None, interval: str,
) -> None:  # fmt: skip
    properties = {} if named is None else {"arctic.compaction.commit-interval": named}
    merged(state, catalog, table_of(catalog, files=2, **properties))
    monkeypatch.setattr(module, "database_time", lambda _: NOON)
    assert Committer(state, catalog).tick().snapshots == 1
    with state.read() as tx:
        next_at = table_by_name(tx, "lake.words").next_commit_at
    assert next_at == NOON + parse_duration(interval)


@pytest.mark.parametrize(("now", "sooner"), [("10m", True), ("2d", False)])
def test_a_shorter_commit_interval_counts_at_once(
    state: Database, catalog: Catalog, table: Table, now: str, sooner: bool
) -> None:
    """At the planner's next check; merged tasks do not wait for the end of the longer one."""
    merged(state, catalog, table)
    with state.begin() as tx:
        then = database_time(tx) + timedelta(days=1)
        tx.execute(sa.update(compaction_tables).values(next_commit_at=then))
    with table.transaction() as change:
        change.set_properties({"arctic.compaction.commit-interval": now})
    Planner(state, catalog).tick(utc_now())
    with state.read() as tx:
        at, latest = table_by_name(tx, "lake.words").next_commit_at, database_time(tx)
    assert present(at) <= latest + parse_duration(now) if sooner else at == then


def test_a_snapshot_has_so_many_tasks_oldest_merge_first(
    state: Database, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500; the others are committed one commit interval later."""
    assert module.MOST_TASKS == 500
    monkeypatch.setattr(module, "MOST_TASKS", 2)
    merged(state, catalog, table)
    before = rows_of(table)
    oldest = sorted(tasks_of(state).values(), key=lambda task: (task.state_at, task.id))
    assert len(oldest) == 3
    counts = Committer(state, catalog).tick()
    assert (counts.snapshots, counts.committed) == (1, 2)
    states = {id: task.state for id, task in tasks_of(state).items()}
    assert [states[task.id] for task in oldest] == [
        TaskState.COMMITTED, TaskState.COMMITTED, TaskState.MERGED
    ]  # fmt: skip
    with state.read() as tx:
        assert present(table_by_name(tx, "lake.words").next_commit_at) > database_time(tx)
    assert present(Committer(state, catalog).commit("lake.words")).counts.committed == 1
    assert (rows_of(table), files_of(table)) == (before, 3)


def test_a_conflict_drops_one_task_alone(state: Database, catalog: Catalog, table: Table) -> None:
    """The rows that were deleted meanwhile stay deleted, and the table is due again."""
    ids = merged(state, catalog, table)
    table.refresh()
    # All rows of one file; pyiceberg writes that file out of the table.
    table.delete(EqualTo("word", "w0"))
    expected = rows_of(table)
    counts = Committer(state, catalog).tick()
    assert (counts.committed, counts.conflicts) == (2, 1)
    assert rows_of(table) == expected
    assert len(expected) == 50
    assert states_of(state) == [TaskState.COMMITTED, TaskState.COMMITTED, TaskState.SUPERSEDED]
    with state.read() as tx:
        assert table_by_name(tx, "lake.words").due_since is not None
    assert len(ids) == 3


def test_outputs_that_are_not_what_they_should_be_are_put_aside(
    state: Database, catalog: Catalog, table: Table
) -> None:
    """A lost file, or one with other rows; the others are committed, the table as it was."""
    before = rows_of(table)
    merged(state, catalog, table)
    with state.read() as tx:
        found = [attempt_lookup.attempts_of(tx, id)[-1] for id in tasks_of(state)]
    Path(found[0].outputs[0].path).unlink()  # type: ignore[index]
    # The rows of another merge: readable, and as many bytes as it should have, but not these.
    one, other = (Path(each.outputs[0].path) for each in found[1:])  # type: ignore[index]
    pq.write_table(pq.read_table(other).slice(0, 19), one)
    counts = Committer(state, catalog).tick()
    assert (counts.committed, counts.wrong) == (1, 2)
    assert rows_of(table) == before
    reasons = [task.reason for task in tasks_of(state).values()]
    assert any("is missing" in reason for reason in reasons)
    assert any("19 rows" in reason for reason in reasons)


def test_a_crash_after_the_snapshot_is_recognised(
    state: Database, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next committer writes down what the snapshot says, and commits nothing again."""
    before = rows_of(table)
    merged(state, catalog, table)

    class Killed(BaseException):
        pass

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(commits, "committed", killed)
        with pytest.raises(Killed):
            Committer(state, catalog).tick()
    end_leases(state)
    assert states_of(state) == [TaskState.MERGED] * 3
    snapshots = len(table.refresh().snapshots())
    counts = Committer(state, catalog).tick()
    assert (counts.snapshots, counts.committed) == (1, 3)
    assert len(table.refresh().snapshots()) == snapshots
    assert rows_of(table) == before
    assert states_of(state) == [TaskState.COMMITTED] * 3
    with state.read() as tx:
        (record,) = records.records(tx)
    head = table.current_snapshot()
    assert head is not None
    assert record.snapshot_id == head.snapshot_id


def test_only_one_committer_has_a_table(state: Database, catalog: Catalog, table: Table) -> None:
    merged(state, catalog, table)
    with state.begin() as tx:
        lease = commit_leases.take_commit_lease(tx, "lake.words", "another one")
    assert lease is not None
    assert Committer(state, catalog).commit("lake.words") is None
    with state.begin() as tx:
        commit_leases.end_commit_lease(tx, lease)
    assert Committer(state, catalog).tick().snapshots == 1


def test_a_committer_that_was_stopped_too_long_reports_nothing(
    state: Database, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one took over, found the snapshot and wrote it down: once."""
    merged(state, catalog, table)
    replace = replace_files
    others: list[Any] = []

    def stopped(*args: Any, **named: Any) -> Any:
        done = replace(*args, **named)
        end_leases(state)
        with monkeypatch.context() as patched:
            patched.setattr(module, "replace_files", replace)
            others.append(Committer(state, catalog).tick())
        return done

    with monkeypatch.context() as patched:
        patched.setattr(module, "replace_files", stopped)
        assert Committer(state, catalog).commit("lake.words") is None
    assert [(one.snapshots, one.committed) for one in others] == [(1, 3)]
    with state.read() as tx:
        assert len(records.records(tx)) == 1
    assert states_of(state) == [TaskState.COMMITTED] * 3


def test_a_committer_that_is_late_publishes_nothing(
    state: Database, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is requested just before the snapshot; what another one dropped stays out."""
    before = rows_of(table)
    ids = merged(state, catalog, table)
    snapshots = len(table.refresh().snapshots())
    replace = replace_files

    def late(*args: Any, **named: Any) -> Any:
        end_leases(state)
        with state.begin() as tx:
            other = commit_leases.take_commit_lease(tx, "lake.words", "another one")
            assert other is not None
            for id in ids:
                commits.conflicted(tx, id, "it is a test", lease=other)
        return replace(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(module, "replace_files", late)
        assert Committer(state, catalog).commit("lake.words") is None
    assert len(table.refresh().snapshots()) == snapshots
    assert rows_of(table) == before
    assert states_of(state) == [TaskState.SUPERSEDED] * 3


def test_a_round_may_take_longer_than_a_lease_holds(
    state: Database, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is renewed meanwhile, so that no other committer begins the same round again."""
    merged(state, catalog, table)
    replace, life = replace_files, timedelta(minutes=10)
    # Each hundredth of a second.
    monkeypatch.setattr(leases, "RENEWALS", 60_000)

    def half_over() -> datetime:
        """As if half of its life had passed."""
        with state.begin() as tx:
            at = database_time(tx) + life / 2
            tx.execute(sa.update(compaction_tables).values(commit_expires_at=at))
        return at

    def renewed_beyond(moment: datetime) -> bool:
        with state.read() as tx:
            at = table_by_name(tx, "lake.words").commit_expires_at
        assert at is not None
        return at > moment

    def slow(*args: Any, **named: Any) -> Any:
        for _ in range(3):
            until(partial(renewed_beyond, half_over()), "the lease is renewed")
        assert Committer(state, catalog).commit("lake.words") is None
        return replace(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(module, "replace_files", slow)
        done = Committer(state, catalog, life=life).commit("lake.words")
    assert done is not None
    assert done.counts.committed == 3


def test_a_round_that_hangs_gives_its_table_to_another_committer(
    state: Database, catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its longest time it renews no more; when it goes on, it publishes nothing."""
    merged(state, catalog, table)
    snapshots = len(table.refresh().snapshots())
    replace = replace_files
    monkeypatch.setattr(leases, "RENEWALS", 60_000)

    def renews() -> bool:
        return any(one.name.startswith("renews the lease") for one in threading.enumerate())

    def hanging(*args: Any, **named: Any) -> Any:
        until(lambda: not renews(), "nothing renews the lease")
        with state.begin() as tx:
            over = database_time(tx)
            tx.execute(sa.update(compaction_tables).values(commit_expires_at=over))
        monkeypatch.setattr(module, "replace_files", replace)
        other = Committer(state, catalog).commit("lake.words")
        assert other is not None
        assert other.counts.committed == 3
        return replace(*args, **named)

    monkeypatch.setattr(module, "replace_files", hanging)
    first = Committer(state, catalog, longest_round=timedelta(0))
    assert first.commit("lake.words") is None
    assert len(table.refresh().snapshots()) == snapshots + 1
    assert states_of(state) == [TaskState.COMMITTED] * 3


def test_what_no_snapshot_wants_is_removed(state: Database, catalog: Catalog, table: Table) -> None:
    """The directories of dropped merges, and those alone; each is counted once."""
    ids = merged(state, catalog, table)
    with state.read() as tx:
        paths = {
            id: [Path(one.path) for one in attempt_lookup.attempts_of(tx, id)[-1].outputs or ()]
            for id in ids
        }
    table.refresh()
    table.delete(EqualTo("word", "w0"))
    assert clean(state, catalog, grace=timedelta(days=-1)).removed == 0
    assert Committer(state, catalog).tick().conflicts == 1
    assert clean(state, catalog, grace=timedelta(days=-1)).removed == 1
    assert clean(state, catalog, grace=timedelta(days=-1)).removed == 0
    for task in tasks_of(state).values():
        there = [path.exists() for path in paths[task.id]]
        assert there == [task.state is TaskState.COMMITTED]
    assert len(rows_of(table)) == 50
