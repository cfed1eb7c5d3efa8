"""Sets moments right that were computed while the clock was ahead.

A clock that runs ahead for one tick leaves timers and looks of jobs in a future that is long in
coming. When the clock is set back by more than an hour, what lies in the future is computed anew;
a smaller step only makes the next tick come later, and no tick of time is delivered twice.
"""

from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.database.tables import jobs, launches, run_ends, runs, timers
from arctic_orchestration.scheduling import location as locations
from arctic_orchestration.scheduling.jobs import ACTIVE, WAITING
from arctic_orchestration.scheduling.location import Location
from arctic_orchestration.scheduling.queue import JobQueue
from arctic_orchestration.scheduling.store import ScheduleStore

#: what clocks that are kept in step, and changes by hand of some minutes, stay below
STEP = timedelta(hours=1)


#: how long a tick may wait for its locks; Dagster ends it after that
_TICK = timedelta(minutes=1)


def told(at: datetime, now: datetime) -> datetime:
    """A moment that another process told, as a tick that began at ``now`` takes it.

    It may lie a little ahead, since the tick waited for its locks; what is further ahead is
    another host's clock.
    """
    return at if at <= now + _TICK else now


def was_set_back(location: Location, now: datetime) -> bool:
    """Whether the last tick that said when it was lies far in the future."""
    return location.ticked_at is not None and location.ticked_at - now > STEP


def settle(tx: sa.Connection, location: Location, store: ScheduleStore, now: datetime) -> None:
    """Computes timers, looks and deadlines of a location anew, as of ``now``."""
    _settle_timers(tx, location, store, now)
    _settle_jobs(tx, location, store, now)
    here = runs.c.location_id == location.id
    tx.execute(sa.update(runs).where(here, runs.c.seen_at > now).values(seen_at=now))
    own = sa.select(jobs.c.id).where(jobs.c.location_id == location.id)
    ahead = (launches.c.at > now) & launches.c.holder.in_(own)
    tx.execute(sa.update(launches).where(ahead).values(at=now))
    ours = run_ends.c.resource.startswith(f"job:{location.place}/", autoescape=True)
    ours |= run_ends.c.resource.startswith(f"asset:{location.place}/", autoescape=True)
    tx.execute(sa.update(run_ends).where(ours, run_ends.c.ended_at > now).values(ended_at=now))
    locations.update(tx, location, ticked_at=now)


def _settle_timers(
    tx: sa.Connection, location: Location, store: ScheduleStore, now: datetime
) -> None:
    query = sa.select(timers.c.schedule_id, timers.c.leaf, timers.c.due_at).where(
        timers.c.location_id == location.id, timers.c.due_at > now
    )
    rows = tx.execute(query).all()
    stored = store.by_ids(tx, {row.schedule_id for row in rows})
    for row in rows:
        schedule = stored.get(row.schedule_id)
        if schedule is None:
            continue
        due_at = schedule.leaves[row.leaf].next_tick(now, schedule.name)
        if due_at is not None and due_at < row.due_at:
            this = (timers.c.schedule_id == row.schedule_id) & (timers.c.leaf == row.leaf)
            tx.execute(sa.update(timers).where(this).values(due_at=due_at))


def _settle_jobs(
    tx: sa.Connection, location: Location, store: ScheduleStore, now: datetime
) -> None:
    queue = JobQueue(tx, now)
    here = jobs.c.location_id == location.id
    found = queue.load(here, jobs.c.state.in_([state.value for state in (*WAITING, *ACTIVE)]))
    stored = store.by_ids(tx, {job.schedule_id for job in found})
    for job in found:
        schedule = stored.get(job.schedule_id)
        if job.next_check_at is not None and job.next_check_at > now:
            queue.change(job, next_check_at=now)
        if job.satisfied_at is not None and job.satisfied_at > now:
            queue.change(job, satisfied_at=now)
        if job.requested_at is not None and job.requested_at > now:
            queue.change(job, requested_at=now)
        if job.created_at > now and schedule is not None:
            queue.change(job, created_at=now, deadline_at=now + schedule.schedule.timeout)
    queue.flush()
