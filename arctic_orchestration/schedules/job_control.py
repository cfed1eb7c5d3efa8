"""Manual launches and cancels of jobs, each in one transaction of a locked location.

The caller begins the transaction, as for :mod:`~.control`. Each change of a person is recorded in
the audit log, in the same transaction.
"""

from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.errors import NotFound, TransitionRefused
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.notifications.outbox import Notice
from arctic_orchestration.schedules.control import stored_by_name
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.job_splitter import partitions_of
from arctic_orchestration.schedules.jobs import COMMON, LAUNCHED_MANUALLY, WAITING, Job, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.open_jobs import slot_of
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.trigger_evaluation import fire
from arctic_orchestration.schedules.triggers.base import NOTHING
from arctic_orchestration.state import audit, dialect
from arctic_orchestration.state.audit import NO_ACTOR, Actor
from arctic_orchestration.state.tables import is_waiting, jobs


def launch_schedule(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    name: str,
    now: datetime,
    *,
    actor: Actor = NO_ACTOR,
) -> Job:
    """Makes the next tick launch a schedule past its trigger and constraints, except concurrency.

    Its first waiting job is launched with the events it has; without one, a job without events is
    made. A suspended schedule is launched, too, and stays suspended.

    Errors:
        NotFound: no schedule has the name; lists similar names.
        TransitionRefused: this version of the package cannot read it; or it works per partition,
            and no job of a partition waits.
    """
    stored = stored_by_name(tx, store, location, name)
    query = sa.select(jobs.c.id).where(
        jobs.c.schedule_id == stored.id, is_waiting, jobs.c.scope.is_distinct_from(COMMON)
    )
    # Jobs whose trigger is satisfied come first, as in the order of the checker.
    order = (jobs.c.state, jobs.c.priority.desc(), jobs.c.created_at, jobs.c.id)
    waiting = tx.execute(query.order_by(*order).limit(1)).scalar()
    if waiting is not None:
        return launch_job(tx, location, waiting, now, actor=actor)
    if stored.is_scoped or stored.schedule.partitions != "none":
        raise TransitionRefused(
            f"Schedule {name} works per partition, and no partition waits: nothing to launch. "
            "Announce a partition, or start a run of it in Dagster"
        )
    now = dialect.not_ahead(tx, now)
    queue = JobQueue(tx, now, actor=actor.name)
    job = queue.add(
        Job(
            id=new_id(now),
            location_id=location.id,
            schedule_id=stored.id,
            schedule_version=stored.version,
            state=JobState.WAITING_TRIGGER,
            reason=LAUNCHED_MANUALLY,
            waiting_for=slot_of(None),
            arrivals=(NOTHING,) * len(stored.leaves),
            priority=stored.schedule.priority,
            created_at=now,
            deadline_at=now + stored.schedule.timeout,
        )
    )
    reason = f"{LAUNCHED_MANUALLY}, without events"
    fire(queue, job, stored, job.arrivals, reason, forced=LAUNCHED_MANUALLY)
    queue.flush()
    _record(tx, location, actor, "launch", None, queue.current(job))
    return queue.current(job)


def launch_job(
    tx: sa.Connection, location: Location, job_id: str, now: datetime, *, actor: Actor = NO_ACTOR
) -> Job:
    """Makes the next tick launch a job past its constraints, except limits on concurrency.

    A job that waits for its trigger is launched with the events it has. Returns the job as it is
    then; with ``partitions: each`` it may have become one of several.

    Errors:
        NotFound: the location has no such job.
        TransitionRefused: it no longer waits.
    """
    # On a host whose clock is ahead, the next tick would find that its moment has not come.
    now = dialect.not_ahead(tx, now)
    queue = JobQueue(tx, now, actor=actor.name)
    before = job = _job(queue, location, job_id)
    if job.scope == COMMON:
        raise TransitionRefused(f"Job {job.id} is never launched: {job.reason}")
    if job.state not in WAITING:
        raise TransitionRefused(f"Job {job.id} cannot be launched manually: {_where_it_is(job)}")
    stored = ScheduleStore().by_ids(tx, [job.schedule_id]).get(job.schedule_id)
    if stored is None:
        raise TransitionRefused(
            f"Job {job.id} cannot be launched: this version of the package cannot read its schedule"
        )
    if job.state is JobState.WAITING_CONSTRAINTS:
        job = queue.change(job, forced=LAUNCHED_MANUALLY, next_check_at=now)
        queue.remark(job, LAUNCHED_MANUALLY)
    else:
        splits = stored.schedule.partitions == "each" and job.scope is None
        keys = partitions_of(queue, job) if splits else []
        reason = f"{LAUNCHED_MANUALLY}, when: {job.reason}"
        fire(queue, job, stored, job.arrivals, reason, forced=LAUNCHED_MANUALLY)
        # Partitions that joined other waiting jobs already take the common events along.
        for joined in queue.load(
            jobs.c.schedule_id == job.schedule_id,
            jobs.c.state == JobState.WAITING_CONSTRAINTS.value,
            dialect.among(tx, jobs.c.partition_start, keys),
        ):
            if joined.waiting_for is not None:
                queue.change(joined, forced=LAUNCHED_MANUALLY, next_check_at=now)
    queue.flush()
    _record(tx, location, actor, "launch", before, queue.current(job))
    return queue.current(job)


def cancel_job(
    tx: sa.Connection, location: Location, job_id: str, now: datetime, *, actor: Actor = NO_ACTOR
) -> Job:
    """Ends a job that has no run yet; its events are not given to another job.

    A waiting job is discarded. A launching job is canceled: its request is not handed out again,
    and a run that an earlier request still creates is terminated.

    Errors:
        NotFound: the location has no such job.
        TransitionRefused: it has a run, which can be terminated in Dagster, or it has ended.
    """
    queue = JobQueue(tx, now, actor=actor.name)
    # A run claims its job through this row alone.
    queue.load(query=sa.select(jobs).where(jobs.c.id == job_id).with_for_update())
    before = job = _job(queue, location, job_id)
    has_run = job.run_id is not None or job.begun_run_id is not None
    is_launching = job.state is JobState.LAUNCHING and not has_run
    if job.state not in WAITING and not is_launching:
        raise TransitionRefused(f"Job {job.id} cannot be canceled: {_where_it_is(job)}")
    to = JobState.CANCELED if is_launching else JobState.DISCARDED
    job = queue.move(job, to, "canceled manually", notice=Notice.JOB_DISCARDED)
    queue.flush()
    _record(tx, location, actor, "cancel", before, job)
    return job


def _job(queue: JobQueue, location: Location, job_id: str) -> Job:
    job = queue.by_ids([job_id]).get(job_id)
    if job is None or job.location_id != location.id:
        raise NotFound(f"location {location.name} has no job {job_id}")
    return job


def _where_it_is(job: Job) -> str:
    """Returns the state of a job that does not wait, and what can be done about it."""
    if job.state is JobState.LAUNCHING:
        return (
            f"it is launching, with run {job.run_id or job.begun_run_id}. Terminate the run in "
            "Dagster: the job then ends as canceled"
        )
    if job.state is JobState.LAUNCHED:
        return (
            f"it is launched as run {job.run_id}. Terminate that run in Dagster: "
            "the job then ends as canceled"
        )
    ended = f" at {job.ended_at:%Y-%m-%d %H:%M:%SZ}" if job.ended_at else ""
    return f"it has ended{ended}, {job.state.value}: {job.reason}"


def _record(
    tx: sa.Connection, location: Location, actor: Actor, action: str, before: Job | None, after: Job
) -> None:
    if actor is not NO_ACTOR:
        states = [
            None if job is None else {"state": job.state.value, "reason": job.reason}
            for job in (before, after)
        ]
        place = location.name
        audit.record(
            tx, actor, "jobs", action, after.id, before=states[0], after=states[1], location=place
        )
