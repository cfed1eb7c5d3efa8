"""Reconciles what a location left behind that no longer ticks: renamed, removed or down.

Its active jobs hold groups that other locations share. A launched job is reconciled with its run,
as its own dispatcher would do. A launching job is kept for a day, because Dagster resumes a tick
with stored requests for that long.

Runs of another cluster are in a Dagster that this one cannot query. When nothing in that cluster
has ticked for a week, the resources of its locations are released.

Silence ends at the database's time: a host whose clock is ahead must not fail the jobs of others.
"""

from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.event_log.run_lookup import RetryLookup
from arctic_orchestration.schedules import resources
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.location import SILENT, Location, from_row
from arctic_orchestration.schedules.runs import RunTracker
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import is_active, jobs, locations, runs

GIVEN_UP = timedelta(days=1)
CLUSTER_GIVEN_UP = timedelta(days=7)


def reconcile(tx: sa.Connection, own: Location, lookup: RetryLookup, now: datetime) -> int:
    """Ends jobs and forgets runs of silent locations of the same cluster; returns how many ended.

    Skips a location whose row is locked: it is not silent.
    """
    until = dialect.not_ahead(tx, now)
    query = (
        sa.select(locations)
        .where(locations.c.cluster == own.cluster, locations.c.id != own.id)
        .where(locations.c.storage_id == own.storage_id)
        .where(locations.c.ticked_at < until - SILENT)
        .order_by(locations.c.id)
        .with_for_update(skip_locked=True)
    )
    ended = 0
    for row in tx.execute(query).mappings().all():
        silent = from_row(row)
        queue = JobQueue(tx, now)
        tracker = RunTracker(queue, silent, lookup)
        tracker.confirm()
        tracker.verify_jobs()
        tracker.verify_others()
        queue.flush()
        if silent.ticked_at is not None and silent.ticked_at < until - GIVEN_UP:
            in_location = jobs.c.location_id == silent.id
            for job in queue.load(in_location, jobs.c.state == JobState.LAUNCHING.value):
                reason = f"location {silent.name} has not ticked since {silent.ticked_at:%Y-%m-%d}"
                queue.move(job, JobState.FAILED, reason)
                ended += 1
            queue.flush()
    return ended


def let_go(tx: sa.Connection, own: Location, now: datetime) -> int:
    """Ends active jobs and forgets runs of clusters that are gone; returns how many ended."""
    since = dialect.not_ahead(tx, now) - CLUSTER_GIVEN_UP
    alive = sa.select(locations.c.cluster).where(locations.c.ticked_at >= since)
    query = (
        sa.select(locations)
        .where(locations.c.cluster != own.cluster, locations.c.cluster.not_in(alive))
        .where(locations.c.ticked_at.is_not(None))
        .order_by(locations.c.id)
        .with_for_update(skip_locked=True)
    )
    ended = 0
    for row in tx.execute(query).mappings().all():
        gone = from_row(row)
        queue = JobQueue(tx, now)
        for job in queue.load(jobs.c.location_id == gone.id, is_active):
            reason = f"cluster {gone.cluster} has not ticked since {gone.ticked_at:%Y-%m-%d}"
            queue.move(job, JobState.FAILED, reason)
            ended += 1
        queue.flush()
        ids = list(
            tx.execute(sa.select(runs.c.run_id).where(runs.c.location_id == gone.id)).scalars()
        )
        tx.execute(sa.delete(runs).where(runs.c.location_id == gone.id))
        resources.release(tx, ids, now, {})
    return ended
