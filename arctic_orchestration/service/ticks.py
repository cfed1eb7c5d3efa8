"""``/ticks``: when the clocks of schedules tick, of one, of a target's, or of many at once."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from arctic_orchestration.clock import utc_now
from arctic_orchestration.quantities import iso
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.lookup import ScheduleRow, schedule_by_name
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.forecast import next_ticks, previous_ticks
from arctic_orchestration.service import documents, parameters
from arctic_orchestration.service.access import SchedulesReader
from arctic_orchestration.service.paging import Cursor
from arctic_orchestration.service.schedule_lists import Wanted, page_of_schedules
from arctic_orchestration.service.service import ServiceOfApp

router = APIRouter(tags=["schedules"])
#: A tick of a rare expression takes a search of years.
Count = Annotated[int, Query(ge=0, le=100, description="How many ticks of each schedule.")]


@router.get("/ticks")
def list_ticks(
    service: ServiceOfApp,
    caller: SchedulesReader,
    filters: Annotated[Wanted, Depends()],
    location: parameters.SomeLocation = None,
    following: Annotated[Count, Query(alias="next")] = 1,
    previous: Count = 0,
    limit: Annotated[int, Query(ge=1, le=200, description="At most so many schedules.")] = 50,
    cursor: Cursor = None,
) -> documents.TicksPage:
    """List the next and previous ticks of all schedules that a filter matches.

    Only cron expressions and timers tick; a suspended schedule has no next tick.
    """
    now, matched = utc_now(), []
    with service.database.read() as tx:
        places = service.places(tx, caller, location)
        listed, next_cursor = page_of_schedules(tx, caller, places, filters, cursor, limit)
        for place in places:
            rows = [one.row for where, one in listed if where is place]
            stored = ScheduleStore().by_ids(tx, [row.id for row in rows])
            coming = next_ticks(tx, place, list(stored.values()), following)
            for row in rows:
                if row.id in stored:
                    before = previous_ticks(stored[row.id], row.created_at, now, previous)
                    matched.append(_ticks(place.name, row, coming[row.name], before))
    return documents.TicksPage(schedules=matched, next_cursor=next_cursor)


@router.get("/schedules/{name}/ticks")
def show_ticks(
    service: ServiceOfApp,
    caller: SchedulesReader,
    name: parameters.Name,
    location: parameters.Location = None,
    following: Annotated[Count, Query(alias="next")] = 5,
    previous: Count = 5,
) -> documents.TicksOfSchedule:
    """Show the next and previous ticks of a schedule."""
    with service.reading(caller, location, schedules=[name]) as (tx, place, store):
        row = schedule_by_name(tx, place, name)
        stored = control.stored_by_name(tx, store, place, name)
        coming = next_ticks(tx, place, [stored], following)[name]
    before = previous_ticks(stored, row.created_at, utc_now(), previous)
    return _ticks(place.name, row, coming, before)


def _ticks(
    location: str, row: ScheduleRow, coming: list[datetime], before: list[datetime]
) -> documents.TicksOfSchedule:
    return documents.TicksOfSchedule(
        location=location,
        schedule=row.name,
        next=[iso(at) for at in coming],
        previous=[iso(at) for at in before],
    )
