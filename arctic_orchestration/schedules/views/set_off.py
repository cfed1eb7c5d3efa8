"""Events that schedules took, and everything that each of them set off."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import NotFound
from arctic_orchestration.event_log.event import Event
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.views.event_effects import Effect, effects_of
from arctic_orchestration.state.tables import events, jobs, locations

#: jobs and events of one answer, so that a chain that goes round ends
_MOST = 100
#: how long after a job's end the events of its run may be read
_LATE = timedelta(hours=1)


@dataclass(kw_only=True)
class SetOffJob:
    """A job that took an event, with the events that its run made."""

    effect: Effect
    location: str
    events: list["TakenEvent"] = field(default_factory=list)


@dataclass(kw_only=True)
class TakenEvent:
    """An event that schedules of a location took, with the jobs that have it."""

    location_id: int
    location: str
    number: int
    taken_at: datetime
    event: Event
    jobs: list[SetOffJob] = field(default_factory=list)


_EVENTS = sa.select(events, locations.c.name.label("location")).join(
    locations, locations.c.id == events.c.location_id
)
_NEWEST = (events.c.taken_at.desc(), events.c.location_id.desc(), events.c.number.desc())
#: the last event of a page
After = tuple[datetime, int, int]


def newest_events(
    tx: sa.Connection,
    places: Sequence[Location],
    *,
    subject: str | None = None,
    partition: str | None = None,
    after: After | None = None,
    limit: int = 50,
) -> list[TakenEvent]:
    """Returns events of some locations, newest first, with the jobs that have them."""
    col = events.c
    query = _EVENTS.where(col.location_id.in_([place.id for place in places]))
    if subject is not None:
        query = query.where(col.subject == subject)
    if partition is not None:
        query = query.where(col.partition == partition)
    if after is not None:
        same = (col.taken_at == after[0]) & sa.tuple_(col.location_id, col.number).__lt__(after[1:])
        query = query.where((col.taken_at < after[0]) | same)
    return _with_jobs(tx, query.order_by(*_NEWEST).limit(limit))


def set_off(tx: sa.Connection, place: Location, number: int) -> TakenEvent:
    """Returns an event with its jobs, the events of their runs, the jobs of these, and so on.

    Errors:
        NotFound: the location has no such event.
    """
    this = (events.c.location_id == place.id) & (events.c.number == number)
    found = _with_jobs(tx, _EVENTS.where(this))
    if not found:
        raise NotFound(f"location {place.name} has no event {number}")
    seen, left = {(place.id, number)}, found[0].jobs[:]
    while left and len(seen) < _MOST:
        job = left.pop(0)
        for event in _events_of_run(tx, job):
            if (event.location_id, event.number) not in seen:
                seen.add((event.location_id, event.number))
                job.events.append(event)
                left += event.jobs
    return found[0]


def _events_of_run(tx: sa.Connection, job: SetOffJob) -> list[TakenEvent]:
    """Returns the events that a job's run made, by the span of its life."""
    run_id = job.effect.run_id
    if run_id is None:
        return []
    span = sa.select(jobs.c.created_at, jobs.c.ended_at).where(jobs.c.id == job.effect.job)
    begin, end = tx.execute(span).one()
    query = _EVENTS.where(
        events.c.taken_at >= begin, events.c.details.contains(run_id, autoescape=True)
    )
    if end is not None:
        query = query.where(events.c.taken_at <= end + _LATE)
    found = _with_jobs(tx, query.order_by(events.c.number).limit(_MOST))
    # A run's tags name the run that set it off.
    return [event for event in found if event.event.run_id == run_id]


def _with_jobs(tx: sa.Connection, query: sa.Select[Any]) -> list[TakenEvent]:
    found = {
        (row.location_id, row.number): TakenEvent(
            location_id=row.location_id,
            location=row.location,
            number=row.number,
            taken_at=row.taken_at,
            event=Event.from_json(json.loads(row.details)),
        )
        for row in tx.execute(query)
    }
    for key, effects in effects_of(tx, list(found)).items():
        event = found[key]
        event.jobs += [SetOffJob(effect=effect, location=event.location) for effect in effects]
    return list(found.values())
