"""The audit log: the changes that people made.

A record is written in the transaction of the change. It is kept for :data:`KEEP`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.tables import audit

KEEP = timedelta(days=400)


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """The author of a change.

    Attributes:
        name: the system's user; empty: unknown.
        cluster: the cluster for which the change is made.
    """

    name: str = ""
    cluster: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRecord:
    """One change.

    Attributes:
        at: the moment, by the database's time.
        actor: its author, with the cluster.
        feature: the name of its command: ``consumers``, ``compaction``.
        action: the name of the subcommand: ``retry``, ``queues pause``.
        subject: the name of the changed object.
        details: the other arguments, and the result.
    """

    at: datetime
    actor: Actor
    feature: str
    action: str
    subject: str
    details: Mapping[str, Any]


def record(
    tx: sa.Connection, actor: Actor, feature: str, action: str, subject: str, **details: Any
) -> None:
    """Writes a record of a change, and deletes records that are older than :data:`KEEP`.

    Args:
        tx: the transaction of the change.
        actor: its author.
        feature: see :class:`AuditRecord`.
        action: see :class:`AuditRecord`.
        subject: see :class:`AuditRecord`.
        details: JSON values.
    """
    now = database_time(tx)
    tx.execute(sa.delete(audit).where(audit.c.at < now - KEEP))
    tx.execute(
        sa.insert(audit).values(
            at=now, cluster=actor.cluster, actor=actor.name, feature=feature, action=action,
            subject=subject, details=json.dumps(details),
        )
    )  # fmt: skip


def records(
    tx: sa.Connection,
    *,
    feature: str | None = None,
    subject: str | None = None,
    actor: str | None = None,
    limit: int = 50,
) -> Sequence[AuditRecord]:
    """Returns the newest records, newest first: all, or those of a feature, a subject, an actor."""
    query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
    for column, wanted in ((audit.c.feature, feature), (audit.c.subject, subject),
                           (audit.c.actor, actor)):  # fmt: skip
        if wanted is not None:
            query = query.where(column == wanted)
    return [
        AuditRecord(
            at=row.at,
            actor=Actor(name=row.actor, cluster=row.cluster),
            feature=row.feature,
            action=row.action,
            subject=row.subject,
            details=json.loads(row.details),
        )
        for row in tx.execute(query)
    ]
