"""Events of Dagster's log that could not be stored, set aside so that later ones are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.state.tables import unreadable_events


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadableEvent:
    """One event that was set aside.

    Attributes:
        reader: its reader, such as ``location flights`` or ``consumer loader``.
        event_id: its id in Dagster's event log.
        event: a description of it.
        found_at: when it was set aside.
        reason: the error of storing it.
    """

    reader: str
    event_id: int
    event: str
    found_at: datetime
    reason: str


def set_aside(
    tx: sa.Connection, cluster: str, reader: str, events: Mapping[int, tuple[str, str]],
    now: datetime,
) -> None:  # fmt: skip
    """Records events by id, each with a description and the reason."""
    rows = [
        {
            "cluster": cluster,
            "reader": reader,
            "event_id": event_id,
            "event": event,
            "found_at": now,
            "reason": reason,
        }
        for event_id, (event, reason) in events.items()
    ]
    if rows:
        tx.execute(sa.insert(unreadable_events), rows)


def listed(tx: sa.Connection, cluster: str, *, limit: int) -> Sequence[UnreadableEvent]:
    """Returns the newest events of a cluster, newest first."""
    col = unreadable_events.c
    query = sa.select(col.reader, col.event_id, col.event, col.found_at, col.reason)
    rows = tx.execute(query.where(col.cluster == cluster).order_by(col.id.desc()).limit(limit))
    return [UnreadableEvent(**row) for row in rows.mappings()]


def count(tx: sa.Connection, cluster: str) -> int:
    """Returns the number of events of a cluster."""
    query = sa.select(sa.func.count()).where(unreadable_events.c.cluster == cluster)
    return int(tx.execute(query).scalar_one())


def prune(tx: sa.Connection, cluster: str, before: datetime) -> None:
    """Deletes events that were set aside before a moment."""
    col = unreadable_events.c
    tx.execute(sa.delete(unreadable_events).where(col.cluster == cluster, col.found_at < before))
