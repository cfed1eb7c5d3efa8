"""Attempts: a worker's exclusive right to a task, while its lease is renewed.

Each claim is an attempt with an id, a *fencing token* one higher than the task's last, and a lease
that expires unless it is renewed, preferably at a third of its life. Every report contains id and
token; it is accepted only while the attempt is the live one and its lease has not expired, by the
database's time, as the condition of one statement decides. So a paused worker that resumes is
refused, even if the task was not claimed since: an attempt with an expired lease counts as lost,
and its outputs are removed.

An attempt counts from its claim, but not if it is released. A failed task is planned again after
its retry interval, a lost one at once; the last failed or lost attempt quarantines the task, and
makes its files rest. A task that waits again does so in the present queue of its table.

Functions take ``time``, the source of the time: in tests a fixed clock.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.budget import spend
from arctic_orchestration.compaction.queue.claim_order import WORKER_ENDS, plan_again
from arctic_orchestration.compaction.queue.quarantine import quarantine
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.work.attempt import (
    Attempt,
    AttemptState,
    Claim,
    MergedFile,
    Output,
)
from arctic_orchestration.compaction.work.attempt_lookup import why_refused
from arctic_orchestration.compaction.work.claim import LEASE, Time, claim
from arctic_orchestration.compaction.work.expired_attempts import overdue_attempts
from arctic_orchestration.errors import InvalidInput, Refused
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.state.compaction_tables import attempt_is_live, compaction_attempts
from arctic_orchestration.state.dialect import database_time

__all__ = [
    "LEASE", "Attempt", "AttemptState", "Claim", "MergedFile", "Output", "Time", "claim", "expire",
    "failed", "merged", "plan_again", "release", "release_all", "renew", "writes_to",
]  # fmt: skip


def renew(
    tx: sa.Connection,
    attempt_id: str,
    token: int,
    *,
    life: timedelta = LEASE,
    time: Time = database_time,
) -> bool:
    """Renews a lease for another ``life`` from now.

    Returns:
        false: it has expired; the worker should stop, because its report would be refused.
    """
    now = time(tx)
    changed = tx.execute(
        sa.update(compaction_attempts)
        .where(*_held(attempt_id, token, now))
        .values(expires_at=now + life)
    )
    return changed.rowcount == 1


def writes_to(
    tx: sa.Connection,
    attempt_id: str,
    token: int,
    location: str,
    *,
    time: Time = database_time,
) -> bool:
    """Records where an attempt will write, before it does, so that its outputs can be found.

    Args:
        tx: the transaction.
        attempt_id: the attempt of the claim.
        token: the token of the claim.
        location: the whole path of its directory. It is stored because the location of a table's
            files may change.
        time: the source of the time.

    Returns:
        false: its lease has expired; the worker must not write.
    """
    changed = tx.execute(
        sa.update(compaction_attempts)
        .where(*_held(attempt_id, token, time(tx)))
        .values(location=location)
    )
    return changed.rowcount == 1


def merged(
    tx: sa.Connection,
    attempt_id: str,
    token: int,
    *,
    outputs: Iterable[Output],
    rows_in: int,
    rows_deleted: int,
    rows_out: int,
    way: str,
    because: str,
    sort_order_id: int | None = None,
    time: Time = database_time,
) -> None:
    """Reports that the files of the task are merged; from now on they wait for the committer.

    Args:
        tx: the transaction.
        attempt_id: the attempt of the claim.
        token: the token of the claim.
        outputs: the written files; none if all rows are deleted.
        rows_in: the rows of the input files.
        rows_deleted: how many of those are deleted.
        rows_out: the rows of the outputs.
        way: how they were merged.
        because: why in that way, for people.
        sort_order_id: the table's sort order of the outputs.
        time: the source of the time.

    Errors:
        Refused: the attempt has lost the task.
        InvalidInput: the rows do not add up.
    """
    if rows_out != rows_in - rows_deleted:
        raise InvalidInput("rows_out", rows_out, f"{rows_in} - {rows_deleted} rows")
    files = [{"path": one.path, "size": one.size, "rows": one.rows} for one in outputs]
    now = time(tx)
    task, lasted = _end(
        tx, attempt_id, token, AttemptState.MERGED, because, now,
        outputs=json.dumps(files), rows_in=rows_in, rows_deleted=rows_deleted,
        rows_out=rows_out, way=way, because=because, sort_order_id=sort_order_id,
    )  # fmt: skip
    reason = f"merged ({way}: {because}); waits for the committer"
    task_store.move(
        tx, [(task.id, TaskState.CLAIMED)], TaskState.MERGED, reason, now, attempt_id=attempt_id
    )
    spend(tx, {task.queue: [lasted]}, now)


def failed(
    tx: sa.Connection,
    attempt_id: str,
    token: int,
    reason: str,
    *,
    final: bool = False,
    bad_files: bool = False,
    time: Time = database_time,
) -> TaskState:
    """Reports that an attempt failed.

    Args:
        tx: the transaction.
        attempt_id: the attempt of the claim.
        token: the token of the claim.
        reason: for people.
        final: another attempt would fail too, and so would other tasks of the table: the table
            rests.
        bad_files: another attempt would fail too, because of the task's own files: these rest, and
            the table does not.
        time: the source of the time.

    Returns:
        ``failed``: it is planned again after its retry interval, or ``quarantined``.

    Errors:
        Refused: the attempt has lost the task.
    """
    _lock_table_of(tx, attempt_id)
    now = time(tx)
    task, lasted = _end(tx, attempt_id, token, AttemptState.FAILED, reason, now, over_at=now)
    if final or bad_files or task.attempts >= task.max_attempts:
        _quarantine(tx, task, reason, now, attempt_id)
        if final:
            tables.rest(tx, task.table, f"task {task.id} is in quarantine: {reason}", now)
        spend(tx, {task.queue: [lasted]}, now)
        return TaskState.QUARANTINED
    again = now + timedelta(seconds=task.retry_seconds)
    text = (
        f"attempt {task.attempts} of {task.max_attempts} failed: {reason}; "
        f"again at {format_moment(again)}"
    )
    task_store.move(
        tx, [(task.id, TaskState.CLAIMED)], TaskState.FAILED, text, now, attempt_id=attempt_id,
        values={"not_before": again, "attempt_id": None},
    )  # fmt: skip
    spend(tx, {task.queue: [lasted]}, now)
    return TaskState.FAILED


def release(
    tx: sa.Connection,
    attempt_id: str,
    token: int,
    *,
    reason: str = WORKER_ENDS,
    time: Time = database_time,
) -> None:
    """Releases a task for any worker to claim; does not count as an attempt.

    Errors:
        Refused: the attempt has lost the task.
    """
    queue, lasted = _release(tx, attempt_id, token, reason, time)
    spend(tx, {queue: [lasted]}, time(tx))


def release_all(tx: sa.Connection, held: Iterable[tuple[str, int]]) -> None:
    """Releases several attempts, with their tokens, in the order of their tables.

    Those that have lost their task are left alone.
    """
    lasted: dict[str, list[timedelta]] = {}
    for attempt_id, token in held:
        with suppress(Refused):
            queue, one = _release(tx, attempt_id, token, WORKER_ENDS, database_time)
            lasted.setdefault(queue, []).append(one)
    # Budgets are locked after all tables.
    spend(tx, lasted, database_time(tx))


def _release(
    tx: sa.Connection, attempt_id: str, token: int, reason: str, time: Time
) -> tuple[str, timedelta]:
    """Returns the queue of the released task, and how long it was held."""
    # Keeps the table, and the task with it, from moving to another queue meanwhile.
    _lock_table_of(tx, attempt_id)
    now = time(tx)
    task, lasted = _end(tx, attempt_id, token, AttemptState.RELEASED, reason, now, over_at=now)
    task_store.move(
        tx, [(task.id, TaskState.CLAIMED)], TaskState.PLANNED, f"given back: {reason}", now,
        attempt_id=attempt_id, values={"attempts": task.attempts - 1, "attempt_id": None},
    )  # fmt: skip
    return task.queue, lasted


def expire(tx: sa.Connection, *, time: Time = database_time) -> int:
    """Takes tasks from overdue attempts; each counts as an attempt.

    An attempt is overdue after its lease has expired, or after the execution timeout of its queue:
    a merge may hang in a worker that is alive and renews.

    Returns:
        the number of lost attempts.
    """
    now, lost = time(tx), 0
    lasted: dict[str, list[timedelta]] = {}
    col = compaction_attempts.c
    for one in overdue_attempts(tx, now):
        tables.lock_table(tx, one.table)
        taken = tx.execute(
            sa.update(compaction_attempts)
            .where(col.id == one.id, one.condition)
            .values(
                state=AttemptState.LOST.value,
                reason=one.reason,
                ended_at=now,
                over_at=now,
            )
            .returning(col.task_id, col.claimed_at)
        ).one_or_none()
        if taken is None:
            # It was renewed, or another process expired it first.
            continue
        lost += 1
        task = task_store.task_by_id(tx, taken.task_id)
        if (task.state, task.attempt_id) != (TaskState.CLAIMED, one.id):
            # The task is not its own any more; the other attempts are.
            continue
        lasted.setdefault(task.queue, []).append(now - taken.claimed_at)
        text = (
            f"attempt {task.attempts} of {task.max_attempts} was lost: "
            f"worker {one.worker} {one.worker_state}"
        )
        if task.attempts >= task.max_attempts:
            _quarantine(tx, task, text, now, one.id)
            continue
        task_store.move(
            tx, [(task.id, TaskState.CLAIMED)], TaskState.PLANNED, text, now, attempt_id=one.id,
            values={"attempt_id": None},
        )  # fmt: skip
    spend(tx, lasted, now)
    return lost


def _held(attempt_id: str, token: int, now: datetime) -> tuple[sa.ColumnElement[bool], ...]:
    """Returns the condition that an attempt is live, with an unexpired lease."""
    col = compaction_attempts.c
    return col.id == attempt_id, col.token == token, attempt_is_live, col.expires_at > now


def _end(
    tx: sa.Connection,
    attempt_id: str,
    token: int,
    state: AttemptState,
    reason: str,
    now: datetime,
    **values: Any,
) -> tuple[Task, timedelta]:
    """Accepts the last report of an attempt.

    Returns:
        its task, not moved yet, and how long the attempt lasted.

    Errors:
        Refused: it is not the live attempt, or its lease is over.
    """
    col = compaction_attempts.c
    row = tx.execute(
        sa.update(compaction_attempts)
        .where(*_held(attempt_id, token, now))
        .values(state=state.value, reason=reason, ended_at=now, **values)
        .returning(col.task_id, col.claimed_at)
    ).one_or_none()
    if row is None:
        raise Refused(why_refused(tx, attempt_id, token, now))
    return task_store.task_by_id(tx, row.task_id), now - row.claimed_at


def _lock_table_of(tx: sa.Connection, attempt_id: str) -> None:
    """Locks the table first, as required to make it rest."""
    col = compaction_attempts.c
    table = tx.execute(sa.select(col.table_name).where(col.id == attempt_id)).scalar()
    if table is not None:
        tables.lock_table(tx, table)


def _quarantine(tx: sa.Connection, task: Task, reason: str, now: datetime, attempt_id: str) -> None:
    text = f"given up after {task.attempts} of {task.max_attempts} attempts: {reason}"
    quarantine(tx, task, reason, text, now, attempt_id=attempt_id, values={"attempt_id": None})
