"""What the committer takes and reports: merged tasks.

Two mechanisms prevent a double commit. The lease of ``commit_leases``: each report checks its token
in the same transaction. And the snapshot, which names its tasks: a committer that died after its
commit leaves tasks that are merged here and committed in the table; the next one finds them there
and reports them. A repeated report with the same snapshot changes nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import records
from arctic_orchestration.compaction.commit.commit_leases import CommitLease
from arctic_orchestration.compaction.commit.records import CompactionRecord
from arctic_orchestration.compaction.queue import backoff, task_store
from arctic_orchestration.compaction.queue.quarantine import quarantine
from arctic_orchestration.compaction.queue.task import Task, TaskKind, TaskState
from arctic_orchestration.compaction.work.attempt import Attempt, AttemptState
from arctic_orchestration.compaction.work.attempts import Time
from arctic_orchestration.errors import (
    InvalidInput,
    LakeError,
    NotFound,
    Refused,
    TransitionRefused,
)
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_attempts,
    compaction_tables,
    compaction_tasks,
    is_merged,
)
from arctic_orchestration.state.dialect import database_time


@dataclass(frozen=True, kw_only=True, slots=True)
class MergedTask:
    """A task that waits for the committer, with the outputs of its merge."""

    task: Task
    group: FileGroup
    attempt: Attempt


def tables_to_commit(tx: sa.Connection, *, time: Time = database_time) -> list[str]:
    """Returns tables with merged tasks, an elapsed commit interval and no committer.

    The table that could have been committed to for the longest time comes first: tables that are
    retried again and again do not keep others waiting. Another committer may still take it before
    :func:`~.commit_leases.take_commit_lease` succeeds.
    """
    now, col, task = time(tx), compaction_tables.c, compaction_tasks.c
    merged_at, next_at = sa.func.min(task.state_at), sa.func.max(col.next_commit_at)
    query = (
        sa.select(task.table_name)
        .join(compaction_tables, col.name == task.table_name)
        .where(
            is_merged,
            col.next_commit_at.is_(None) | (col.next_commit_at <= now),
            col.commit_expires_at.is_(None) | (col.commit_expires_at <= now),
        )
        .group_by(task.table_name)
        .order_by(sa.case((next_at > merged_at, next_at), else_=merged_at), task.table_name)
    )
    return list(tx.execute(query).scalars())


def merged_tasks(
    tx: sa.Connection, table: str, limit: int | None = None, *, unreadable: list[str] | None = None
) -> list[MergedTask]:
    """Returns the tasks of a table that wait for the committer, oldest merge first.

    Args:
        tx: the transaction.
        table: its name.
        limit: the maximum number.
        unreadable: receives a text for each task whose stored files cannot be read. These stay: a
            snapshot may contain their outputs.
    """
    col = compaction_tasks.c
    query = sa.select(compaction_tasks).where(is_merged, col.table_name == table)
    rows = tx.execute(query.order_by(col.state_at, col.id).limit(limit)).mappings().all()
    attempts = _attempts(tx, [row["attempt_id"] for row in rows])
    found = []
    for row in rows:
        try:
            group = task_store.read_group(row["id"], row["file_group"])
        except LakeError as error:
            if unreadable is not None:
                unreadable.append(str(error))
            continue
        attempt = attempts[row["attempt_id"]]
        found.append(MergedTask(task=Task.from_row(row), group=group, attempt=attempt))
    return found


def committed(
    tx: sa.Connection,
    ids: Collection[str],
    snapshot_id: int,
    *,
    delete_files_removed: int = 0,
    lease: CommitLease | None = None,
    time: Time = database_time,
) -> CompactionRecord | None:
    """Reports that a snapshot contains the outputs of tasks of one table, and writes the record.

    Args:
        tx: the transaction.
        ids: all tasks that the snapshot names; tasks that were already reported with this snapshot
            stay unchanged.
        snapshot_id: the snapshot with their outputs.
        delete_files_removed: how many delete files the snapshot removed.
        lease: the lease of the committer; none: the tasks were found in the table's history.
        time: the source of the time.

    Returns:
        the record; none: all tasks were already reported.

    Errors:
        NotFound: no such task.
        InvalidInput: they belong to several tables.
        Refused: another committer has the lease.
        TransitionRefused: a task is not merged, or is in another snapshot.
    """
    found = [task_store.task_by_id(tx, id) for id in sorted(set(ids))]
    names = sorted({task.table for task in found})
    if not names:
        return None
    if len(names) > 1:
        raise InvalidInput("ids", names, "tasks of one table")
    (table,) = names
    _lock(tx, table, lease)
    now = time(tx)
    # Read again under the lock.
    found = [task_store.task_by_id(tx, task.id) for task in found]
    fresh = [task for task in found if task.state is not TaskState.COMMITTED]
    for task in found:
        if task.state is TaskState.COMMITTED and task.snapshot_id != snapshot_id:
            raise TransitionRefused(
                f"Compaction task {task.id} is in snapshot {task.snapshot_id} already, "
                f"and cannot be in snapshot {snapshot_id} too"
            )
    if not fresh:
        return None
    attempts = _attempts(tx, [task.attempt_id for task in fresh if task.attempt_id is not None])
    # Before the tasks end, which releases their files.
    backoff.forget_files_of(tx, table, [task.id for task in fresh])
    task_store.move(
        tx, [(task.id, task.state) for task in fresh], TaskState.COMMITTED,
        f"in snapshot {snapshot_id}", now, values={"snapshot_id": snapshot_id},
    )  # fmt: skip
    _end_attempts(tx, fresh, AttemptState.COMMITTED, f"in snapshot {snapshot_id}", over_at=None)
    record = _recorded(fresh, attempts, snapshot_id, delete_files_removed, now)
    records.write(tx, record)
    tables.wake(tx, table)
    tables.note_merged(tx, table, ((task.kind, task.partition) for task in fresh), now)
    for task in fresh:
        if task.kind is TaskKind.FULL:
            number = task_store.group_of(tx, task.id).sequence_number
            tables.note_rewritten(tx, table, task.partition, number)
    tables.next_version(tx, table)
    return record


def conflicted(
    tx: sa.Connection,
    id: str,
    reason: str,
    *,
    lease: CommitLease | None = None,
    keeps: str | None = None,
    time: Time = database_time,
) -> None:
    """Drops a merged task after a conflicting change of its table; the table is due at once.

    Its group of files is outdated, so it is not claimed again: the next plan contains the remaining
    files.

    Args:
        tx: the transaction.
        id: the task.
        reason: for people.
        lease: the lease of the committer.
        keeps: why its outputs are not removed; none: they are.
        time: the source of the time.

    Errors:
        NotFound: no such task.
        Refused: another committer has the lease.
        TransitionRefused: it is not merged.
    """
    text = f"the table has changed: {reason}"
    task = _dropped(tx, id, TaskState.SUPERSEDED, text, lease, time, keeps=keeps)
    tables.make_due(tx, task.table, f"task {id} came too late: {reason}", time(tx))


def wrong(
    tx: sa.Connection,
    id: str,
    reason: str,
    *,
    lease: CommitLease | None = None,
    time: Time = database_time,
) -> None:
    """Quarantines a merged task with wrong outputs.

    Its files rest.

    Errors:
        NotFound: no such task.
        Refused: another committer has the lease.
        TransitionRefused: it is not merged.
    """
    _dropped(tx, id, TaskState.QUARANTINED, f"its outputs are wrong: {reason}", lease, time)


def cancel_merged(
    tx: sa.Connection, id: str, reason: str, lease: CommitLease, *, time: Time = database_time
) -> None:
    """Cancels a merged task that no committer can commit, on a person's request.

    Its files rest for a day. The caller has checked that no snapshot contains its outputs: a
    committer may have died before its report.

    Args:
        tx: the transaction.
        id: the task.
        reason: for people.
        lease: keeps committers away meanwhile.
        time: the source of the time.

    Errors:
        NotFound: no such task.
        Refused: another committer has the lease.
        TransitionRefused: it is not merged.
    """
    _dropped(tx, id, TaskState.CANCELED, reason, lease, time)


def _dropped(
    tx: sa.Connection,
    id: str,
    to: TaskState,
    reason: str,
    lease: CommitLease | None,
    time: Time,
    *,
    keeps: str | None = None,
) -> Task:
    table = task_store.task_by_id(tx, id).table
    _lock(tx, table, lease)
    task = task_store.task_by_id(tx, id)
    if task.state is not TaskState.MERGED:
        # Even where the table of moves would allow it: a committer ends merged tasks only.
        raise TransitionRefused(
            f"Compaction task {id} is {task.state} and cannot become {to} as if it were merged"
        )
    now = time(tx)
    if to is TaskState.QUARANTINED:
        quarantine(tx, task, reason, reason, now, attempt_id=task.attempt_id)
    else:
        if to is TaskState.CANCELED:
            # Before the task ends, which releases its files.
            rest = f"task {id}: {reason}"
            backoff.rest_files_of(tx, task, rest, now, length=backoff.CANCELED_REST)
        task_store.move(tx, [(id, task.state)], to, reason, now, attempt_id=task.attempt_id)
    _end_attempts(tx, [task], AttemptState.DROPPED, reason, over_at=now, keeps=keeps)
    tables.next_version(tx, table)
    return task


def _lock(tx: sa.Connection, table: str, lease: CommitLease | None) -> None:
    """Locks the table's row against a take-over, and checks the lease."""
    row = tables.lock_table(tx, table)
    if lease is None:
        return
    if lease.table != table:
        raise NotFound(f"the lease to commit is for table {lease.table}, the task is of {table}")
    if row.commit_token != lease.token:
        raise Refused(
            f"committer {lease.owner} has lost table {table}: its token is {lease.token}, "
            f"that of the table is {row.commit_token}"
        )


def _end_attempts(
    tx: sa.Connection,
    tasks: Sequence[Task],
    state: AttemptState,
    reason: str,
    *,
    over_at: datetime | None,
    keeps: str | None = None,
) -> None:
    ids = [task.attempt_id for task in tasks if task.attempt_id is not None]
    tx.execute(
        sa.update(compaction_attempts)
        .where(dialect.among(tx, compaction_attempts.c.id, ids))
        .values(state=state.value, reason=reason, over_at=over_at, kept_reason=keeps)
    )


def _attempts(tx: sa.Connection, ids: Sequence[str]) -> dict[str, Attempt]:
    query = sa.select(compaction_attempts).where(dialect.among(tx, compaction_attempts.c.id, ids))
    return {row.id: Attempt.from_row(row) for row in tx.execute(query)}


def _recorded(
    tasks: Sequence[Task],
    attempts: dict[str, Attempt],
    snapshot_id: int,
    delete_files_removed: int,
    now: datetime,
) -> CompactionRecord:
    done = [attempts[task.attempt_id] for task in tasks if task.attempt_id in attempts]
    outputs = [output for attempt in done for output in attempt.outputs or ()]
    ways: dict[str, int] = {}
    for attempt in done:
        if attempt.way is not None:
            ways[attempt.way] = ways.get(attempt.way, 0) + 1
    return CompactionRecord(
        table=tasks[0].table,
        snapshot_id=snapshot_id,
        at=now,
        tasks=tuple(task.id for task in tasks),
        files_in=sum(task.files for task in tasks),
        files_out=len(outputs),
        delete_files_removed=delete_files_removed,
        bytes_in=sum(task.bytes for task in tasks),
        bytes_out=sum(output.size for output in outputs),
        rows=sum(attempt.rows_out or 0 for attempt in done),
        rows_deleted=sum(attempt.rows_deleted or 0 for attempt in done),
        merge_seconds=sum(
            (attempt.ended_at - attempt.claimed_at).total_seconds()
            for attempt in done
            if attempt.ended_at is not None
        ),
        waited_seconds=max((now - min(task.offered_at for task in tasks)).total_seconds(), 0.0),
        ways=ways,
    )
