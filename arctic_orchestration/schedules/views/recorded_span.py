"""The events of a span as lines of a timeline, to simulate schedules over what really happened."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.quantities import iso
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.views.replay import line_of
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import events, schedule_keys

#: the maximum number of events that are read, and of those that schedules listen to
_MOST_READ = 100_000
_MOST = 10_000
#: the maximum number of assets by which runs are searched for
_MOST_NAMES = 100
#: what stands before the job or the asset in the key of a run, whose location may have any name
_OF_RUN = re.compile(r".*:(job|asset):", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedSpan:
    """What happened in a span, as far as some schedules listen to it.

    Attributes:
        lines: of a timeline, at the moments at which a dispatcher read the events.
        not_recorded: what no schedule of the location listens to now, as event keys: its events are
            not stored.
    """

    begin: datetime
    end: datetime
    lines: Sequence[Mapping[str, Any]]
    not_recorded: Sequence[str]

    @property
    def events(self) -> int:
        """How many events there are."""
        return len(self.lines) - 1


def recorded_span(
    tx: sa.Connection,
    location: Location,
    schedules: Sequence[Schedule],
    hours: float,
    end: datetime,
) -> RecordedSpan:
    """Returns the events of the hours before a moment that some schedules listen to.

    Errors:
        InvalidInput: they are too many.
    """
    begin = end - timedelta(hours=hours)
    leaves = [leaf for schedule in schedules for leaf in schedule.trigger.leaves]
    wanted = {str(key) for leaf in leaves for key in leaf.keys(location.name)}
    listed = sa.select(schedule_keys.c.event_key).where(
        schedule_keys.c.location_id == location.id,
        dialect.among(tx, schedule_keys.c.event_key, sorted(wanted)),
    )
    recorded = set(tx.execute(listed.distinct()).scalars())
    query = (
        sa.select(events.c.taken_at, events.c.details)
        .where(events.c.location_id == location.id, _may_have(tx, wanted))
        .where(events.c.taken_at >= begin, events.c.taken_at < end)
        .order_by(events.c.number)
        .limit(_MOST_READ + 1)
    )
    lines: list[dict[str, Any]] = [{"at": iso(begin), "do": "advance"}]
    for number, row in enumerate(tx.execute(query)):
        event = Event.parse(row.details)
        line = line_of(event, location)
        if line is not None and wanted.intersection(map(str, event.keys)):
            lines.append({"at": iso(row.taken_at), **line})
        if len(lines) > _MOST + 1:
            raise _too_many(hours, f"{_MOST} events that the schedule listens to")
        if number == _MOST_READ:
            raise _too_many(hours, f"{_MOST_READ} events of what the schedule listens to")
    # The clock of a database may have been set back.
    lines.sort(key=lambda line: datetime.fromisoformat(line["at"]))
    return RecordedSpan(begin=begin, end=end, lines=lines, not_recorded=sorted(wanted - recorded))


def _may_have(tx: sa.Connection, keys: Collection[str]) -> sa.ColumnElement[bool]:
    """Returns that an event has one of some keys, or nearly so: its own keys have the last word."""
    col = events.c
    subjects: dict[str, set[str]] = {}
    #: of assets of runs, whose subjects are their jobs
    ends: set[str] = set()
    for key in keys:
        kind, _, name = key.partition(":")
        if kind == EventKind.RUN.value:
            name = _OF_RUN.sub("", name.rpartition(":")[0])
            if ":asset:" in key:
                # In its form in JSON, which a name with such a mark ends with.
                ends.add(to_json(name).decode().removeprefix('"'))
                continue
        subjects.setdefault(kind, set()).add(name)
    found = [
        (col.kind == kind) & dialect.among(tx, col.subject, sorted(names))
        for kind, names in sorted(subjects.items())
    ]
    if ends:
        of_assets = [col.details.contains(end, autoescape=True) for end in sorted(ends)]
        # SQLite limits the conditions of a statement.
        some = sa.or_(*of_assets) if len(of_assets) <= _MOST_NAMES else sa.true()
        found.append((col.kind == EventKind.RUN.value) & some)
    return sa.or_(sa.false(), *found)


def _too_many(hours: float, most: str) -> InvalidInput:
    return InvalidInput("hours", hours, f"a span with at most {most}")
