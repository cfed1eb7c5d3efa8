"""Hands out the launch requests of admitted jobs, again and again until their run is seen.

A request names job and attempt in its run key, so Dagster makes one run of it however often it
is handed out. Never is a second attempt begun while the fate of the first is open: its request
may still lie in a tick that the daemon will resume.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.database.tables import jobs
from arctic_orchestration.scheduling.jobs import Job, JobState
from arctic_orchestration.scheduling.location import Location
from arctic_orchestration.scheduling.queue import JobQueue
from arctic_orchestration.scheduling.runs import JOB_TAG
from arctic_orchestration.scheduling.schedule import Schedule, Target
from arctic_orchestration.scheduling.store import ScheduleStore

#: Dagster stores all requests of a tick in one row, and creates their runs one by one.
REQUESTED_AT_ONCE = 100

SCHEDULE_TAG = "arctic/schedule"
TRIGGER_TAG = "arctic/trigger"


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRequest:
    """What Dagster is asked for on behalf of a job."""

    run_key: str
    job_id: str
    target: Target
    partition_start: str | None
    partition_end: str | None
    tags: Mapping[str, str]
    run_config: Mapping[str, Any]


def hand_out(queue: JobQueue, location: Location, store: ScheduleStore) -> list[LaunchRequest]:
    """The requests of jobs that are launching, those that waited longest for one first."""
    query = (
        sa.select(jobs)
        .where(jobs.c.location_id == location.id, jobs.c.state == JobState.LAUNCHING.value)
        .order_by(jobs.c.requests, jobs.c.priority.desc(), jobs.c.created_at, jobs.c.id)
        .limit(REQUESTED_AT_ONCE)
    )
    launching = queue.load(query=query)
    if not launching:
        return []
    stored = store.by_ids(queue.tx, {job.schedule_id for job in launching})
    requests = []
    for job in launching:
        if job.schedule_id not in stored:
            continue
        reason = job.reason
        if job.requests:
            reason = f"its run was requested {job.requests + 1} times and is not seen yet"
        queue.change(job, requested_at=queue.now, requests=job.requests + 1, reason=reason)
        requests.append(_request(job, stored[job.schedule_id].schedule))
    return requests


def _request(job: Job, schedule: Schedule) -> LaunchRequest:
    return LaunchRequest(
        run_key=job.run_key,
        job_id=job.id,
        target=schedule.target,
        partition_start=job.partition_start,
        partition_end=job.partition_end,
        tags={
            **schedule.tags,
            SCHEDULE_TAG: schedule.name,
            JOB_TAG: job.id,
            TRIGGER_TAG: schedule.trigger.kind,
        },
        run_config=schedule.run_config,
    )
