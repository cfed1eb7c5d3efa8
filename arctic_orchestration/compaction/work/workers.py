"""Live workers, counted so that not more are started than needed, and what they are to do."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.work.attempts import Time
from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import compaction_attempts, compaction_workers
from arctic_orchestration.state.dialect import database_time

#: a worker without a heartbeat for this long is not counted
WITHIN = timedelta(minutes=2)


class Order(StrEnum):
    """What a worker is to do."""

    #: it claims tasks
    RUN = "run"
    #: it finishes its tasks, and claims nothing
    QUIET = "quiet"
    #: it gives its tasks back, and ends
    STOP = "stop"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerInfo:
    """What a worker reports of itself."""

    id: str
    #: its name for people, also recorded in its attempts
    name: str
    #: the queues that it serves; empty: all queues
    queues: tuple[str, ...]
    #: how many tasks it merges at once
    parallelism: int
    host: str
    #: 0: it is known over HTTP only
    pid: int
    #: the bytes that it may use; none: unknown
    memory: int | None = None
    version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker(WorkerInfo):
    """A process that works on tasks."""

    #: by the database's time
    started_at: datetime
    seen_at: datetime
    order: Order


def record_heartbeat(tx: sa.Connection, worker: WorkerInfo, *, time: Time = database_time) -> Order:
    """Records a heartbeat of a worker; the first one also records its start.

    Returns:
        what the worker is to do.
    """
    now = time(tx)
    values = {
        "name": worker.name,
        "queues": json.dumps(worker.queues),
        "parallelism": worker.parallelism,
        "host": worker.host,
        "pid": worker.pid,
        "memory": worker.memory,
        "version": worker.version,
        "labels": json.dumps(dict(worker.labels)),
        "seen_at": now,
    }
    new = dialect.insert(tx, compaction_workers).values(id=worker.id, started_at=now, **values)
    changed = new.on_conflict_do_update(index_elements=["id"], set_=values)
    return Order(tx.execute(changed.returning(compaction_workers.c.order)).scalar_one())


# Built once: each claim and each beat of a worker over HTTP does this.
_OF = sa.update(compaction_workers).where(compaction_workers.c.id == sa.bindparam("worker"))
_BEAT = _OF.values(seen_at=sa.bindparam("now")).returning(*compaction_workers.c)
_LOCK = _OF.values(seen_at=compaction_workers.c.seen_at).returning(*compaction_workers.c)


def lock_worker(tx: sa.Connection, id: str, *, beats: bool = False) -> Worker:
    """Returns a worker, locked until the transaction ends.

    Args:
        tx: the transaction.
        id: its id.
        beats: records a heartbeat.

    Errors:
        NotFound: no such worker; it ended, or was silent for too long.
    """
    found = (
        tx.execute(_BEAT, {"worker": id, "now": database_time(tx)})
        if beats
        else tx.execute(_LOCK, {"worker": id})
    )
    row = found.one_or_none()
    if row is None:
        raise NotFound(f"no compaction worker {id}")
    return _from_row(row)


def worker_by_id(tx: sa.Connection, id: str) -> Worker:
    """Returns a worker.

    Errors:
        NotFound: no such worker.
    """
    query = sa.select(compaction_workers).where(compaction_workers.c.id == id)
    row = tx.execute(query).one_or_none()
    if row is None:
        raise NotFound(f"no compaction worker {id}")
    return _from_row(row)


def worker_of(tx: sa.Connection, attempt_id: str) -> Worker | None:
    """Returns the worker of an attempt; none: it ended, or was silent for too long."""
    query = sa.select(compaction_workers).where(
        compaction_workers.c.id == compaction_attempts.c.worker_id,
        compaction_attempts.c.id == attempt_id,
    )
    row = tx.execute(query).one_or_none()
    return None if row is None else _from_row(row)


def worker_called(tx: sa.Connection, text: str) -> Worker:
    """Returns the worker with an id, else the live worker with a name.

    Errors:
        NotFound: no such worker; names the live ones.
        InvalidInput: several live workers have the name; names their ids.
    """
    with suppress(NotFound):
        return worker_by_id(tx, text)
    live = live_workers(tx)
    named = [worker for worker in live if worker.name == text]
    if not named:
        names = ", ".join(sorted({worker.name for worker in live})) or "none"
        raise NotFound(f"no compaction worker {text}; there is: {names}")
    if len(named) > 1:
        ids = ", ".join(worker.id for worker in named)
        raise InvalidInput("NAME", text, f"an id; several workers have the name: {ids}")
    return named[0]


def set_order(tx: sa.Connection, id: str, order: Order) -> None:
    """Changes what a worker is to do; it learns so with its next request or heartbeat."""
    col = compaction_workers.c
    tx.execute(sa.update(compaction_workers).where(col.id == id).values(order=order.value))


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
        queue: only workers that serve it, and claim tasks; none: all.
        within: the maximum age of the last heartbeat.
        time: the source of the time.
    """
    col = compaction_workers.c
    query = sa.select(compaction_workers).where(col.seen_at > time(tx) - within)
    workers = [_from_row(row) for row in tx.execute(query.order_by(col.started_at, col.id))]
    return [
        worker for worker in workers
        if queue is None
        or (worker.order is Order.RUN and (not worker.queues or queue in worker.queues))
    ]  # fmt: skip


def forget_worker(tx: sa.Connection, id: str) -> None:
    """Records the end of a worker, which releases its tasks itself."""
    tx.execute(sa.delete(compaction_workers).where(compaction_workers.c.id == id))


def forget_silent_workers(tx: sa.Connection, *, time: Time = database_time) -> int:
    """Deletes workers without a heartbeat for a day.

    Returns:
        the number of workers.
    """
    old = compaction_workers.c.seen_at <= time(tx) - timedelta(days=1)
    return tx.execute(sa.delete(compaction_workers).where(old)).rowcount


def _from_row(row: Any) -> Worker:
    return Worker(
        id=row.id, name=row.name, queues=tuple(json.loads(row.queues)), parallelism=row.parallelism,
        host=row.host, pid=row.pid, memory=row.memory, version=row.version,
        labels=json.loads(row.labels), started_at=row.started_at, seen_at=row.seen_at,
        order=Order(row.order),
    )  # fmt: skip
