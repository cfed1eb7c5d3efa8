"""What runs were told that they wait for, and when the queue was gone through."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.run_queue.plan import Wait
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import queue_passes, queue_waits


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitReason:
    """What a run was last told, and since when that holds it."""

    gate: str
    reason: str
    since: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class LastPass:
    """When the queue was last gone through; the trouble with it, if there was any."""

    at: datetime
    problem: str | None


def reported_waits(tx: sa.Connection, cluster: str) -> dict[str, str]:
    """What holds each run that was told so: run and gate."""
    query = sa.select(queue_waits.c.run_id, queue_waits.c.gate)
    rows = tx.execute(query.where(queue_waits.c.cluster == cluster))
    return {row.run_id: row.gate for row in rows}


def reported_wait(tx: sa.Connection, cluster: str, run_id: str) -> WaitReason | None:
    """What a run was last told; none: nothing, or it waits no more."""
    query = sa.select(queue_waits).where(
        queue_waits.c.cluster == cluster, queue_waits.c.run_id == run_id
    )
    row = tx.execute(query).one_or_none()
    return None if row is None else WaitReason(gate=row.gate, reason=row.reason, since=row.since)


def note(tx: sa.Connection, cluster: str, waits: Mapping[str, Wait], now: datetime) -> None:
    """Keeps what runs were told."""
    if not waits:
        return
    new = dialect.insert(tx, queue_waits)
    fields = ("gate", "reason", "since")
    new = new.on_conflict_do_update(
        index_elements=["cluster", "run_id"],
        set_={field: new.excluded[field] for field in fields},
    )
    tx.execute(
        new,
        [
            {"cluster": cluster, "run_id": run_id, "gate": wait.gate, "reason": wait.reason,
             "since": now}
            for run_id, wait in waits.items()
        ],
    )  # fmt: skip


def forget(tx: sa.Connection, cluster: str, run_ids: Collection[str]) -> None:
    """Drops what runs were told that wait no more."""
    if run_ids:
        theirs = dialect.among(tx, queue_waits.c.run_id, sorted(run_ids))
        tx.execute(sa.delete(queue_waits).where(queue_waits.c.cluster == cluster, theirs))


def note_pass(tx: sa.Connection, cluster: str, now: datetime, problem: str | None) -> None:
    """Keeps that the queue was gone through."""
    values = {"passed_at": now, "problem": problem}
    new = dialect.insert(tx, queue_passes).values(cluster=cluster, **values)
    tx.execute(new.on_conflict_do_update(index_elements=["cluster"], set_=values))


def last_pass(tx: sa.Connection, cluster: str) -> LastPass | None:
    """The last pass that was kept; none: there was none yet."""
    row = tx.execute(sa.select(queue_passes).where(queue_passes.c.cluster == cluster)).first()
    return None if row is None else LastPass(at=row.passed_at, problem=row.problem)
