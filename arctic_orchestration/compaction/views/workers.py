"""Live workers of compaction, with the merge tasks that they have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.work.workers import Worker, live_workers
from arctic_orchestration.state.compaction_tables import attempt_is_live, compaction_attempts


@dataclass(frozen=True, kw_only=True, slots=True)
class BusyWorker:
    """A live worker with its attempts: task, table, claimed_at, expires_at."""

    worker: Worker
    attempts: Sequence[Any]


def busy_workers(tx: sa.Connection) -> list[BusyWorker]:
    """Returns the live workers, oldest first."""
    col = compaction_attempts.c
    query = sa.select(
        col.worker, col.task_id.label("task"), col.table_name.label("table"), col.claimed_at,
        col.expires_at,
    )  # fmt: skip
    attempts = tx.execute(query.where(attempt_is_live).order_by(col.claimed_at)).all()
    return [
        BusyWorker(worker=one, attempts=[row for row in attempts if row.worker == one.name])
        for one in live_workers(tx)
    ]
