"""``/jobs``: firings of schedules on their way to runs, and why they wait."""

import json
from collections.abc import Callable
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Response

from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules import job_control
from arctic_orchestration.schedules.jobs import Job
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.documents import explanation_document
from arctic_orchestration.schedules.views.explanation import Explanation, explain
from arctic_orchestration.schedules.views.listing import events_of_job
from arctic_orchestration.service import documents, parameters
from arctic_orchestration.service.access import Caller, JobsReader, JobsWriter
from arctic_orchestration.service.job_lists import JobFilter, page_of_jobs
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import HAS_ETAG
from arctic_orchestration.service.service import Service, ServiceOfApp

router = APIRouter(tags=["jobs"])


@router.get("/jobs")
def list_jobs(
    service: ServiceOfApp,
    caller: JobsReader,
    filters: Annotated[JobFilter, Depends()],
    location: parameters.SomeLocation = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> documents.JobPage:
    """List jobs, newest first."""
    with service.database.read() as tx:
        places = service.places(tx, caller, location)
        matched, following = page_of_jobs(tx, caller, places, filters, cursor, limit)
    listed = [_document(place, one.job, one.schedule) for place, one in matched]
    return documents.JobPage(jobs=listed, next_cursor=following)


@router.get("/jobs/{id}", responses={200: HAS_ETAG})
def show_job(
    service: ServiceOfApp, caller: JobsReader, id: parameters.JobId, response: Response
) -> documents.JobDetails:
    """Show a job: its events, its launch and its history."""
    with service.database.read() as tx:
        place, explained, job = _explained(service, tx, caller, id)
        events = events_of_job(tx, job)
    response.headers["ETag"] = etag(job)
    return documents.JobDetails.model_validate(
        {
            "job": _document(place, job, explained.schedule.name),
            "launch": json.loads(job.launch) if job.launch else None,
            "events": [event.to_json() for event in events],
            "history": explained.history,
        }
    )


@router.get("/jobs/{id}/history")
def job_history(
    service: ServiceOfApp, caller: JobsReader, id: parameters.JobId
) -> documents.JobHistory:
    """Show the moves of a job between its states."""
    with service.database.read() as tx:
        place, explained, job = _explained(service, tx, caller, id)
    history = list(explained.history)
    return documents.JobHistory(location=place.name, job=job.id, history=history)


@router.get("/jobs/{id}/explanation")
def explain_job(
    service: ServiceOfApp, caller: JobsReader, id: parameters.JobId
) -> documents.ExplanationOfLocation:
    """Explain why a job waits: its trigger as a tree, its constraints, its timeout."""
    with service.database.read() as tx:
        place, explained, _ = _explained(service, tx, caller, id)
    return explanation_of(place, explained)


@router.post("/jobs/{id}/launch", status_code=202, responses={202: HAS_ETAG})
def launch_job(
    service: ServiceOfApp,
    caller: JobsWriter,
    id: parameters.JobId,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> documents.JobOfLocation:
    """Launch a waiting job past its constraints, except limits on concurrency."""
    return _change(job_control.launch_job, service, caller, id, response, if_match)


@router.post("/jobs/{id}/cancel", responses={200: HAS_ETAG})
def cancel_job(
    service: ServiceOfApp,
    caller: JobsWriter,
    id: parameters.JobId,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> documents.JobOfLocation:
    """Cancel a job that has no run yet; if it has one, terminate the run in Dagster."""
    return _change(job_control.cancel_job, service, caller, id, response, if_match)


def etag(job: Job) -> str:
    """Returns the ETag of a job: of its state and its events."""
    arrived = sum(leaf.events for leaf in job.arrivals)
    return f'"{job.id}.{job.state}.{job.attempt}.{arrived}.{"forced" if job.forced else ""}"'


def _explained(
    service: Service, tx: sa.Connection, caller: Caller, id: str
) -> tuple[Location, Explanation, Job]:
    """Returns a job that the caller may see.

    Errors:
        NotFound: no such job.
        RequestRefused: 403; the caller may not.
    """
    place = service.place_of_job(tx, id)
    explained = explain(tx, ScheduleStore(), place, id, utc_now())
    caller.check(location=place.name, schedule=explained.schedule.name)
    assert explained.job is not None
    return place, explained, explained.job


def _change(
    act: Callable[..., Job],
    service: Service,
    caller: Caller,
    id: str,
    response: Response,
    if_match: str | None,
) -> documents.JobOfLocation:
    """Changes a job, unless it was changed since it was read."""
    with service.database.read() as tx:
        place, explained, _ = _explained(service, tx, caller, id)
    with service.locked(place) as (tx, place):
        if if_match is not None:
            parameters.check_etag(if_match, etag(_explained(service, tx, caller, id)[2]))
        job = act(tx, place, id, utc_now(), actor=caller.actor)
    response.headers["ETag"] = etag(job)
    return _document(place, job, explained.schedule.name)


def explanation_of(place: Location, explained: Explanation) -> documents.ExplanationOfLocation:
    """Returns why a job of a location waits."""
    found = explanation_document(explained)
    return documents.ExplanationOfLocation.from_record(found, location=place.name)


def _document(place: Location, job: Job, schedule: str) -> documents.JobOfLocation:
    return documents.JobOfLocation.from_record(job, location=place.name, schedule=schedule)
