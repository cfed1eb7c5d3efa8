"""Hands out the launch requests of admitted jobs until their run is seen.

A request names job and attempt in its run key, so one daemon makes one run of it however often it
is handed out. It is handed to one tick at a time, so that two daemons do not make two runs; see
``hand_out_leases``. The request of a second attempt waits for the tick of the first. The content of
a request is stored when the job is admitted, and does not change with the schedule.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.notifications.outbox import Notice
from arctic_orchestration.run_tags import JOB_TAG, shortened
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import Job, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.schedule import Target
from arctic_orchestration.schedules.targets import Targets, problem_of
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import is_launching, jobs

#: Dagster stores all requests of a tick in one row, and creates their runs one by one.
REQUESTED_AT_ONCE = 100

#: how long a tick keeps a request without launching any of its runs; each run renews the lease
LEASE = timedelta(minutes=2)

#: how the job of a schedule in shadow ends
SHADOWED = "shadow: its run would have been requested"

SCHEDULE_TAG = "arctic/schedule"
TRIGGER_TAG = "arctic/trigger"


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRequest:
    """A request to Dagster for the run of a job."""

    run_key: str
    job_id: str
    target: Target
    partition_start: str | None
    partition_end: str | None
    tags: Mapping[str, str]
    run_config: Mapping[str, Any]
    #: the assets of the target's job to run; empty: all
    selection: tuple[str, ...] = ()


def leased_ticks(tx: sa.Connection, location: Location) -> list[str]:
    """Returns the ticks that have requests whose run is not seen yet."""
    in_location = jobs.c.location_id == location.id
    ticks = sa.select(jobs.c.requested_tick).where(
        in_location, is_launching, jobs.c.requested_tick.is_not(None)
    )
    return list(tx.execute(ticks.distinct()).scalars())


def renew(tx: sa.Connection, location: Location, ticks: Collection[str]) -> None:
    """Renews the leases of ticks that have launched a run: a daemon works on them."""
    if not ticks:
        return
    in_location = jobs.c.location_id == location.id
    expires_at = dialect.database_time(tx) + LEASE
    tx.execute(
        sa.update(jobs)
        .where(in_location, is_launching, dialect.among(tx, jobs.c.requested_tick, ticks))
        .values(request_expires_at=expires_at)
    )


def hand_out(
    queue: JobQueue,
    location: Location,
    targets: Targets,
    tick: str | None,
    ended: Collection[str],
    *,
    later: Collection[str] = (),
    unless: sa.ColumnElement[bool] | None = None,
) -> list[LaunchRequest]:
    """Returns the requests of launching jobs that no tick has, longest wait first.

    A job whose run Dagster would refuse fails with the reason, once no earlier request for it can
    still become a run: one refused request fails all others of its tick.

    Args:
        queue: the jobs of this transaction.
        location: the location, whose row is locked.
        targets: the existing targets.
        tick: the tick that gets the requests.
        ended: ticks whose leases have ended, read before runs were looked up.
        later: jobs that wait for the next tick.
        unless: the condition of jobs that are left out, and take no other's place.
    """
    requests = []
    now = dialect.database_time(queue.tx)
    query = unleased(queue.tx, location, ended, now)
    for job in queue.load(query=query if unless is None else query.where(~unless)):
        if job.id in later:
            continue
        # One that another version of the package stored must not stop the others.
        try:
            shadowed, request = is_shadowed(job), _request(job)
        except Exception as error:
            text = f"its stored request cannot be read: {error!r}"
            if _is_out(queue, job, ended, now):
                queue.wait(job, text, next_check_at=queue.now)
            else:
                fail_launch(queue, job, text)
            continue
        if shadowed:
            queue.move(job, JobState.DISCARDED, SHADOWED)
            continue
        problem = problem_of(targets, request.target, job.partition_start, job.partition_end)
        if problem is not None:
            # An earlier hand-out may still become a run: the job must not end before it.
            if problem.lasting and not _is_out(queue, job, ended, now):
                fail_launch(queue, job, problem.text)
            else:
                queue.wait(job, problem.text, next_check_at=queue.now)
            continue
        reason = f"its run was requested in tick {tick} and is not seen yet" if tick else job.reason
        if job.requests:
            reason = f"its run was requested {job.requests + 1} times and is not seen yet"
        queue.change(
            job,
            requested_at=queue.now,
            requests=job.requests + 1,
            requested_tick=tick,
            request_expires_at=now + LEASE,
            next_check_at=None,
            reason=reason,
        )
        requests.append(request)
    return requests


def _is_out(queue: JobQueue, job: Job, ended: Collection[str], now: datetime) -> bool:
    """Returns whether an earlier hand-out may still become a run."""
    if job.requested_tick is None:
        # No daemon evaluated the sensor: there is no record, and the engine's time counts.
        return job.requested_at is not None and queue.now - job.requested_at < LEASE
    expires_at = job.request_expires_at
    return job.requested_tick not in ended and expires_at is not None and now < expires_at


def unleased(
    tx: sa.Connection, location: Location, ended: Collection[str], now: datetime
) -> sa.Select[Any]:
    """Returns the query of the jobs that :func:`hand_out` takes next.

    Last come those that it could not hand out, longest ago first: they stop no others.
    """
    free = jobs.c.requested_tick.is_(None) | (jobs.c.request_expires_at <= now)
    if ended:
        free |= dialect.among(tx, jobs.c.requested_tick, ended)
    return (
        sa.select(jobs)
        .where(jobs.c.location_id == location.id, is_launching, free)
        .order_by(jobs.c.next_check_at.is_not(None), jobs.c.next_check_at, jobs.c.requests)
        .order_by(jobs.c.priority.desc(), jobs.c.created_at, jobs.c.id)
        .limit(REQUESTED_AT_ONCE)
    )


def fail_launch(queue: JobQueue, job: Job, problem: str) -> None:
    """Ends a job whose run Dagster refuses to make."""
    queue.move(job, JobState.FAILED, problem, notice=Notice.LAUNCH_FAILED)


def is_shadowed(job: Job) -> bool:
    """Returns whether an admitted job gets no run, because its schedule was in shadow then."""
    return "shadowed" in json.loads(job.launch or "{}")


def _request(job: Job) -> LaunchRequest:
    launch = json.loads(job.launch or "{}")
    return LaunchRequest(
        run_key=job.run_key,
        job_id=job.id,
        target=Target.parse(launch["target"], field="target"),
        partition_start=job.partition_start,
        partition_end=job.partition_end,
        tags={
            **launch["tags"],
            SCHEDULE_TAG: launch["schedule"],
            JOB_TAG: job.id,
            TRIGGER_TAG: shortened(launch["trigger"]),
        },
        run_config=launch["run_config"],
        selection=tuple(launch.get("selection", ())),
    )
