"""The claim of a task by a worker."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.claim_order import first_claimable, plan_again
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.work.attempt import AttemptState, Claim, directory_name
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.state.compaction_tables import compaction_attempts
from arctic_orchestration.state.dialect import database_time

#: the duration of a claim's lease
LEASE = timedelta(seconds=60)

_log = logging.getLogger("arctic.compaction")

Time = Callable[[sa.Connection], datetime]


def claim(
    tx: sa.Connection,
    queues: Sequence[str],
    worker: str,
    *,
    table: str | None = None,
    life: timedelta = LEASE,
    worker_id: str | None = None,
    key: str | None = None,
    time: Time = database_time,
) -> Claim | None:
    """Claims the task with the smallest rank, from the queue furthest below its share.

    Among queues with claimable tasks, the one with the fewest claimed tasks for its share comes
    first; at equal shares, the higher level. Concurrent claims get other tasks, without waiting.

    Args:
        tx: the transaction.
        queues: their names, missing ones are ignored; empty: all queues.
        worker: the name of the worker.
        table: only tasks of this table.
        life: the duration of the lease.
        worker_id: the id of the worker.
        key: the worker's own key of this claim, for :func:`attempt_by_key`.
        time: the source of the time.

    Returns:
        none: nothing is claimable now.
    """
    now = time(tx)
    plan_again(tx, now)
    found = _first_readable(tx, queues, table, now)
    if found is None:
        return None
    task, group = found
    id, token = new_id(now), task.token + 1
    directory, expires_at = directory_name(id), now + life
    tx.execute(
        sa.insert(compaction_attempts).values(
            id=id, task_id=task.id, table_name=task.table, worker=worker, worker_id=worker_id,
            claim_key=key, token=token, state=AttemptState.LIVE.value, reason="",
            directory=directory, claimed_at=now, expires_at=expires_at,
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
        group=group,
        attempt_id=id,
        token=token,
        claimed_at=now,
        expires_at=expires_at,
        directory=directory,
    )  # fmt: skip


def _first_readable(
    tx: sa.Connection, queues: Sequence[str], table: str | None, now: datetime
) -> tuple[Task, FileGroup] | None:
    """Locks the next task, and returns it with its files; drops those whose files are unreadable.

    As the first one, such a task would be chosen by each claim of each worker.
    """
    while (row := first_claimable(tx, queues, table, now)) is not None:
        task = Task.from_row(row)
        try:
            return task, FileGroup.from_json(row["file_group"])
        except ValueError as error:
            reason = f"its stored files cannot be read: {error}"
            _log.warning("task %s of %s is dropped: %s", task.id, task.table, reason)
            task_store.move(tx, [(task.id, TaskState.PLANNED)], TaskState.SUPERSEDED, reason, now)
    return None
