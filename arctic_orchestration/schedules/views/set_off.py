"""Events that schedules took, and everything that each of them set off."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import NotFound
from arctic_orchestration.event_log.event import Event
from arctic_orchestration.quantities import iso
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.views.event_effects import Effect, effects_of
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import events, jobs, locations

#: jobs whose runs are looked at, and events, of one answer: a chain that goes round ends, too
_MOST = 100
#: how long after a job's end the events of its run may be read
_LATE = timedelta(hours=1)
#: when an event was taken, the id of its location, its number
After = tuple[datetime, int, int]


@dataclass(kw_only=True)
class SetOffJob:
    """A job that took an event, with the events that its run made."""

    effect: Effect
    location: str
    events: list["TakenEvent"] = field(default_factory=list)
    #: whether its run may have made more events: the answer is full
    more: bool = False

    def to_json(self, shows: Callable[["TakenEvent"], bool] | None) -> dict[str, Any]:
        """Returns the JSON form, as :meth:`TakenEvent.to_json`."""
        if shows is None:
            return self.effect.to_json()
        made = [event.to_json(shows=shows) for event in self.events if shows(event)]
        return {**self.effect.to_json(), "events": made, "more": self.more}


@dataclass(kw_only=True)
class TakenEvent:
    """An event that schedules of a location took, with the jobs that have it."""

    location_id: int
    location: str
    number: int
    taken_at: datetime
    event: Event
    jobs: list[SetOffJob] = field(default_factory=list)

    @property
    def place(self) -> After:
        """Its place among the newest events."""
        return self.taken_at, self.location_id, self.number

    def to_json(self, *, shows: Callable[["TakenEvent"], bool] | None = None) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change.

        Args:
            shows: which events that it set off are shown, with theirs; none: jobs without events.
        """
        return {
            "number": self.number,
            "taken_at": iso(self.taken_at),
            "taken_in": self.location,
            **self.event.to_json(),
            "at": iso(self.event.at),
            "jobs": [job.to_json(shows) for job in self.jobs],
        }


_EVENTS = sa.select(events, locations.c.name.label("location")).join(
    locations, locations.c.id == events.c.location_id
)
_NEWEST = (events.c.taken_at.desc(), events.c.location_id.desc(), events.c.number.desc())


def newest_events(
    tx: sa.Connection,
    where: Sequence[sa.ColumnElement[bool]],
    *,
    after: After | None = None,
    limit: int = 50,
) -> list[TakenEvent]:
    """Returns events that meet conditions, newest first, with the jobs that have them.

    Costs two statements.
    """
    col = events.c
    query = _EVENTS.where(*where)
    if after is not None:
        same = (col.taken_at == after[0]) & sa.tuple_(col.location_id, col.number).__lt__(after[1:])
        # The first condition alone is what an index can answer.
        query = query.where(col.taken_at <= after[0], (col.taken_at < after[0]) | same)
    return _with_jobs(tx, query.order_by(*_NEWEST).limit(limit))


def set_off(tx: sa.Connection, place: Location, number: int) -> TakenEvent:
    """Returns an event with its jobs, the events of their runs, the jobs of these, and so on.

    Costs three statements for each step from runs to the jobs that their events are part of. Ends
    with so many runs and events; jobs say whether there may be more.

    Errors:
        NotFound: the location has no such event.
    """
    this = (events.c.location_id == place.id) & (events.c.number == number)
    found = _with_jobs(tx, _EVENTS.where(this))
    if not found:
        raise NotFound(f"location {place.name} has no event {number}")
    seen, left, room = {(place.id, number)}, _with_runs(found), _MOST
    while left and room and len(seen) < _MOST:
        looked_at, left = left[:room], left[room:]
        room -= len(looked_at)
        makers = {job.effect.run_id: job for job in reversed(looked_at)}
        made = _events_of_runs(tx, looked_at)
        for event in made:
            key, job = (event.location_id, event.number), makers.get(event.event.run_id)
            if job is None or key in seen:
                continue
            if len(seen) == _MOST:
                job.more = True
                continue
            seen.add(key)
            job.events.append(event)
            left += _with_runs([event])
        if len(made) > _MOST:
            left = looked_at + left
            break
    for job in left:
        job.more = True
    return found[0]


def _with_runs(taken: Sequence[TakenEvent]) -> list[SetOffJob]:
    return [job for event in taken for job in event.jobs if job.effect.run_id is not None]


def _events_of_runs(tx: sa.Connection, made_by: Sequence[SetOffJob]) -> list[TakenEvent]:
    """Returns the events that the runs of jobs made, by the span of their lives; the first ones.

    No index has the runs of events: the span is read once for all of them.
    """
    lives = sa.select(jobs.c.created_at, jobs.c.ended_at).where(
        dialect.among(tx, jobs.c.id, [job.effect.job for job in made_by])
    )
    begins, ends = zip(*tx.execute(lives), strict=True)
    # Not anywhere in the text: a run's tags name the run that set it off.
    run_id = dialect.text_in_json(tx, events.c.details, "run_id")
    query = _EVENTS.where(
        events.c.taken_at >= min(begins),
        dialect.among(tx, run_id, sorted({str(job.effect.run_id) for job in made_by})),
    )
    if None not in ends:
        query = query.where(events.c.taken_at <= max(ends) + _LATE)
    return _with_jobs(tx, query.order_by(events.c.number).limit(_MOST + 1))


def _with_jobs(tx: sa.Connection, query: sa.Select[Any]) -> list[TakenEvent]:
    found = {
        (row.location_id, row.number): TakenEvent(
            location_id=row.location_id,
            location=row.location,
            number=row.number,
            taken_at=row.taken_at,
            event=Event.parse(row.details),
        )
        for row in tx.execute(query)
    }
    for key, effects in effects_of(tx, list(found)).items():
        event = found[key]
        event.jobs += [SetOffJob(effect=effect, location=event.location) for effect in effects]
    return list(found.values())
