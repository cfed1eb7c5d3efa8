"""``/schedule-files``: what a file of schedules would change, and its application."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from arctic_orchestration.errors import RequestRefused
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.definition_warnings import cautions
from arctic_orchestration.schedules.schedule_diff import Difference
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.service import documents, parameters
from arctic_orchestration.service.access import Caller, SchedulesWriter
from arctic_orchestration.service.bodies import Body, body_schema, parse
from arctic_orchestration.service.service import ServiceOfApp

router = APIRouter(tags=["schedules"])
_FILE = {"$ref": "#/components/schemas/ScheduleFile"}


@router.post(
    "/schedule-files",
    openapi_extra=body_schema(_FILE, "application/json", "application/yaml"),
    response_model_exclude_unset=True,
)
def apply_file(
    service: ServiceOfApp,
    caller: SchedulesWriter,
    text: Annotated[str, Depends(Body(yaml=True))],
    dry_run: Annotated[bool, Query(description="Show the difference, change nothing.")] = True,
    prune: Annotated[
        bool, Query(description="Delete manually created schedules that are not in the file.")
    ] = False,
    location: parameters.Location = None,
) -> documents.AppliedFile:
    """Show what a file of schedules changes; with dry_run=false apply it, all or none.

    The body is the file, as JSON or YAML.
    """
    # The syntax first: what is no document at all is another error than invalid schedules.
    parse(text, name="body")
    wanted = read_schedules(text, name="body")
    names = [schedule.name for schedule in wanted]
    warnings = cautions(wanted)
    if dry_run:
        with service.reading(caller, location, schedules=names) as (tx, place, store):
            difference = control.compare(tx, store, place, wanted, prune=prune)
            warnings += control.remarks(tx, store, place, wanted)
            _check_deleted(caller, place.name, difference)
    else:
        with service.changing(caller, location, schedules=names) as change:
            tx, place, store = change.tx, change.place, change.state.store
            warnings += control.remarks(tx, store, place, wanted)
            difference = control.apply(
                tx, store, place, wanted, change.now, prune=prune, actor=caller.actor
            )
            _check_deleted(caller, place.name, difference)
            made = [schedule.name for schedule in difference.created]
            change.counts_from_now([*made, *(one.name for one in difference.updated)])
    return documents.AppliedFile.model_validate(
        {
            "location": place.name,
            "applied": not dry_run and not difference.is_empty,
            "difference": difference.to_json(),
            "warnings": warnings,
        }
    )


def _check_deleted(caller: Caller, location: str, difference: Difference) -> None:
    if not all(caller.admits(location=location, schedule=name) for name in difference.deleted):
        # The caller may not see their names.
        text = f"{caller.actor.name} has no scope schedules:write for all that prune deletes"
        raise RequestRefused(403, text)
