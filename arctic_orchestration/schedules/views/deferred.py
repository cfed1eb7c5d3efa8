"""Deferred arrivals, which no job has yet, and what each waits for."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from arctic_orchestration.documents import At, Document
from arctic_orchestration.event_log.event import Event
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.target_partitions import partition_of
from arctic_orchestration.state.partition_tables import deferred_arrivals, event_of_arrival
from arctic_orchestration.state.tables import events, locations, schedules

#: what an arrival may wait for: the next tick, a partition it maps to, or asset checks
WAITS_FOR: Final = ("code", "match", "checks")


class DeferredArrival(Document):
    """An arrival that a schedule has and no job has."""

    #: the number of its event within the location
    number: int
    #: the asset, or the job of a run
    subject: str
    partition: str
    schedule: str
    #: one of :data:`WAITS_FOR`
    waits_for: str
    reason: str
    arrived_at: At

    def __str__(self) -> str:
        return f"{self.subject} {self.partition} for schedule {self.schedule}: {self.reason}"


def deferred(
    tx: sa.Connection,
    location: Location,
    *,
    waits_for: Sequence[str] = ("match",),
    schedule_id: str | None = None,
    since: datetime | None = None,
    limit: int = 50,
) -> tuple[Sequence[DeferredArrival], int]:
    """Returns the newest deferred arrivals of a location, newest first, and their total number.

    Args:
        tx: a transaction that reads.
        location: of the schedules.
        waits_for: some of :data:`WAITS_FOR`.
        schedule_id: only of this schedule.
        since: only those deferred at this moment or later.
        limit: the maximum number of listed arrivals.
    """
    kept = deferred_arrivals.c
    which = [kept.location_id == location.id, kept.waits_for.in_(waits_for)]
    if schedule_id is not None:
        which.append(kept.schedule_id == schedule_id)
    if since is not None:
        which.append(kept.at >= since)
    total = int(tx.execute(sa.select(sa.func.count(kept.id)).where(*which)).scalar_one())
    query = (
        sa.select(kept.number, kept.waits_for, kept.reason, schedules.c.name, events.c.details)
        .join(schedules, schedules.c.id == kept.schedule_id)
        .join(events, event_of_arrival)
        .where(*which)
        .order_by(kept.number.desc(), kept.id.desc())
        .limit(limit)
    )
    return [_listed(row) for row in tx.execute(query)], total


def deferred_counts(tx: sa.Connection, cluster: str, location: str) -> dict[str, int]:
    """Returns the number of deferred arrivals of a location, by what they wait for."""
    kept = deferred_arrivals.c
    query = (
        sa.select(kept.waits_for, sa.func.count(kept.id))
        .join(locations, locations.c.id == kept.location_id)
        .where(locations.c.cluster == cluster, locations.c.name == location)
        .group_by(kept.waits_for)
    )
    found = {row[0]: row[1] for row in tx.execute(query)}
    return {name: found.get(name, 0) for name in WAITS_FOR}


def _listed(row: Any) -> DeferredArrival:
    event = Event.parse(row.details)
    return DeferredArrival(
        number=row.number,
        subject=event.subject,
        partition=partition_of(event),
        schedule=row.name,
        waits_for=row.waits_for,
        reason=row.reason,
        arrived_at=event.at,
    )
