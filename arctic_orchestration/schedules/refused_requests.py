"""Requests at which Dagster's daemon fails, for whatever reason.

Known refusals are not handed out: a target that is gone, a wrong configuration. The daemon may
still fail at a request, for example if the code was deployed between the sensor's answer and the
daemon's submission. Then the daemon fails the whole tick and submits no request after that one. The
tick's record shows which one it was: the first without a run.

Such a request is handed out again, as the last of its tick, so that it stops no other. After
:data:`FAILURES` ticks its job fails with the daemon's error.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from arctic_orchestration.schedules.hand_out_leases import Ticks
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.launch_requests import LaunchRequest, fail_launch
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import is_launching, jobs

#: requests of a job after which it fails if Dagster failed at the last one
FAILURES = 3


def fail_refused(queue: JobQueue, location: Location, ticks: Ticks) -> Mapping[str, str]:
    """Fails jobs at which Dagster failed too often; returns the others by id, with Dagster's error.

    Reads the records of ticks whose lease has expired.

    Errors:
        DatabaseUnavailable: Dagster's storage did not answer.
    """
    here = (jobs.c.location_id == location.id) & is_launching
    expired = jobs.c.request_expires_at <= dialect.database_time(queue.tx)
    with_lease = here & jobs.c.requested_tick.is_not(None) & expired
    query = sa.select(jobs.c.requested_tick).where(with_lease).distinct()
    refused = {}
    for tick, failure in ticks.failed(list(queue.tx.execute(query).scalars())).items():
        by_key = {job.run_key: job for job in queue.load(here, jobs.c.requested_tick == tick)}
        job = next((by_key[key] for key in failure.unmade if key in by_key), None)
        if job is None:
            continue
        if job.requests >= FAILURES:
            reason = f"Dagster failed at {job.requests} requests for its run, the last time with: "
            fail_launch(queue, job, reason + failure.error)
        else:
            refused[job.id] = failure.error
    return refused


def put_last(
    queue: JobQueue, requests: Sequence[LaunchRequest], refused: Mapping[str, str]
) -> list[LaunchRequest]:
    """Returns the requests with refused ones moved to the end; their jobs record the error."""
    again = {request.job_id for request in requests} & refused.keys()
    for id, job in queue.by_ids(again).items():
        queue.wait(job, f"{job.reason}; Dagster failed at the last request: {refused[id]}")
    return sorted(requests, key=lambda request: request.job_id in refused)
