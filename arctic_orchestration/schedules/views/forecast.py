"""Predicts what time alone will do: the next ticks of schedules and checks of waiting jobs."""

import heapq
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import islice

import sqlalchemy as sa

from arctic_orchestration.documents import At, Document
from arctic_orchestration.quantities import in_calendar
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.triggers.cron import Cron
from arctic_orchestration.schedules.views.texts import one_line
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import is_waiting, jobs, timers


class Moment(StrEnum):
    """The kind of a future moment."""

    #: time is an event: the schedule's trigger takes it
    TICK = "tick"
    #: a waiting job's trigger or constraints are evaluated again
    LOOK = "look"
    #: a waiting job's timeout ends
    TIMEOUT = "timeout"


class Upcoming(Document):
    """One future moment."""

    at: At
    schedule: str
    moment: Moment
    #: the trigger of the tick, or the reason why the job waits
    what: str
    job: str | None = None


def upcoming(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    *,
    name: str | None = None,
    count: int = 5,
) -> list[Upcoming]:
    """Returns the next ``count`` moments of a location, or of one of its schedules, in order.

    A timer that restarts at each launch is followed to its next tick only: the one after that
    depends on the launch.
    """
    stored = {
        schedule.id: schedule
        for schedule in store.in_location(tx, location.id)
        if name is None or schedule.name == name
    }
    ticks = [stream for _, stream in _ticks(tx, location, stored)]
    streams = [*ticks, iter(_looks(tx, location, stored))]
    merged = heapq.merge(*streams, key=lambda moment: (moment.at, moment.schedule))
    return list(islice(merged, count))


def next_ticks(
    tx: sa.Connection, location: Location, of: Sequence[StoredSchedule], count: int
) -> dict[str, list[datetime]]:
    """Returns the next ``count`` ticks of some schedules of a location, by schedule name."""
    stored = {schedule.id: schedule for schedule in of}
    streams: dict[str, list[Iterator[Upcoming]]] = {schedule.name: [] for schedule in of}
    for name, stream in _ticks(tx, location, stored):
        streams[name].append(stream)
    return {
        name: list(islice(_once(heapq.merge(*some, key=lambda tick: tick.at)), count))
        for name, some in streams.items()
    }


def previous_ticks(
    stored: StoredSchedule, since: datetime, now: datetime, count: int
) -> list[datetime]:
    """Returns the last ``count`` ticks of a schedule's cron expressions since a moment.

    The newest is first. They are those of the clock, whether or not the schedule was enabled. A
    timer that restarts at each launch has none: they depend on the launches.
    """
    ticks: set[datetime] = set()
    for leaf in stored.leaves:
        if isinstance(leaf, Cron):
            catching_up = {"catch_up": "all", "catch_up_limit": count, "grace": None}
            every = leaf.model_copy(update=catching_up)
            ticks.update(every.ticks_due(since, now, stored.name).deliver)
    return sorted(ticks, reverse=True)[:count]


def _once(ticks: Iterator[Upcoming]) -> Iterator[datetime]:
    """Yields the moments of ordered ticks, each once."""
    last = None
    for tick in ticks:
        if tick.at != last:
            last = tick.at
            yield tick.at


def _ticks(
    tx: sa.Connection, location: Location, stored: dict[str, StoredSchedule]
) -> list[tuple[str, Iterator[Upcoming]]]:
    """Returns the name of the schedule and the ticks of each timer."""
    query = sa.select(timers.c.schedule_id, timers.c.leaf, timers.c.due_at)
    mine = dialect.among(tx, timers.c.schedule_id, list(stored))
    rows = tx.execute(query.where(timers.c.location_id == location.id, mine)).all()
    return [
        (
            stored[row.schedule_id].name,
            _ticks_of(stored[row.schedule_id], row.leaf, row.due_at),
        )
        for row in rows
        if row.schedule_id in stored and row.leaf < len(stored[row.schedule_id].leaves)
    ]


def _ticks_of(stored: StoredSchedule, number: int, due_at: datetime) -> Iterator[Upcoming]:
    leaf, at = stored.leaves[number], due_at
    what = one_line(leaf.to_form())
    while True:
        yield Upcoming(at=at, schedule=stored.name, moment=Moment.TICK, what=what)
        if leaf.restarts_at_launch:
            return
        # A hundred spans of a hundred years lead out of it.
        following = leaf.next_tick(at, stored.name) if in_calendar(at) else None
        if following is None or following <= at:
            return
        at = following


def _looks(
    tx: sa.Connection, location: Location, stored: dict[str, StoredSchedule]
) -> list[Upcoming]:
    query = sa.select(
        jobs.c.id, jobs.c.schedule_id, jobs.c.reason, jobs.c.next_check_at, jobs.c.deadline_at
    ).where(jobs.c.location_id == location.id, is_waiting)
    found = []
    for row in tx.execute(query):
        schedule = stored.get(row.schedule_id)
        if schedule is None:
            continue
        # A timeout does not run while its schedule is suspended.
        deadline = None if schedule.suspended else row.deadline_at
        for at, moment in ((row.next_check_at, Moment.LOOK), (deadline, Moment.TIMEOUT)):
            if at is not None and not (moment is Moment.LOOK and at == deadline):
                found.append(
                    Upcoming(
                        at=at,
                        schedule=schedule.name,
                        moment=moment,
                        what=row.reason,
                        job=row.id,
                    )
                )
    return sorted(found, key=lambda moment: (moment.at, moment.schedule))
