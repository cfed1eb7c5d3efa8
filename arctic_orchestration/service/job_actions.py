"""``/job-actions``: launch or cancel all jobs that a filter matches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.schedules import job_control
from arctic_orchestration.schedules.jobs import COMMON, WAITING, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.service import documents, parameters
from arctic_orchestration.service.access import Caller, JobsWriter
from arctic_orchestration.service.bulk import BulkOptions, Progress
from arctic_orchestration.service.job_lists import JobFilter, page_of_jobs
from arctic_orchestration.service.service import Service, ServiceOfApp

router = APIRouter(tags=["jobs"])
Action = Literal["launch", "cancel"]
_STATES = {"launch": WAITING, "cancel": (*WAITING, JobState.LAUNCHING)}
_PAGE = 500
#: jobs that one transaction changes: it keeps the dispatcher of their location waiting
_AT_ONCE = 100


@router.post("/job-actions/{action}")
def act_on_jobs(
    service: ServiceOfApp,
    caller: JobsWriter,
    action: Action,
    filters: Annotated[JobFilter, Depends()],
    options: BulkOptions,
    location: parameters.SomeLocation = None,
) -> documents.BulkResult:
    """Launch or cancel all jobs that a filter matches; without those that have a run, or ended.

    The job that keeps events for all partitions of a target is left out: it is canceled by its id.

    By default this only counts. With dry_run=false it needs at_most: if more match by then, nothing
    is changed. Jobs are changed a hundred at a time; those that moved on meanwhile are listed as
    refused.
    """
    # Jobs that ended are many.
    states = [state for state in filters.states or _STATES[action] if state in _STATES[action]]
    filters = replace(filters, state=[state.value for state in states])
    with service.database.read() as tx:
        places = service.places(tx, caller, location)
        matched: list[tuple[Location, str]] = []
        # One by one: a page of several locations is read from each of them.
        for place in places if filters.states else ():
            cursor = None
            while True:
                page, cursor = page_of_jobs(tx, caller, [place], filters, cursor, _PAGE)
                # What is kept for partitions that begin later is no firing.
                matched += [(place, one.job.id) for _, one in page if one.job.scope != COMMON]
                if cursor is None:
                    break
    # Newest first, as they are listed.
    matched.sort(key=lambda one: one[1], reverse=True)
    progress = Progress(action, options, [id for _, id in matched])
    if options.dry_run:
        return progress.result()
    for place in places:
        mine = [id for where, id in matched if where.id == place.id]
        for begin in range(0, len(mine), _AT_ONCE):
            _change(service, caller, action, place, mine[begin : begin + _AT_ONCE], progress)
    return progress.result()


def _change(
    service: Service,
    caller: Caller,
    action: Action,
    place: Location,
    ids: Sequence[str],
    progress: Progress,
) -> None:
    """Changes jobs of a location in one transaction; those that refuse are left as they are."""
    act = job_control.launch_job if action == "launch" else job_control.cancel_job
    changed = 0
    with service.locked(place) as (tx, locked):
        for id in ids:
            try:
                act(tx, locked, id, utc_now(), actor=caller.actor)
                changed += 1
            except ArcticError as error:
                progress.refuse(place.name, id, error)
    progress.changed += changed
