"""Attempts that are overdue without a report: past their lease or the execution timeout."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.state.compaction_tables import (
    attempt_is_live,
    compaction_attempts,
    compaction_queues,
    compaction_tasks,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Overdue:
    """A live attempt that counts as lost."""

    id: str
    table: str
    worker: str
    #: the condition that this still holds, for the statement that ends it
    condition: sa.ColumnElement[bool]
    #: the reason, for people: of the attempt, and the state of its worker
    reason: str
    worker_state: str


def overdue_attempts(tx: sa.Connection, now: datetime) -> list[Overdue]:
    """Returns the overdue attempts, in the order of their tables, which the caller locks."""
    col, queue = compaction_attempts.c, compaction_queues.c
    query = (
        sa.select(
            col.id, col.worker, col.table_name, col.claimed_at, col.expires_at,
            queue.name.label("queue"), queue.execution_timeout_seconds,
        )
        .join(compaction_tasks, compaction_tasks.c.id == col.task_id)
        .join(compaction_queues, queue.name == compaction_tasks.c.queue)
        .where(attempt_is_live)
        .order_by(col.table_name, col.id)
    )  # fmt: skip
    found = []
    for row in tx.execute(query):
        timeout = timedelta(seconds=row.execution_timeout_seconds)
        condition: sa.ColumnElement[bool] = attempt_is_live
        if row.expires_at <= now:
            until = format_moment(row.expires_at)
            condition = condition & (col.expires_at <= now)
            reason, worker_state = (
                f"silent: its lease was over at {until}",
                f"was silent until {until}",
            )
        elif row.claimed_at + timeout <= now:
            longer = f"for longer than {format_duration(timeout)}, the execution timeout of queue"
            reason, worker_state = f"merged {longer} {row.queue}", f"had it {longer} {row.queue}"
        else:
            continue
        found.append(
            Overdue(
                id=row.id,
                table=row.table_name,
                worker=row.worker,
                condition=condition,
                reason=reason,
                worker_state=worker_state,
            )
        )
    return found
