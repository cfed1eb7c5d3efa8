"""Manual control of compaction: queues, tasks that failed or wait, tables that rest.

Each change leaves its record in the audit log, in the same transaction.
"""

from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import backoff, queues, task_store
from arctic_orchestration.compaction.queue.queue import QueueState
from arctic_orchestration.compaction.queue.ranking import rank_of
from arctic_orchestration.compaction.queue.task import WAITING, Task, TaskState
from arctic_orchestration.compaction.work import workers
from arctic_orchestration.compaction.work.workers import Order, Worker
from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.quantities import iso
from arctic_orchestration.state import audit
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.compaction_tables import compaction_tasks

#: the states that people give to a queue, by the name of the command
QUEUE_ACTIONS = {
    "pause": QueueState.PAUSED,
    "drain": QueueState.DRAINING,
    "resume": QueueState.OPEN,
}

#: the orders that people give to a worker
WORKER_ACTIONS = {"drain": Order.QUIET, "resume": Order.RUN, "stop": Order.STOP}


def change_queue(tx: sa.Connection, name: str, action: str, actor: Actor) -> QueueState:
    """Pauses, drains or resumes a queue; one that is in that state already stays as it is.

    Returns:
        the state before.

    Errors:
        NotFound: no such queue.
    """
    state = QUEUE_ACTIONS[action]
    before = queues.set_state(tx, name, state)
    if before is not state:
        audit.record(
            tx, actor, "compaction", f"queues {action}", name,
            before={"state": before.value}, after={"state": state.value},
        )  # fmt: skip
    return before


def order_worker(tx: sa.Connection, id: str, action: str, actor: Actor) -> Worker:
    """Drains a worker, resumes it, or makes it stop.

    Returns:
        the worker after that.

    Errors:
        NotFound: no such worker.
        TransitionRefused: it has that order already.
    """
    order = WORKER_ACTIONS[action]
    before = workers.lock_worker(tx, id)
    if before.order is order:
        raise TransitionRefused(f"Compaction worker {id} has the order to {order} already")
    workers.set_order(tx, id, order)
    audit.record(
        tx, actor, "compaction", f"workers {action}", id, name=before.name,
        before={"order": before.order.value}, after={"order": order.value},
    )  # fmt: skip
    return replace(before, order=order)


def locked_task(tx: sa.Connection, id: str) -> Task:
    """Returns a task, with its table locked until the transaction ends.

    Errors:
        NotFound: no such task.
    """
    tables.lock_table(tx, task_store.task_by_id(tx, id).table)
    return task_store.task_by_id(tx, id)


def retry_task(tx: sa.Connection, task: Task, now: datetime, actor: Actor) -> Task:
    """Retries a locked task that failed at once; plans the files of one in quarantine again.

    Returns:
        the task after that.

    Errors:
        TransitionRefused: it neither failed nor is in quarantine.
    """
    if task.state is TaskState.FAILED:
        reason = f"attempt {task.attempts + 1} of {task.max_attempts} at once: requested by "
        reason += actor.name
        moved = [(task.id, task.state)]
        task_store.move(tx, moved, TaskState.PLANNED, reason, now, values={"not_before": None})
    elif task.state is TaskState.QUARANTINED:
        tables.wake(tx, task.table)
        due = f"task {task.id} is retried, requested by {actor.name}"
        files = task_store.group_of(tx, task.id).files
        backoff.end_rests(tx, task.table, [file.path for file in files])
        tables.make_due(tx, task.table, due, now)
    else:
        raise TransitionRefused(
            f"Compaction task {task.id} is {task.state}; only failed or "
            "quarantined tasks can be retried; nothing was changed"
        )
    return record_move(tx, task, "retry", actor)


def cancel_task(tx: sa.Connection, task: Task, now: datetime, actor: Actor) -> Task:
    """Cancels a locked task that waits; its files rest for a day.

    Returns:
        the task after that.

    Errors:
        TransitionRefused: it does not wait.
    """
    if task.state not in WAITING:
        raise TransitionRefused(
            f"Compaction task {task.id} is {task.state}; what can be canceled waits: it is "
            "planned, failed or merged; nothing was changed"
        )
    # Before the task ends, which releases its files.
    reason = f"canceled by {actor.name}"
    why = f"task {task.id}: {reason}"
    backoff.rest_files_of(tx, task, why, now, length=backoff.CANCELED_REST)
    task_store.move(
        tx, [(task.id, task.state)], TaskState.CANCELED, reason, now,
        values={"not_before": None},
    )  # fmt: skip
    return record_move(tx, task, "cancel", actor)


def prioritize_task(tx: sa.Connection, task: Task, level: int, actor: Actor) -> Task:
    """Gives a locked task that waits for a worker another level; its age still counts.

    It counts as requested manually: automatic plans leave it, and its level, until it is claimed.

    Returns:
        the task after that.

    Errors:
        TransitionRefused: it does not wait for a worker.
    """
    if task.state is not TaskState.PLANNED:
        # A failed one may be planned otherwise before its retry.
        raise TransitionRefused(
            f"Compaction task {task.id} is {task.state}; only planned tasks wait for a worker; "
            "nothing was changed"
        )
    rank = rank_of(
        task.waiting_since, level, task.small_files, task.decoded_bytes, place=task.place
    )
    tx.execute(
        sa.update(compaction_tasks)
        .where(compaction_tasks.c.id == task.id)
        .values(level=level, rank=rank, forced=True)
    )
    audit.record(
        tx, actor, "compaction", "tasks prioritize", task.id,
        table=task.table, before={"level": task.level}, after={"level": level},
    )  # fmt: skip
    return replace(task, level=level, rank=rank, forced=True)


def wake_table(tx: sa.Connection, name: str, now: datetime, actor: Actor) -> int | None:
    """Ends the rest of a table and of its files, and makes it due.

    Returns:
        how many files rested; None: neither the table nor a file did, and nothing was changed.

    Errors:
        NotFound: compaction does not know the table.
    """
    before = tables.lock_table(tx, name)
    files = len(backoff.resting(tx, name, now))
    if not before.rests(now) and not files:
        return None
    tables.wake(tx, name)
    backoff.end_rests(tx, name)
    tables.make_due(tx, name, f"{actor.name} ended its rest", now)
    audit.record(
        tx, actor, "compaction", "wake", name, files=files,
        before={
            "rests_until": iso(before.rests_until) if before.rests(now) else None,
            "files": files,
        },
        after={"rests_until": None, "files": 0},
    )  # fmt: skip
    return files


def record_move(tx: sa.Connection, before: Task, action: str, actor: Actor) -> Task:
    """Records a move of a task, in the transaction that made it; returns the task as it is now."""
    after = task_store.task_by_id(tx, before.id)
    audit.record(
        tx, actor, "compaction", f"tasks {action}", before.id,
        table=before.table, state=before.state.value,
        before={"state": before.state.value}, after={"state": after.state.value},
    )  # fmt: skip
    return after
