"""Attempts: a worker's exclusive right to a task, for as long as it is renewed.

Each claim is an attempt with an id, a *fencing token* one higher than the task's last, and a lease
that ends unless it is renewed, at best at a third of its life. Every report gives id and token; it
is taken only while the attempt is the live one and its lease is not over, by the database's time,
and that is decided by the condition of the one statement that takes it. So a worker that was
stopped and goes on is refused, also when nobody has claimed the task since: an attempt whose lease
is over counts as lost, and what it wrote is removed.

An attempt counts when it is claimed, and no more when it is given back. A failed task is planned
again after its retry interval, a lost one at once; the last one that fails or is lost puts the
task into quarantine, and lets its files rest. What waits again does so in the queue that its table
has by now.

Functions take ``time``, what tells the moment: in tests a clock that stands.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import backoff, task_store
from arctic_orchestration.compaction.queue.claim_order import first_claimable, plan_again
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.work.attempt import (
    Attempt,
    AttemptState,
    Claim,
    MergedFile,
    Output,
)
from arctic_orchestration.compaction.work.expired_attempts import overdue_attempts
from arctic_orchestration.errors import InvalidInput, Refused
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.state.compaction_tables import attempt_is_live, compaction_attempts
from arctic_orchestration.state.dialect import database_time

__all__ = [
    "LEASE", "Attempt", "AttemptState", "Claim", "MergedFile", "Output", "Time", "attempts_of",
    "claim", "expire", "failed", "merged", "plan_again", "release", "renew", "writes_to",
]  # fmt: skip

#: how long a claim holds until it is renewed
LEASE = timedelta(seconds=60)

Time = Callable[[sa.Connection], datetime]


def claim(
    tx: sa.Connection,
    queues: Sequence[str],
    worker: str,
    *,
    table: str | None = None,
    life: timedelta = LEASE,
    time: Time = database_time,
) -> Claim | None:
    """Takes the task of the smallest rank, of the queue that has had the least of its share.

    Of the queues that have something to claim, the one with the fewest claimed tasks for its
    share is asked first; where they are alike, the higher level. Others that claim at the
    same moment get other tasks, and nobody waits for them.

    Args:
        tx: the transaction.
        queues: their names, those that are no more are passed over; empty: all there are.
        worker: who claims.
        table: only tasks of this one.
        life: how long the lease holds.
        time: what tells the moment.

    Returns:
        none: there is nothing to do now.
    """
    now = time(tx)
    plan_again(tx, now)
    row = first_claimable(tx, queues, table)
    if row is None:
        return None
    task = Task.from_row(row)
    id, token = new_id(now), task.token + 1
    directory, expires_at = f"compaction-{id}", now + life
    tx.execute(
        sa.insert(compaction_attempts).values(
            id=id, task_id=task.id, table_name=task.table, worker=worker, token=token,
            state=AttemptState.LIVE.value, reason="", directory=directory, claimed_at=now,
            expires_at=expires_at,
        )
    )  # fmt: skip
    number = task.attempts + 1
    reason = f"attempt {number} of {task.max_attempts}, by worker {worker}"
    changed = {"attempts": number, "token": token, "attempt_id": id}
    task_store.move(
        tx, [(task.id, TaskState.PLANNED)], TaskState.CLAIMED, reason, now, attempt_id=id,
        values={**changed, "not_before": None},
    )  # fmt: skip
    return Claim(
        task=replace(task, state=TaskState.CLAIMED, reason=reason, state_at=now, attempts=number,
                     token=token, attempt_id=id, not_before=None),
        group=FileGroup.from_json(row["file_group"]),
        attempt_id=id,
        token=token,
        claimed_at=now,
        expires_at=expires_at,
        directory=directory,
    )  # fmt: skip


def renew(
    tx: sa.Connection,
    attempt_id: str,
    token: int,
    *,
    life: timedelta = LEASE,
    time: Time = database_time,
) -> bool:
    """Lets a lease hold for another ``life`` from now.

    Returns:
        false: it is over; the worker should stop, and what it reports is refused.
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
    """Says where an attempt will write, before it does: what it leaves is found by that.

    Args:
        tx: the transaction.
        attempt_id: of the claim.
        token: of the claim.
        location: the whole path of its directory. It is kept, as where a table's files are written
            may change.
        time: what tells the moment.

    Returns:
        false: its lease is over; the worker must not write.
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
        attempt_id: of the claim.
        token: of the claim.
        outputs: the files that were written; none, where all rows are deleted.
        rows_in: of the files that were read.
        rows_deleted: of those, how many are deleted.
        rows_out: of the files that were written.
        way: how they were merged.
        because: why that way, for people.
        sort_order_id: of the table, the order that the rows of the outputs have.
        time: what tells the moment.

    Errors:
        Refused: the attempt has lost the task.
        InvalidInput: the rows do not add up.
    """
    if rows_out != rows_in - rows_deleted:
        raise InvalidInput("rows_out", rows_out, f"{rows_in} - {rows_deleted} rows")
    files = [{"path": one.path, "size": one.size, "rows": one.rows} for one in outputs]
    now = time(tx)
    task = _end(
        tx, attempt_id, token, AttemptState.MERGED, because, now,
        outputs=json.dumps(files), rows_in=rows_in, rows_deleted=rows_deleted,
        rows_out=rows_out, way=way, because=because, sort_order_id=sort_order_id,
    )  # fmt: skip
    reason = f"merged ({way}: {because}); waits for the committer"
    task_store.move(
        tx, [(task.id, TaskState.CLAIMED)], TaskState.MERGED, reason, now, attempt_id=attempt_id
    )


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
        attempt_id: of the claim.
        token: of the claim.
        reason: for people.
        final: another attempt would fail too, and so would other tasks of the table: it rests.
        bad_files: another attempt would fail too, for what is wrong with the task's own files:
            these rest, and the table does not.
        time: what tells the moment.

    Returns:
        ``failed``: it is planned again after its retry interval, or ``quarantined``.

    Errors:
        Refused: the attempt has lost the task.
    """
    _lock_table_of(tx, attempt_id)
    now = time(tx)
    task = _end(tx, attempt_id, token, AttemptState.FAILED, reason, now, over_at=now)
    if final or bad_files or task.attempts >= task.max_attempts:
        _quarantine(tx, task, reason, now, attempt_id)
        if final:
            tables.rest(tx, task.table, f"task {task.id} is in quarantine: {reason}", now)
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
    return TaskState.FAILED


def release(
    tx: sa.Connection,
    attempt_id: str,
    token: int,
    *,
    reason: str = "its worker ends",
    time: Time = database_time,
) -> None:
    """Gives a task back, for anybody to claim; that does not count as an attempt.

    Errors:
        Refused: the attempt has lost the task.
    """
    # So that the table does not move to another queue meanwhile, and the task with it.
    _lock_table_of(tx, attempt_id)
    now = time(tx)
    task = _end(tx, attempt_id, token, AttemptState.RELEASED, reason, now, over_at=now)
    task_store.move(
        tx, [(task.id, TaskState.CLAIMED)], TaskState.PLANNED, f"given back: {reason}", now,
        attempt_id=attempt_id, values={"attempts": task.attempts - 1, "attempt_id": None},
    )  # fmt: skip


def expire(tx: sa.Connection, *, time: Time = database_time) -> int:
    """Takes tasks from attempts that are over; that counts as an attempt.

    An attempt is over when its lease is, and when it has taken longer than the execution timeout of
    its queue: a merge may hang in a worker that is alive and renews.

    Returns:
        how many attempts were lost.
    """
    now, lost = time(tx), 0
    here = compaction_attempts.c
    for one in overdue_attempts(tx, now):
        tables.lock_table(tx, one.table)
        taken = tx.execute(
            sa.update(compaction_attempts)
            .where(here.id == one.id, one.condition)
            .values(
                state=AttemptState.LOST.value,
                reason=one.reason,
                ended_at=now,
                over_at=now,
            )
            .returning(here.task_id)
        ).scalar()
        if taken is None:
            # It was renewed, or another one was here first.
            continue
        lost += 1
        task = task_store.task_by_id(tx, taken)
        text = (
            f"attempt {task.attempts} of {task.max_attempts} was lost: "
            f"worker {one.worker} {one.said}"
        )
        if task.attempts >= task.max_attempts:
            _quarantine(tx, task, text, now, one.id)
            continue
        task_store.move(
            tx, [(task.id, TaskState.CLAIMED)], TaskState.PLANNED, text, now, attempt_id=one.id,
            values={"attempt_id": None},
        )  # fmt: skip
    return lost


def attempts_of(tx: sa.Connection, task_id: str) -> list[Attempt]:
    """All attempts of a task, the first one first."""
    here = compaction_attempts.c
    query = sa.select(compaction_attempts).where(here.task_id == task_id).order_by(here.token)
    return [Attempt.from_row(row) for row in tx.execute(query)]


def _held(attempt_id: str, token: int, now: datetime) -> tuple[sa.ColumnElement[bool], ...]:
    """That an attempt is the live one of its task, and its lease is not over."""
    here = compaction_attempts.c
    return here.id == attempt_id, here.token == token, attempt_is_live, here.expires_at > now


def _end(
    tx: sa.Connection,
    attempt_id: str,
    token: int,
    state: AttemptState,
    reason: str,
    now: datetime,
    **values: Any,
) -> Task:
    """Takes the last report of an attempt.

    Returns:
        its task, not moved yet.

    Errors:
        Refused: it is not the live attempt, or its lease is over.
    """
    here = compaction_attempts.c
    task_id = tx.execute(
        sa.update(compaction_attempts)
        .where(*_held(attempt_id, token, now))
        .values(state=state.value, reason=reason, ended_at=now, **values)
        .returning(here.task_id)
    ).scalar()
    if task_id is None:
        raise Refused(_why_refused(tx, attempt_id, token, now))
    return task_store.task_by_id(tx, task_id)


def _why_refused(tx: sa.Connection, attempt_id: str, token: int, now: datetime) -> str:
    query = sa.select(compaction_attempts).where(compaction_attempts.c.id == attempt_id)
    row = tx.execute(query).one_or_none()
    if row is None:
        return f"there is no attempt {attempt_id}"
    whole = f"attempt {attempt_id} of compaction task {row.task_id}"
    if row.token != token:
        return f"{whole} has another token than {token}"
    if row.state != AttemptState.LIVE:
        return f"{whole} is {row.state} since {format_moment(row.ended_at)}: {row.reason}"
    late = format_duration(timedelta(seconds=max(int((now - row.expires_at).total_seconds()), 0)))
    return f"{whole} has lost its lease: it was over {late} ago, and the attempt counts as lost"


def _lock_table_of(tx: sa.Connection, attempt_id: str) -> None:
    """Locks the table first, as who may put it to rest has to."""
    here = compaction_attempts.c
    table = tx.execute(sa.select(here.table_name).where(here.id == attempt_id)).scalar()
    if table is not None:
        tables.lock_table(tx, table)


def _quarantine(tx: sa.Connection, task: Task, reason: str, now: datetime, attempt_id: str) -> None:
    text = f"given up after {task.attempts} of {task.max_attempts} attempts: {reason}"
    # Before the task ends: then it lets its files go.
    backoff.rest_files_of(tx, task, f"task {task.id} is in quarantine: {reason}", now)
    task_store.move(
        tx, [(task.id, task.state)], TaskState.QUARANTINED, text, now, attempt_id=attempt_id,
        values={"attempt_id": None},
    )  # fmt: skip
