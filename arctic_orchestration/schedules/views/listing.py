"""Lists of a location's schedules, jobs and events, for people and programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.event import Event
from arctic_orchestration.quantities import iso
from arctic_orchestration.schedules.jobs import ACTIVE, ENDED, WAITING, Job, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import ScheduleRow
from arctic_orchestration.schedules.schedule import Schedule, form_of
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.numbers import IS_FIRING
from arctic_orchestration.schedules.views.schedule_filter import ScheduleFilter
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import (
    events,
    is_active,
    is_waiting,
    job_events,
    jobs,
    schedules,
    timers,
)

# Names for groups of states.
STATE_GROUPS = {"waiting": WAITING, "active": ACTIVE, "ended": ENDED}
#: forms of schedules in memory at once
_READ_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedSchedule:
    """A schedule and its state."""

    row: ScheduleRow
    #: None: this version of the package cannot read it
    schedule: Schedule | None
    waiting: int
    active: int
    #: its next tick of time
    next_tick_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulePage:
    """One page of a location's schedules."""

    listed: Sequence[ListedSchedule]
    #: whether more follow after the last name
    more: bool

    @property
    def next_after(self) -> str | None:
        """The name after which the next page begins, or None on the last page."""
        return self.listed[-1].row.name if self.more else None


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedJob:
    """A job with its schedule's name."""

    job: Job
    schedule: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedEvent:
    """An event that a schedule took, with its number within the location."""

    number: int
    taken_at: datetime
    event: Event

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "number": self.number,
            "taken_at": iso(self.taken_at),
            **self.event.to_json(),
            "at": iso(self.event.at),
        }


def list_schedules(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    wanted: ScheduleFilter | None = None,
    *,
    after: str = "",
    limit: int = 50,
) -> SchedulePage:
    """Returns the first schedules of a location after a name, sorted by name.

    Needs memory for ``limit`` schedules. Reads the forms of schedules that a filter of targets or
    triggers may admit.
    """
    wanted = wanted or ScheduleFilter()
    rows, more = _page(tx, location, wanted, after, limit)
    return SchedulePage(listed=_stand(tx, store, location, rows), more=more)


def one_schedule(
    tx: sa.Connection, store: ScheduleStore, location: Location, row: ScheduleRow
) -> ListedSchedule:
    """Returns a schedule and its state."""
    (listed,) = _stand(tx, store, location, [row])
    return listed


def _page(
    tx: sa.Connection, location: Location, wanted: ScheduleFilter, after: str, limit: int
) -> tuple[list[ScheduleRow], bool]:
    """Returns the rows of a page, and whether another page follows."""
    columns = [schedules.c[name] for name in ScheduleRow.__slots__]
    if wanted.reads_rows:
        columns.append(schedules.c.spec)
    query = sa.select(*columns).where(*wanted.conditions(location)).order_by(schedules.c.name)
    found: list[ScheduleRow] = []
    while True:
        # The page size, or a batch of schedules whose form must be read.
        batch = max(limit + 1, _READ_AT_ONCE) if wanted.reads_rows else limit + 1
        rows = tx.execute(query.where(schedules.c.name > after).limit(batch)).mappings().all()
        for row in rows:
            form = form_of(row["spec"]) if wanted.reads_rows else {}
            if wanted.reads_rows and not wanted.admits(row["name"], form, location):
                continue
            if len(found) == limit:
                return found, True
            found.append(ScheduleRow.from_row(row))
        if len(rows) < batch:
            return found, False
        after = rows[-1]["name"]


def _stand(
    tx: sa.Connection, store: ScheduleStore, location: Location, rows: Sequence[ScheduleRow]
) -> list[ListedSchedule]:
    ids = [row.id for row in rows]
    mine = dialect.among(tx, jobs.c.schedule_id, ids)
    active = (jobs.c.location_id == location.id) & is_active
    due = sa.select(timers.c.schedule_id, sa.func.min(timers.c.due_at, type_=timers.c.due_at.type))
    due = due.where(dialect.among(tx, timers.c.schedule_id, ids)).group_by(timers.c.schedule_id)
    waits, runs = _counts(tx, mine & is_waiting & IS_FIRING), _counts(tx, mine & active)
    ticks = {row[0]: row[1] for row in tx.execute(due)}
    stored = store.by_ids(tx, ids)
    return [
        ListedSchedule(
            row=row,
            schedule=stored[row.id].schedule if row.id in stored else None,
            waiting=waits.get(row.id, 0),
            active=runs.get(row.id, 0),
            next_tick_at=ticks.get(row.id),
        )
        for row in rows
    ]


def _counts(tx: sa.Connection, which: sa.ColumnElement[bool]) -> dict[str, int]:
    query = sa.select(jobs.c.schedule_id, sa.func.count()).where(which)
    return {row[0]: row[1] for row in tx.execute(query.group_by(jobs.c.schedule_id))}


def list_jobs(
    tx: sa.Connection,
    location: Location,
    *,
    schedule_id: str | None = None,
    states: Sequence[JobState] = (),
    partition: str | None = None,
    where: Sequence[sa.ColumnElement[bool]] = (),
    limit: int = 20,
) -> list[ListedJob]:
    """Returns the newest jobs of a location, newest first.

    Optionally only of a schedule, in some states, or for a target partition; this includes ranges
    that begin or end with it. ``where`` has further conditions on jobs and their schedules.
    """
    query = (
        sa.select(jobs, schedules.c.name.label("schedule_name"))
        .join(schedules, schedules.c.id == jobs.c.schedule_id)
        .where(jobs.c.location_id == location.id)
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        .limit(limit)
    )
    if schedule_id is not None:
        query = query.where(jobs.c.schedule_id == schedule_id)
    if partition is not None:
        of_partition = (jobs.c.scope, jobs.c.partition_start, jobs.c.partition_end)
        query = query.where(sa.or_(*(column == partition for column in of_partition)))
    if states:
        query = query.where(jobs.c.state.in_([state.value for state in states]))
    query = query.where(*where)
    found = []
    for row in tx.execute(query).mappings():
        values = dict(row)
        name = values.pop("schedule_name")
        found.append(ListedJob(job=Job.from_row(values), schedule=name))
    return found


def parse_states(names: Sequence[str]) -> list[JobState]:
    """Returns the job states for their names, or for ``waiting``, ``active``, ``ended``.

    Errors:
        InvalidInput: no such state.
    """
    known = {state.value: (state,) for state in JobState} | STATE_GROUPS
    for name in names:
        if name not in known:
            raise InvalidInput("--state", name, f"one of {', '.join(known)}")
    return list(dict.fromkeys(state for name in names for state in known[name]))


def list_events(
    tx: sa.Connection, location: Location, *, after: int | None = None, limit: int = 20
) -> list[ListedEvent]:
    """Returns the newest events that schedules took, or the first after a number; oldest first."""
    query = sa.select(events.c.number, events.c.taken_at, events.c.details).where(
        events.c.location_id == location.id
    )
    if after is None:
        newest = tx.execute(query.order_by(events.c.number.desc()).limit(limit)).all()
        return [listed_event(row) for row in reversed(newest)]
    following = query.where(events.c.number > after).order_by(events.c.number).limit(limit)
    return [listed_event(row) for row in tx.execute(following)]


def events_of_job(tx: sa.Connection, job: Job) -> list[ListedEvent]:
    """Returns the first events of a job, oldest first."""
    numbers = sa.select(job_events.c.number).where(job_events.c.job_id == job.id).distinct()
    query = (
        sa.select(events.c.number, events.c.taken_at, events.c.details)
        .where(events.c.location_id == job.location_id, events.c.number.in_(numbers))
        .order_by(events.c.number)
        .limit(100)
    )
    return [listed_event(row) for row in tx.execute(query)]


def listed_event(row: Any) -> ListedEvent:
    """Returns the event in a row with number, taken_at and details."""
    return ListedEvent(number=row.number, taken_at=row.taken_at, event=Event.parse(row.details))
