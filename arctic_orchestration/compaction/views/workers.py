"""Live workers of compaction, with the merge tasks that they have."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.compaction.work.workers import Worker, live_workers
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import attempt_is_live, compaction_attempts


@dataclass(frozen=True, kw_only=True, slots=True)
class Merge:
    """A live attempt of a worker at a merge task."""

    task: str
    table: str
    claimed_at: datetime
    expires_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class BusyWorker:
    """A worker with its merges, oldest first."""

    worker: Worker
    merges: Sequence[Merge]


def busy_workers(tx: sa.Connection) -> list[BusyWorker]:
    """Returns the live workers, oldest first; costs two statements."""
    return with_merges(tx, live_workers(tx))


def with_merges(tx: sa.Connection, workers: Sequence[Worker]) -> list[BusyWorker]:
    """Returns some workers with their merges; costs one statement."""
    col = compaction_attempts.c
    query = sa.select(
        col.worker_id, col.task_id.label("task"), col.table_name.label("table"), col.claimed_at,
        col.expires_at,
    ).where(
        attempt_is_live, dialect.among(tx, col.worker_id, [worker.id for worker in workers])
    )  # fmt: skip
    merges: dict[str, list[Merge]] = {}
    for row in tx.execute(query.order_by(col.claimed_at, col.id)).mappings():
        merge = Merge(**{name: row[name] for name in Merge.__slots__})
        merges.setdefault(row["worker_id"], []).append(merge)
    return [BusyWorker(worker=worker, merges=merges.get(worker.id, ())) for worker in workers]
