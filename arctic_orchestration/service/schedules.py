"""``/schedules``: the schedules of all locations, and changes of one of them."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Query, Request, Response

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import InvalidInput, TransitionRefused
from arctic_orchestration.quantities import iso
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.dagster.catch_up import Change
from arctic_orchestration.schedules.json_schema import schedules_schema
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import (
    ScheduleRow,
    schedule_by_name,
    schedule_if_there,
)
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_history import history_of
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.documents import schedule_document
from arctic_orchestration.schedules.views.explanation import explain_schedule
from arctic_orchestration.schedules.views.listing import ListedSchedule, one_schedule
from arctic_orchestration.service import documents, parameters
from arctic_orchestration.service.access import SchedulesReader, SchedulesWriter
from arctic_orchestration.service.bodies import JsonObject, body_schema
from arctic_orchestration.service.jobs import explanation_of
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import HAS_ETAG
from arctic_orchestration.service.schedule_lists import Wanted, page_of_schedules
from arctic_orchestration.service.service import ServiceOfApp

router = APIRouter(tags=["schedules"])
_EXAMPLE = {
    "name": "hourly_rollup",
    "target": {"job": "rollup"},
    "trigger": {"partitions": {"asset": "raw/flights", "count": 3}},
    "constraints": [{"concurrency": {"limit": 1}}],
    "enabled": True,
}
_SCHEDULE = {"$ref": "#/components/schemas/Schedule"}


def input_schemas() -> dict[str, Any]:
    """Returns the schemas of what people write, for OpenAPI: those of files of schedules."""
    file = schedules_schema()
    del file["$schema"]
    defined: dict[str, Any] = _moved({**file.pop("$defs"), "ScheduleFile": file})
    defined["Schedule"]["examples"] = [_EXAMPLE]
    return defined


def _moved(value: Any) -> Any:
    """Returns a schema with references to OpenAPI's components."""
    if isinstance(value, Mapping):
        return {
            key: item.replace("#/$defs/", "#/components/schemas/")
            if key == "$ref" and isinstance(item, str)
            else _moved(item)
            for key, item in value.items()
        }
    return [_moved(item) for item in value] if isinstance(value, list) else value


@router.get("/schedules")
def list_schedules(
    service: ServiceOfApp,
    caller: SchedulesReader,
    filters: Annotated[Wanted, Depends()],
    location: parameters.SomeLocation = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> documents.SchedulePageDocument:
    """List schedules by location and name."""
    with service.database.read() as tx:
        places = service.places(tx, caller, location)
        matched, following = page_of_schedules(tx, caller, places, filters, cursor, limit)
    listed = [_of_location(place, one) for place, one in matched]
    return documents.SchedulePageDocument(schedules=listed, next_cursor=following)


@router.post(
    "/schedules",
    status_code=201,
    openapi_extra=body_schema(_SCHEDULE),
    responses={
        201: {"headers": {**HAS_ETAG["headers"], "Location": {"schema": {"type": "string"}}}}
    },
)
def create_schedule(
    request: Request,
    service: ServiceOfApp,
    caller: SchedulesWriter,
    body: JsonObject,
    response: Response,
    location: parameters.Location = None,
) -> documents.ScheduleOfLocation:
    """Create a schedule; it is suspended unless it says enabled."""
    schedule = Schedule.parse(body, field="Schedule")
    with service.changing(caller, location, schedules=[schedule.name]) as change:
        if schedule_if_there(change.tx, change.place, schedule.name) is not None:
            raise TransitionRefused(
                f"location {change.place.name} has a schedule {schedule.name} already: replace it "
                "with PUT"
            )
        _apply(change, schedule, caller)
        made = document(change.tx, change.state.store, change.place, schedule.name, response)
    query = f"?location={quote(location, safe='')}" if location is not None else ""
    root = request.scope.get("root_path", "")
    response.headers["Location"] = f"{root}/api/v1/schedules/{schedule.name}{query}"
    return made


@router.get("/schedules/{name}", responses={200: HAS_ETAG})
def show_schedule(
    service: ServiceOfApp,
    caller: SchedulesReader,
    name: parameters.Name,
    response: Response,
    location: parameters.Location = None,
) -> documents.ScheduleOfLocation:
    """Show a schedule: its definition and its state."""
    with service.reading(caller, location, schedules=[name]) as (tx, place, store):
        return document(tx, store, place, name, response)


@router.put("/schedules/{name}", openapi_extra=body_schema(_SCHEDULE), responses={200: HAS_ETAG})
def replace_schedule(
    service: ServiceOfApp,
    caller: SchedulesWriter,
    name: parameters.Name,
    body: JsonObject,
    response: Response,
    if_match: parameters.IfMatch = None,
    location: parameters.Location = None,
) -> documents.ScheduleOfLocation:
    """Replace the definition of a schedule.

    Its status is kept, and its waiting jobs are discarded. An equal definition changes nothing.
    """
    with service.changing(caller, location, schedules=[name]) as change:
        row = schedule_by_name(change.tx, change.place, name)
        parameters.check_etag(if_match, etag(row), required=True)
        _apply(change, _named(body, name), caller)
        return document(change.tx, change.state.store, change.place, name, response)


@router.patch(
    "/schedules/{name}",
    openapi_extra=body_schema(
        {"type": "object"}, "application/merge-patch+json", "application/json"
    ),
    responses={200: HAS_ETAG},
)
def update_schedule(
    service: ServiceOfApp,
    caller: SchedulesWriter,
    name: parameters.Name,
    body: JsonObject,
    response: Response,
    if_match: parameters.IfMatch = None,
    location: parameters.Location = None,
) -> documents.ScheduleOfLocation:
    """Update some fields of a schedule by a JSON merge patch (RFC 7396).

    A field that is null gets its default. Otherwise as for replacing.
    """
    with service.changing(caller, location, schedules=[name]) as change:
        tx, place, store = change.tx, change.place, change.state.store
        row = schedule_by_name(tx, place, name)
        parameters.check_etag(if_match, etag(row))
        form = control.stored_by_name(tx, store, place, name).schedule.to_form()
        _apply(change, _named(_merged(form, body), name), caller)
        return document(tx, store, place, name, response)


@router.delete("/schedules/{name}", status_code=204)
def delete_schedule(
    service: ServiceOfApp,
    caller: SchedulesWriter,
    name: parameters.Name,
    if_match: parameters.IfMatch = None,
    location: parameters.Location = None,
) -> None:
    """Delete a schedule and its jobs; active runs continue."""
    with service.changing(caller, location, schedules=[name]) as change:
        row = schedule_by_name(change.tx, change.place, name)
        parameters.check_etag(if_match, etag(row))
        store, now = change.state.store, change.now
        control.delete(change.tx, store, change.place, name, now, actor=caller.actor)


@router.get("/schedules/{name}/history")
def schedule_history(
    service: ServiceOfApp,
    caller: SchedulesReader,
    name: parameters.Name,
    location: parameters.Location = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="The newest lines.")] = 50,
) -> documents.History:
    """Show the changes of a schedule, also of a deleted one."""
    with service.reading(caller, location, schedules=[name]) as (tx, place, _):
        lines = history_of(tx, place, name, limit=limit)
        if not lines:
            schedule_by_name(tx, place, name)
    shown = [{**line, "at": iso(line["at"])} for line in lines]
    return documents.History.model_validate({"location": place.name, "history": shown})


@router.get("/schedules/{name}/explanation")
def explanation(
    service: ServiceOfApp,
    caller: SchedulesReader,
    name: parameters.Name,
    location: parameters.Location = None,
    partition: parameters.Text = None,
) -> documents.ExplanationOfLocation:
    """Explain why a schedule, or a partition of its target, has not run yet."""
    with service.reading(caller, location, schedules=[name]) as (tx, place, store):
        explained = explain_schedule(tx, store, place, name, utc_now(), partition=partition)
    return explanation_of(place, explained)


def etag(row: ScheduleRow) -> str:
    """Returns the ETag of a schedule: of its definition and its status."""
    return f'"{row.id}.{row.version}.{row.status}"'


def _apply(change: Change, schedule: Schedule, caller: SchedulesWriter) -> None:
    tx, store, place = change.tx, change.state.store, change.place
    done = control.apply(tx, store, place, [schedule], change.now, actor=caller.actor)
    if not done.is_empty:
        change.counts_from_now([schedule.name])


def document(
    tx: sa.Connection, store: ScheduleStore, place: Location, name: str, response: Response
) -> documents.ScheduleOfLocation:
    row = schedule_by_name(tx, place, name)
    response.headers["ETag"] = etag(row)
    return _of_location(place, one_schedule(tx, store, place, row))


def _of_location(place: Location, listed: ListedSchedule) -> documents.ScheduleOfLocation:
    found = schedule_document(listed)
    return documents.ScheduleOfLocation.from_record(found, location=place.name)


def _named(form: Mapping[str, Any], name: str) -> Schedule:
    """Parses the form of a schedule that keeps its name, which may be left out."""
    schedule = Schedule.parse({**form, "name": form.get("name", name)}, field="Schedule")
    if schedule.name != name:
        raise InvalidInput("name", schedule.name, f"{name}: a schedule keeps its name")
    return schedule


def _merged(form: Any, patch: Any) -> Any:
    """Returns a document with a JSON merge patch applied to it."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(form) if isinstance(form, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
