"""The events of a span as lines of a timeline, to simulate schedules over what really happened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

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
    begin: datetime,
    end: datetime,
) -> RecordedSpan:
    """Returns the events of a span that some schedules listen to.

    Errors:
        InvalidInput: they are too many.
    """
    leaves = [leaf for schedule in schedules for leaf in schedule.trigger.leaves]
    wanted = {str(key) for leaf in leaves for key in leaf.keys(location.name)}
    listed = sa.select(schedule_keys.c.event_key).where(
        schedule_keys.c.location_id == location.id,
        dialect.among(tx, schedule_keys.c.event_key, sorted(wanted)),
    )
    recorded = set(tx.execute(listed.distinct()).scalars())
    query = (
        sa.select(events.c.taken_at, events.c.details)
        .where(events.c.location_id == location.id, events.c.kind != EventKind.TICK.value)
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
        if number == _MOST_READ or len(lines) > _MOST + 1:
            raise InvalidInput("hours", None, f"a span with at most {_MOST} events")
    # The clock of a database may have been set back.
    lines.sort(key=lambda line: datetime.fromisoformat(line["at"]))
    return RecordedSpan(begin=begin, end=end, lines=lines, not_recorded=sorted(wanted - recorded))
