"""Hands out the launch requests of admitted jobs, again and again until their run is seen.

A request names job and attempt in its run key, so Dagster makes one run of it however often it
is handed out. Never is a second attempt begun while the fate of the first is open: its request
may still lie in a tick that the daemon will resume. What is asked for was written down when the
job was admitted, and does not change with the schedule.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.database.tables import is_launching, jobs
from arctic_orchestration.scheduling.jobs import Job, JobState
from arctic_orchestration.scheduling.location import Location
from arctic_orchestration.scheduling.notices import Notice
from arctic_orchestration.scheduling.queue import JobQueue
from arctic_orchestration.scheduling.runs import JOB_TAG
from arctic_orchestration.scheduling.schedule import Target
from arctic_orchestration.scheduling.targets import Targets, problem_of

#: Dagster stores all requests of a tick in one row, and creates their runs one by one.
REQUESTED_AT_ONCE = 100

#: how long a request that was handed out may lie in a tick that Dagster's daemon resumes
_OUT = timedelta(minutes=15)

SCHEDULE_TAG = "arctic/schedule"
TRIGGER_TAG = "arctic/trigger"


_LAUNCHING = (
    sa.select(jobs)
    .where(jobs.c.location_id == sa.bindparam("here"), is_launching)
    .order_by(jobs.c.requests, jobs.c.priority.desc(), jobs.c.created_at, jobs.c.id)
    .limit(REQUESTED_AT_ONCE)
)


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


def hand_out(queue: JobQueue, location: Location, targets: Targets) -> list[LaunchRequest]:
    """The requests of jobs that are launching, those that waited longest for one first.

    A job whose run Dagster would refuse by now fails with the reason, once no earlier request
    for it can be out: one request that is refused fails all of a tick.
    """
    requests = []
    for job in queue.load(query=_LAUNCHING, given={"here": location.id}):
        request = _request(job)
        problem = problem_of(targets, request.target, job.partition_start, job.partition_end)
        if problem is not None:
            # What was handed out before may still become a run: the job must not end before it.
            out = job.requested_at is not None and queue.now - job.requested_at < _OUT
            if problem.lasting and not out:
                fail_launch(queue, job, problem.text)
            else:
                queue.wait(job, problem.text)
            continue
        reason = job.reason
        if job.requests:
            reason = f"its run was requested {job.requests + 1} times and is not seen yet"
        queue.change(job, requested_at=queue.now, requests=job.requests + 1, reason=reason)
        requests.append(request)
    return requests


def fail_launch(queue: JobQueue, job: Job, problem: str) -> None:
    """Ends a job whose run Dagster refuses to make."""
    queue.move(
        job,
        JobState.FAILED,
        problem,
        notice=Notice.LAUNCH_FAILED,
        next_check_at=None,
        ended_at=queue.now,
    )


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
            TRIGGER_TAG: launch["trigger"],
        },
        run_config=launch["run_config"],
    )
