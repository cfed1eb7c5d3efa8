"""Corrects moments that were computed while the clock was ahead.

A clock that is ahead for one tick moves timers and next checks far into the future. When the clock
is set back by more than an hour, moments in the future are computed again. A smaller step only
delays the next tick, and no tick of time is delivered twice.
"""

from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules import timers
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.resources import of_location
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.state.tables import is_active, is_waiting, jobs, launches, run_ends, runs

#: above the drift of synchronized clocks and manual changes of some minutes
STEP = timedelta(hours=1)


#: how long a tick may wait for locks; Dagster ends it after that
_TICK = timedelta(minutes=1)


def not_in_future(at: datetime, now: datetime) -> datetime:
    """Limits a moment written by another process to what a tick begun at ``now`` can accept.

    The moment may be slightly ahead, because the tick waited for its locks. A moment further ahead
    comes from the clock of another host.
    """
    return at if at <= now + _TICK else now


def was_set_back(location: Location, now: datetime) -> bool:
    """Returns whether the last recorded tick lies far in the future."""
    return location.ticked_at is not None and location.ticked_at - now > STEP


def reset_moments(
    tx: sa.Connection, location: Location, store: ScheduleStore, now: datetime
) -> None:
    """Recomputes timers, next checks and deadlines of a location as of ``now``."""
    timers.set_right(tx, location, store, now)
    _correct_jobs(tx, location, store, now)
    in_location = runs.c.location_id == location.id
    tx.execute(sa.update(runs).where(in_location, runs.c.seen_at > now).values(seen_at=now))
    own = sa.select(jobs.c.id).where(jobs.c.location_id == location.id)
    ahead = launches.c.at > now
    ours = launches.c.holder.in_(own) | of_location(tx, launches.c.resource, location)
    tx.execute(sa.update(launches).where(ahead, ours).values(at=now))
    late = of_location(tx, run_ends.c.resource, location) & (run_ends.c.ended_at > now)
    tx.execute(sa.update(run_ends).where(late).values(ended_at=now))
    locations.update(tx, location, ticked_at=now)


def _correct_jobs(
    tx: sa.Connection, location: Location, store: ScheduleStore, now: datetime
) -> None:
    queue = JobQueue(tx, now)
    in_location = jobs.c.location_id == location.id
    found = queue.load(in_location, is_waiting | is_active)
    stored = store.by_ids(tx, {job.schedule_id for job in found})
    for job in found:
        schedule = stored.get(job.schedule_id)
        arrivals = tuple(arrived.as_of(now) for arrived in job.arrivals)
        if arrivals != job.arrivals:
            queue.change(job, arrivals=arrivals)
        if job.next_check_at is not None and job.next_check_at > now:
            queue.change(job, next_check_at=now)
        if job.satisfied_at is not None and job.satisfied_at > now:
            queue.change(job, satisfied_at=now)
        if job.requested_at is not None and job.requested_at > now:
            queue.change(job, requested_at=now)
        if job.created_at > now and schedule is not None:
            queue.change(job, created_at=now, deadline_at=now + schedule.schedule.timeout)
    queue.flush()
