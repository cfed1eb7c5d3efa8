"""Deletes jobs that ended long ago, and events that belong to no job any more."""

from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa

from arctic_orchestration.schedules.jobs import COMMON
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.state import dialect, unreadable_events
from arctic_orchestration.state.partition_tables import deferred_arrivals, event_of_arrival
from arctic_orchestration.state.tables import (
    event_of_job,
    events,
    is_waiting,
    job_events,
    jobs,
    launches,
)

KEEP = timedelta(days=30)
#: common events that are kept for one schedule
_KEPT_FOR_ALL = 1_000
#: rows of each kind that one tick deletes, so that a tick stays short
_AT_ONCE = 500


class Pruned(NamedTuple):
    """What was deleted."""

    jobs: int
    #: there may be more to delete
    more: bool


def prune(tx: sa.Connection, location: Location, now: datetime) -> Pruned:
    """Deletes some rows that ended before ``now - KEEP``.

    Ages are judged by the database's time: on a host whose clock is ahead, arrivals that wait for
    checks and launches that a rate counts would be lost.
    """
    now = dialect.not_ahead(tx, now)
    old = (
        sa.select(jobs.c.id)
        .where(jobs.c.location_id == location.id, jobs.c.ended_at < now - KEEP)
        .limit(_AT_ONCE)
    )
    ids = list(tx.execute(old).scalars())
    if ids:
        tx.execute(sa.delete(jobs).where(dialect.among(tx, jobs.c.id, ids)))
    _prune_kept(tx, location)
    old_deferrals = (
        sa.select(deferred_arrivals.c.id)
        .where(deferred_arrivals.c.location_id == location.id)
        .where(deferred_arrivals.c.at < now - KEEP)
        .limit(_AT_ONCE)
    )
    deferrals = list(tx.execute(old_deferrals).scalars())
    these = dialect.among(tx, deferred_arrivals.c.id, deferrals)
    tx.execute(sa.delete(deferred_arrivals).where(these))
    used, waits = sa.exists().where(event_of_job), sa.exists().where(event_of_arrival)
    unused = (
        sa.select(events.c.number)
        .where(events.c.location_id == location.id, events.c.taken_at < now - KEEP, ~used, ~waits)
        .limit(_AT_ONCE)
    )
    numbers = list(tx.execute(unused).scalars())
    if numbers:
        in_location = events.c.location_id == location.id
        tx.execute(
            sa.delete(events).where(in_location, dialect.among(tx, events.c.number, numbers))
        )
    unreadable_events.prune(tx, location.cluster, now - KEEP)
    # No rate needs launches from further back.
    forgotten = sa.select(launches.c.holder).where(launches.c.at < now - KEEP).limit(_AT_ONCE)
    gone = tx.execute(
        sa.delete(launches).where(launches.c.at < now - KEEP, launches.c.holder.in_(forgotten))
    ).rowcount
    most = max(len(ids), len(deferrals), len(numbers), gone)
    return Pruned(jobs=len(ids), more=most >= _AT_ONCE)


def _prune_kept(tx: sa.Connection, location: Location) -> None:
    """Deletes the oldest of many common events of a schedule."""
    kept = jobs.c.location_id == location.id, jobs.c.scope == COMMON, is_waiting
    for id in list(tx.execute(sa.select(jobs.c.id).where(*kept)).scalars()):
        of_job = job_events.c.job_id == id
        newest = sa.select(job_events.c.number).where(of_job).order_by(job_events.c.number.desc())
        oldest = tx.execute(newest.offset(_KEPT_FOR_ALL).limit(1)).scalar()
        if oldest is not None:
            tx.execute(sa.delete(job_events).where(of_job, job_events.c.number <= oldest))
