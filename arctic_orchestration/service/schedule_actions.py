"""Actions on schedules: enable, suspend and launch one; enable or suspend all of a filter."""

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Response

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import ArcticError, TransitionRefused
from arctic_orchestration.schedules import control, job_control
from arctic_orchestration.schedules.lookup import schedule_by_name
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import ScheduleStatus
from arctic_orchestration.service import documents, parameters
from arctic_orchestration.service.access import Caller, SchedulesWriter
from arctic_orchestration.service.bulk import BulkOptions, Progress
from arctic_orchestration.service.parameters import HAS_ETAG
from arctic_orchestration.service.schedule_lists import Wanted, page_of_schedules
from arctic_orchestration.service.schedules import document, etag
from arctic_orchestration.service.service import Service, ServiceOfApp

router = APIRouter(tags=["schedules"])
Action = Literal["enable", "suspend"]
_PAGE = 500
#: schedules that one transaction changes: it keeps all other writers waiting
_AT_ONCE = 100


@router.post("/schedules/{name}/enable", responses={200: HAS_ETAG})
def enable_schedule(
    service: ServiceOfApp,
    caller: SchedulesWriter,
    name: parameters.Name,
    response: Response,
    if_match: parameters.IfMatch = None,
    location: parameters.Location = None,
) -> documents.ScheduleOfLocation:
    """Enable a schedule: it takes events from now on; 409 if it is enabled."""
    return _act(service, caller, "enable", name, response, if_match, location)


@router.post("/schedules/{name}/suspend", responses={200: HAS_ETAG})
def suspend_schedule(
    service: ServiceOfApp,
    caller: SchedulesWriter,
    name: parameters.Name,
    response: Response,
    if_match: parameters.IfMatch = None,
    location: parameters.Location = None,
) -> documents.ScheduleOfLocation:
    """Suspend a schedule by its suspend_mode; 409 if it is suspended."""
    return _act(service, caller, "suspend", name, response, if_match, location)


@router.post("/schedules/{name}/launch", status_code=202)
def launch_schedule(
    service: ServiceOfApp,
    caller: SchedulesWriter,
    name: parameters.Name,
    if_match: parameters.IfMatch = None,
    location: parameters.Location = None,
) -> documents.JobOfLocation:
    """Launch a schedule now, past its trigger and constraints, except limits on concurrency.

    Its first waiting job goes with the events it has; without one, a job without events is made.
    """
    now = utc_now()
    with service.database.read() as tx:
        place = service.place(tx, caller, location, schedules=[name])
    with service.locked(place) as (tx, place):
        parameters.check_etag(if_match, etag(schedule_by_name(tx, place, name)))
        store = ScheduleStore()
        job = job_control.launch_schedule(tx, store, place, name, now, actor=caller.actor)
    return documents.JobOfLocation.from_record(job, schedule=name, location=place.name)


@router.post("/schedule-actions/{action}")
def act_on_schedules(
    service: ServiceOfApp,
    caller: SchedulesWriter,
    action: Action,
    filters: Annotated[Wanted, Depends()],
    options: BulkOptions,
    location: parameters.SomeLocation = None,
) -> documents.BulkResult:
    """Enable or suspend all schedules that a filter matches.

    By default this only counts. With dry_run=false it needs at_most: if more match by then, nothing
    is changed. Schedules that are already so are not counted. Schedules are changed a hundred at a
    time.
    """
    status = ScheduleStatus.SUSPENDED if action == "enable" else ScheduleStatus.ENABLED
    matches_none = filters.status not in (None, status)
    filters = replace(filters, status=status)
    with service.database.read() as tx:
        places = service.places(tx, caller, location)
        matched, cursor = [], None
        while not matches_none:
            page, cursor = page_of_schedules(tx, caller, places, filters, cursor, _PAGE)
            matched += [(place, one.row.name) for place, one in page]
            if cursor is None:
                break
    progress = Progress(action, options, [name for _, name in matched])
    if options.dry_run:
        return progress.result()
    for place in places:
        names = [name for where, name in matched if where is place]
        for begin in range(0, len(names), _AT_ONCE):
            chunk = names[begin : begin + _AT_ONCE]
            _change_all(service, caller, action, place.name, chunk, progress)
    return progress.result()


def _change_all(
    service: Service,
    caller: Caller,
    action: Action,
    location: str,
    names: list[str],
    progress: Progress,
) -> None:
    """Changes schedules of a location in one transaction; those that refuse stay as they are."""
    stops = action == "suspend"
    with service.changing(caller, location, ticks=stops, schedules=names[:1]) as change:
        changed = []
        for name in names:
            try:
                act = control.enable if action == "enable" else control.suspend
                tx, store, place = change.tx, change.state.store, change.place
                if act(tx, store, place, name, change.now, actor=caller.actor):
                    changed.append(name)
            except ArcticError as error:
                progress.refuse(location, name, error)
        if action == "enable":
            change.enabled(changed)
    progress.changed += len(changed)


def _act(
    service: Service,
    caller: Caller,
    action: Action,
    name: str,
    response: Response,
    if_match: str | None,
    location: str | None,
) -> documents.ScheduleOfLocation:
    with service.changing(caller, location, ticks=action == "suspend", schedules=[name]) as change:
        tx, place, store = change.tx, change.place, change.state.store
        parameters.check_etag(if_match, etag(schedule_by_name(tx, place, name)))
        act = control.enable if action == "enable" else control.suspend
        if not act(tx, store, place, name, change.now, actor=caller.actor):
            raise TransitionRefused(f"schedule {name} is {action.rstrip('e')}ed already")
        if action == "enable":
            change.enabled([name])
        return document(tx, store, place, name, response)
