"""Tasks that are given up until a person retries them: their files rest, and a notice is sent."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import backoff, task_store
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.notifications import outbox
from arctic_orchestration.notifications.outbox import News, Notice
from arctic_orchestration.state.dialect import storable


def quarantine(
    tx: sa.Connection,
    task: Task,
    cause: str,
    text: str,
    now: datetime,
    *,
    attempt_id: str | None,
    values: Mapping[str, Any] | None = None,
) -> None:
    """Moves a task to quarantine; its table is locked.

    Args:
        tx: the transaction.
        task: the task as it is stored.
        cause: what is wrong, for people; the reason of its files' rest.
        text: the reason of the task's new state.
        now: the moment.
        attempt_id: the attempt that caused it.
        values: other columns of the task.

    Errors:
        TransitionRefused: its state does not allow the move, or has changed.
    """
    # Before the task ends, which releases its files.
    backoff.rest_files_of(tx, task, f"task {task.id} is in quarantine: {cause}", now)
    task_store.move(
        tx, [(task.id, task.state)], TaskState.QUARANTINED, text, now, attempt_id=attempt_id,
        values=values,
    )  # fmt: skip
    advice = f"Mend the cause, then run: arctic compaction tasks retry {task.id}"
    news = News(
        event=Notice.QUARANTINED,
        schedule=f"table {task.table}",
        reason=storable(f"{text}. {advice}"),
        tags={"arctic/table": task.table},
    )
    outbox.write_for_all(tx, [news], now)
