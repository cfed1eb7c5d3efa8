"""Suspends and resumes schedules.

The schedule's ``suspend_mode`` decides what happens meanwhile:

===========  ===============================================================================
``drop``     events are ignored, waiting jobs discarded, and requests without a run canceled
``drain``    events are ignored; waiting jobs go on and are launched as usual
``backlog``  events are taken; each firing is a job of its own, launched after the resume
``collect``  events are taken; all firings fill one job, launched after the resume
===========  ===============================================================================

The timeouts of waiting jobs do not run while a schedule is suspended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.schedules import deferred_arrivals, fired_partitions, timers
from arctic_orchestration.schedules.discarded_jobs import Discard, waiting_of, with_discard
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import Job, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import ScheduleStatus, StoredSchedule
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import is_launching, is_waiting, job_history, jobs

_REASON = "the schedule was suspended"


def suspend(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    stored: StoredSchedule,
    now: datetime,
    *,
    reason: str = "",
    actor: str = "",
) -> bool:
    """Suspends a schedule according to its mode; admitted jobs go on.

    ``location`` is the schedule's, locked by the caller. Returns whether it was enabled.
    """
    if stored.suspended:
        return False
    mode = stored.schedule.suspend_mode
    if mode == "drop":
        lost = discard_waiting(tx, stored.id, _REASON, now, actor=actor)
        reason = with_discard(reason, lost)
    store.set_status(
        tx, location, stored, ScheduleStatus.SUSPENDED, now, reason=reason, actor=actor
    )
    if mode == "drain":
        timers.stop(tx, stored.id, but=_waited_for(JobQueue(tx, now), stored))
    if mode == "drop":
        timers.stop(tx, stored.id)
        _cancel_launching(tx, stored.id, now, actor)
        return True
    queue = JobQueue(tx, now)
    for job in _waiting(queue, stored):
        # Their next check updates the reason; their timeout no longer decides when.
        queue.change(job, next_check_at=now)
        takes_more = job.scope is not None or not job.waiting_for
        if mode == "backlog" and job.state is JobState.WAITING_CONSTRAINTS and takes_more:
            queue.change(job, waiting_for=None)
    queue.flush()
    return True


def resume(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    stored: StoredSchedule,
    now: datetime,
    *,
    reason: str = "",
    actor: str = "",
) -> bool:
    """Enables a schedule; ``location`` is locked by the caller. Returns whether it was suspended.

    Its collected jobs are launched as its constraints admit.
    """
    if not stored.suspended:
        return False
    store.set_status(tx, location, stored, ScheduleStatus.ENABLED, now, reason=reason, actor=actor)
    timers.start(tx, location, [(stored.id, stored.schedule)], now)
    enabled = replace(stored, status=ScheduleStatus.ENABLED)
    queue = JobQueue(tx, now)
    for job in _waiting(queue, stored):
        stood_still = max(timedelta(0), now - max(stored.status_at, job.created_at))
        queue.change(
            job,
            deadline_at=job.deadline_at and job.deadline_at + stood_still,
            next_check_at=now,
        )
        takes_more = job.waiting_for == "" or (job.scope is not None and job.waiting_for)
        has_ticked = stored.schedule.trigger.begins_with_tick and job.arrivals[0].ticked_at
        if stored.schedule.suspend_mode == "drain" and has_ticked:
            # The ticks of that time were ignored: the job goes on as if it had the last of them.
            ticked = replace(job.arrivals[0], ticked_at=now)
            queue.change(job, arrivals=(ticked, *job.arrivals[1:]))
        collected = job.state is JobState.WAITING_CONSTRAINTS and takes_more
        if collected and not enabled.takes_more:
            queue.change(job, waiting_for=None)
    queue.flush()
    return True


def discard_waiting(
    tx: sa.Connection, schedule_id: str, reason: str, now: datetime, *, actor: str = ""
) -> Discard | None:
    """Discards the waiting jobs of a schedule; returns what was lost, or None."""
    return discard_all_waiting(tx, [schedule_id], reason, now, actor=actor).get(schedule_id)


def discard_all_waiting(
    tx: sa.Connection, schedule_ids: Sequence[str], reason: str, now: datetime, *, actor: str = ""
) -> Mapping[str, Discard]:
    """Discards the waiting jobs of schedules; returns what was lost, by the schedule's id."""
    lost = waiting_of(tx, schedule_ids)
    deferred_arrivals.forget(tx, schedule_ids)
    fired_partitions.forget_waiting(tx, schedule_ids, of_ignoring=True)
    # They may be 100,000 in a tick that deploys: the database moves them.
    these = (dialect.among(tx, jobs.c.schedule_id, schedule_ids), is_waiting)
    to = JobState.DISCARDED.value
    values = {"at": now, "state": to, "reason": reason, "actor": actor}
    columns = [sa.literal(value, job_history.c[name].type) for name, value in values.items()]
    moves = sa.select(jobs.c.id, jobs.c.state, *columns).where(*these).order_by(jobs.c.id)
    tx.execute(sa.insert(job_history).from_select(["job_id", "from_state", *values], moves))
    ended = {"state": to, "reason": reason, "ended_at": now, "next_check_at": None, "held_by": None}
    tx.execute(sa.update(jobs).where(*these).values(ended))
    return lost


def _cancel_launching(tx: sa.Connection, schedule_id: str, now: datetime, actor: str) -> None:
    """Cancels jobs that get no run; a job with one request gets its run soon."""
    queue = JobQueue(tx, now, actor=actor)
    has_no_run = jobs.c.run_id.is_(None) & jobs.c.begun_run_id.is_(None)
    unneeded = is_launching & has_no_run & (jobs.c.requests != 1)
    of_schedule = jobs.c.schedule_id == schedule_id
    for job in queue.load(query=sa.select(jobs).where(of_schedule, unneeded).with_for_update()):
        queue.move(job, JobState.CANCELED, _REASON)
    queue.flush()


def _waited_for(queue: JobQueue, stored: StoredSchedule) -> list[int]:
    """Returns the leaves whose timer an event in a waiting job started and that still wait."""
    return [
        number
        for job in _waiting(queue, stored)
        if job.state is JobState.WAITING_TRIGGER
        for number, leaf in enumerate(job.arrivals)
        if leaf.events and not leaf.ticks
    ]


def _waiting(queue: JobQueue, stored: StoredSchedule) -> list[Job]:
    return queue.load(jobs.c.schedule_id == stored.id, is_waiting)
