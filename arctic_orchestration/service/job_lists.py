"""The filters of lists of jobs, and their pages over several locations."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import sqlalchemy as sa
from fastapi import Query

from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.views import listing
from arctic_orchestration.schedules.views.listing import ListedJob, parse_states
from arctic_orchestration.service import paging
from arctic_orchestration.service.access import Caller
from arctic_orchestration.service.parameters import Text, moment
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import jobs, schedules


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFilter:
    """The filters of a list of jobs, in the query of a request."""

    schedule: Annotated[Text, Query(description="Only of the schedule with this name.")] = None
    state: Annotated[
        list[str] | None,
        Query(description="Only in this state, or: waiting, active, ended; repeatable."),
    ] = None
    partition: Annotated[Text, Query(description="Only for this target partition.")] = None
    text: Annotated[
        Text, Query(description="In the schedule's name, the reason, the run's or the job's id.")
    ] = None
    held_by: Annotated[Text, Query(description="Only held by this resource.")] = None

    def __post_init__(self) -> None:
        parse_states(self.state or [])

    @property
    def states(self) -> Sequence[JobState]:
        """The states; none: all."""
        return parse_states(self.state or [])

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Returns the conditions that are not those of :func:`~.listing.list_jobs`."""
        matched: list[sa.ColumnElement[bool]] = []
        if self.schedule is not None:
            matched.append(schedules.c.name == self.schedule)
        if self.held_by is not None:
            matched.append(jobs.c.held_by == self.held_by)
        if self.text is not None:
            columns = (schedules.c.name, jobs.c.reason, jobs.c.run_id, jobs.c.id)
            matched.append(
                sa.or_(*(column.icontains(self.text, autoescape=True) for column in columns))
            )
        return matched


def page_of_jobs(
    tx: sa.Connection,
    caller: Caller,
    places: Sequence[Location],
    filters: JobFilter,
    cursor: str | None,
    limit: int,
) -> tuple[Sequence[tuple[Location, ListedJob]], str | None]:
    """Returns a page of the jobs that a caller may see, and the cursor of the next page."""
    begin = paging.values(cursor, str, str)
    after = (moment(begin[0], field="cursor"), str(begin[1])) if begin is not None else None
    read = _read(tx, caller, places, filters, after, limit + 1)
    return paging.page(
        read, limit, lambda last: (last[1].job.created_at.isoformat(), last[1].job.id)
    )


def _read(
    tx: sa.Connection,
    caller: Caller,
    places: Sequence[Location],
    filters: JobFilter,
    after: tuple[datetime, str] | None,
    limit: int,
) -> list[tuple[Location, ListedJob]]:
    """Returns the newest jobs that a caller may see of some locations, older than ``after``."""
    where = filters.conditions()
    if after is not None:
        at, id = after
        older = (jobs.c.created_at == at) & (jobs.c.id < id)
        where.append((jobs.c.created_at < at) | older)
    matched = [
        (place, listed)
        for place in places
        for listed in listing.list_jobs(
            tx,
            place,
            states=filters.states,
            partition=filters.partition,
            where=[*where, *_admitted(tx, caller, place)],
            limit=limit,
        )
    ]
    matched.sort(key=lambda one: (one[1].job.created_at, one[1].job.id), reverse=True)
    return matched[:limit]


def _admitted(tx: sa.Connection, caller: Caller, place: Location) -> list[sa.ColumnElement[bool]]:
    """Returns the conditions that a caller may see a job of a location.

    By the schedules themselves: a glob is no pattern of SQL, and most jobs may be of others.
    """
    if caller.admits(location=place.name):
        return []
    col = schedules.c
    rows = tx.execute(sa.select(col.id, col.name).where(col.location_id == place.id))
    ids = [id for id, name in rows if caller.admits(location=place.name, schedule=name)]
    return [dialect.among(tx, jobs.c.schedule_id, ids)]
