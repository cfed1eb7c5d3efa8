"""Live workers, counted so that not more are started than needed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.work.attempts import Time
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import compaction_workers
from arctic_orchestration.state.dialect import database_time

#: a worker without a heartbeat for this long is not counted
WITHIN = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """A process that works on tasks."""

    id: str
    #: its name for people, also recorded in its attempts
    name: str
    #: the queues that it serves; empty: all queues
    queues: tuple[str, ...]
    #: how many tasks it merges at once
    parallelism: int
    host: str
    pid: int
    #: by the database's time
    started_at: datetime
    seen_at: datetime


def record_heartbeat(
    tx: sa.Connection,
    id: str,
    *,
    name: str,
    queues: Sequence[str],
    parallelism: int,
    host: str,
    pid: int,
    time: Time = database_time,
) -> None:
    """Records a heartbeat of a worker; the first one also records its start."""
    now = time(tx)
    values = {
        "name": name,
        "queues": json.dumps(list(queues)),
        "parallelism": parallelism,
        "host": host,
        "pid": pid,
        "seen_at": now,
    }
    new = dialect.insert(tx, compaction_workers).values(id=id, started_at=now, **values)
    tx.execute(new.on_conflict_do_update(index_elements=["id"], set_=values))


def live_workers(
    tx: sa.Connection,
    queue: str | None = None,
    *,
    within: timedelta = WITHIN,
    time: Time = database_time,
) -> list[Worker]:
    """Returns live workers, oldest first.

    Args:
        tx: the transaction.
        queue: only workers that serve it; none: all.
        within: the maximum age of the last heartbeat.
        time: the source of the time.
    """
    col = compaction_workers.c
    query = sa.select(compaction_workers).where(col.seen_at > time(tx) - within)
    workers = [_from_row(row) for row in tx.execute(query.order_by(col.started_at, col.id))]
    return [
        worker for worker in workers
        if queue is None or not worker.queues or queue in worker.queues
    ]  # fmt: skip


def forget_worker(tx: sa.Connection, id: str) -> None:
    """Records the end of a worker, which releases its tasks itself."""
    tx.execute(sa.delete(compaction_workers).where(compaction_workers.c.id == id))


def forget_silent_workers(
    tx: sa.Connection, *, older_than: timedelta = timedelta(days=1), time: Time = database_time
) -> int:
    """Deletes workers without a heartbeat.

    Returns:
        the number of workers.
    """
    old = compaction_workers.c.seen_at <= time(tx) - older_than
    return tx.execute(sa.delete(compaction_workers).where(old)).rowcount


def _from_row(row: Any) -> Worker:
    return Worker(
        id=row.id, name=row.name, queues=tuple(json.loads(row.queues)), parallelism=row.parallelism,
        host=row.host, pid=row.pid, started_at=row.started_at, seen_at=row.seen_at,
    )  # fmt: skip
