"""Suspends and resumes schedules: events that arrive in between are ignored."""

from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.database.tables import jobs
from arctic_orchestration.scheduling.jobs import WAITING, JobState
from arctic_orchestration.scheduling.location import Location
from arctic_orchestration.scheduling.queue import JobQueue
from arctic_orchestration.scheduling.store import ScheduleStatus, ScheduleStore, StoredSchedule


def suspend(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    stored: StoredSchedule,
    now: datetime,
) -> None:
    """Stops a schedule from taking events; what waits is discarded, what was admitted runs.

    ``location`` is the schedule's, locked by the caller.
    """
    store.set_status(tx, stored.id, ScheduleStatus.SUSPENDED, now)
    store.stop_timers(tx, stored.id)
    discard_waiting(tx, stored.id, "the schedule was suspended", now)


def resume(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    stored: StoredSchedule,
    now: datetime,
) -> None:
    """Lets a schedule take events again, from now on; ``location`` is locked by the caller."""
    store.set_status(tx, stored.id, ScheduleStatus.ENABLED, now)
    store.start_timers(tx, location, [(stored.id, stored.schedule)], now)


def discard_waiting(tx: sa.Connection, schedule_id: str, reason: str, now: datetime) -> int:
    """Discards the jobs of a schedule that wait; returns how many."""
    queue = JobQueue(tx, now)
    waiting = queue.load(
        jobs.c.schedule_id == schedule_id, jobs.c.state.in_([state.value for state in WAITING])
    )
    for job in waiting:
        queue.move(job, JobState.DISCARDED, reason, next_check_at=None, held_by=None, ended_at=now)
    queue.flush()
    return len(waiting)
