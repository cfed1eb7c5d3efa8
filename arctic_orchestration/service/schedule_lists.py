"""The filters of lists of schedules, and their pages over several locations."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import sqlalchemy as sa
from fastapi import Query

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import ScheduleStatus
from arctic_orchestration.schedules.views.listing import ListedSchedule, list_schedules
from arctic_orchestration.schedules.views.schedule_filter import ScheduleFilter
from arctic_orchestration.service import paging
from arctic_orchestration.service.access import Caller
from arctic_orchestration.service.parameters import Text, moment


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The filters of a list of schedules, in the query of a request."""

    name: Annotated[str | None, Query(max_length=200, description="A glob on the name.")] = None
    status: ScheduleStatus | None = None
    target: Annotated[Text, Query(description="The job, or one of the assets.")] = None
    trigger: Annotated[Text, Query(description="A kind of trigger anywhere in its tree.")] = None
    listens_to: Annotated[
        Text, Query(description="An asset or job whose arrivals or runs it takes.")
    ] = None
    asset: Annotated[Text, Query(description="What an arrival at this asset sets off.")] = None
    partition: Annotated[Text, Query(description="The partition that arrives.")] = None
    run_of_job: Annotated[Text, Query(description="What a run of this job sets off.")] = None
    run_of_asset: Annotated[Text, Query(description="What a run of this asset sets off.")] = None
    run_status: Annotated[
        list[RunStatus] | None, Query(description="The run's status; repeatable.")
    ] = None
    run_location: Annotated[Text, Query(description="The run's code location.")] = None
    suspended_from: Annotated[Text, Query(description="Suspended at or after it.")] = None
    suspended_until: Annotated[Text, Query(description="Suspended before it.")] = None

    def __post_init__(self) -> None:
        self._moment("suspended_from")
        self._moment("suspended_until")
        if self.partition is not None and self.asset is None:
            raise InvalidInput("partition", self.partition, "asset beside it")
        has_run = self.run_of_job is not None or self.run_of_asset is not None
        for field, value in (("run_status", self.run_status), ("run_location", self.run_location)):
            if value is not None and not has_run:
                raise InvalidInput(field, value, "run_of_job or run_of_asset beside it")

    def filter_in(self, location: Location, caller: Caller) -> ScheduleFilter:
        """Returns the filter for one location: what of it the caller may see."""
        return ScheduleFilter(
            name=self.name,
            status=self.status,
            target=self.target,
            trigger=self.trigger,
            listens_to=self.listens_to,
            events=self._events(location.name),
            suspended_from=self._moment("suspended_from"),
            suspended_until=self._moment("suspended_until"),
            is_visible=lambda name: caller.admits(location=location.name, schedule=name),
        )

    def _moment(self, field: str) -> datetime | None:
        text = getattr(self, field)
        return moment(text, field=field) if text else None

    def _events(self, location: str) -> list[Event] | None:
        """Returns the events of which schedules take one: an arrival, or runs in any status."""
        at = datetime.fromisoformat("2000-01-01T00:00:00Z")
        made: list[Event] = []
        if self.asset is not None:
            kind = EventKind.PARTITION
            made.append(Event(kind=kind, subject=self.asset, at=at, partition=self.partition))
        assets = (self.run_of_asset,) if self.run_of_asset is not None else ()
        if assets or self.run_of_job is not None:
            made += [
                Event(
                    kind=EventKind.RUN,
                    subject=self.run_of_job or "",
                    at=at,
                    status=status,
                    location=self.run_location or location,
                    assets=assets,
                )
                for status in self.run_status or RunStatus
            ]
        return made or None


def page_of_schedules(
    tx: sa.Connection,
    caller: Caller,
    places: Sequence[Location],
    filters: Wanted,
    cursor: str | None,
    limit: int,
) -> tuple[list[tuple[Location, ListedSchedule]], str | None]:
    """Returns a page of the schedules that a caller may see, and the cursor of the next page."""
    first, after = paging.values(cursor, str, str) or ("", "")
    store = ScheduleStore()
    matched: list[tuple[Location, ListedSchedule]] = []
    for place in places:
        if place.name < first:
            continue
        begin = after if place.name == first else ""
        room = limit - len(matched)
        if room == 0:
            return matched, paging.cursor(place.name, begin)
        page = list_schedules(
            tx, store, place, filters.filter_in(place, caller), after=begin, limit=room
        )
        matched += [(place, listed) for listed in page.listed]
        if page.next_after is not None:
            return matched, paging.cursor(place.name, page.next_after)
    return matched, None
