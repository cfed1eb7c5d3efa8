"""The audit log: the changes that people made.

A record is written in the transaction of the change. It is kept for :data:`KEEP`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.documents import At, Document, source
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.tables import audit

KEEP = timedelta(days=400)


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """The author of a change.

    Attributes:
        name: the system's user, a token's name, or the user that a proxy reports; empty: unknown.
        cluster: the cluster for which the change is made.
        address: the network address of a request; empty: a command made the change.
        request_id: the request over the network.
    """

    name: str = ""
    cluster: str = ""
    address: str = ""
    request_id: str = ""


#: No author: a change that is not a person's, as in a simulation, is not recorded.
NO_ACTOR = Actor()


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
        before: the object before the change; None: it was created, or is not recorded.
        after: the object after the change; None: it was deleted, or is not recorded.
        number: increases with each record.
    """

    at: datetime
    actor: Actor
    feature: str
    action: str
    subject: str
    details: Mapping[str, Any]
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    number: int = 0


class AuditDocument(Document):
    """One change by a person."""

    at: At
    actor: str = source("actor.name")
    cluster: str = source("actor.cluster")
    feature: str
    action: str
    subject: str
    details: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    address: str = source("actor.address")
    request_id: str = source("actor.request_id")


def record(
    tx: sa.Connection,
    actor: Actor,
    feature: str,
    action: str,
    subject: str,
    *,
    before: Any = None,
    after: Any = None,
    **details: Any,
) -> None:
    """Writes a record of a change, and deletes records that are older than :data:`KEEP`.

    Args:
        tx: the transaction of the change.
        actor: its author.
        feature: see :class:`AuditRecord`.
        action: see :class:`AuditRecord`.
        subject: see :class:`AuditRecord`.
        before: the object as a JSON mapping; see :class:`AuditRecord`.
        after: likewise.
        details: JSON values.
    """
    now = database_time(tx)
    tx.execute(sa.delete(audit).where(audit.c.at < now - KEEP))
    tx.execute(
        sa.insert(audit).values(
            at=now, cluster=actor.cluster, actor=actor.name, feature=feature, action=action,
            subject=subject, details=json.dumps(details), before=_text(before), after=_text(after),
            address=actor.address, request_id=actor.request_id,
        )
    )  # fmt: skip


def records(
    tx: sa.Connection,
    *,
    feature: str | None = None,
    subject: str | None = None,
    actor: str | None = None,
    cluster: str | None = None,
    below: int | None = None,
    limit: int = 50,
) -> Sequence[AuditRecord]:
    """Returns the newest records, newest first: all, or those of a feature, a subject, an actor.

    ``below`` is the number of a record: only older ones are returned.
    """
    query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
    if below is not None:
        query = query.where(audit.c.id < below)
    for column, wanted in ((audit.c.feature, feature), (audit.c.subject, subject),
                           (audit.c.actor, actor), (audit.c.cluster, cluster)):  # fmt: skip
        if wanted is not None:
            query = query.where(column == wanted)
    return [
        AuditRecord(
            at=row.at,
            actor=Actor(
                name=row.actor,
                cluster=row.cluster,
                address=row.address,
                request_id=row.request_id,
            ),
            feature=row.feature,
            action=row.action,
            subject=row.subject,
            details=json.loads(row.details),
            before=json.loads(row.before or "null"),
            after=json.loads(row.after or "null"),
            number=row.id,
        )
        for row in tx.execute(query)
    ]


def _text(state: Mapping[str, Any] | None) -> str | None:
    return None if state is None else json.dumps(state)
