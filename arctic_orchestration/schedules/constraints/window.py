"""Admits inside a window of wall times, in a time zone, on some days of the week.

Each selected day has one opening, which is computed from that local day and converted to UTC. It
begins at the first moment at which the zone's clock shows ``start``, and ends before the first
moment at which it shows ``end``, on the same day or the next:

* a wall time that clocks skip is the first moment after the gap. A window that lies in the gap
  altogether does not open on that day;
* a wall time that occurs twice is its first occurrence, for the end as for the start. So a window
  that ends at 01:30 and another that starts at 01:30 meet without a gap and without an overlap,
  and nothing starts after the clock has shown the end for the first time.

A window from 22:00 to 06:00 in New York therefore lasts 7, 8 or 9 hours.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import count
from typing import Annotated, Any, Literal, NamedTuple, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from arctic_orchestration.quantities import format_moment
from arctic_orchestration.schedules.constraints.base import Constraint, Facts, Verdict, admit
from arctic_orchestration.zones import ZoneName, first_shown

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_MIDNIGHT = "24:00"
#: Where calendars begin that are searched; the days after it include a leap day and all clock
#: changes. It is fixed, so the answer is always the same.
BEGIN = datetime(2027, 6, 1, tzinfo=UTC)
YEAR = timedelta(days=400)
WEEK = timedelta(weeks=1)
_DAY = timedelta(days=1)


def _time_text(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and 60 <= value <= 24 * 60:
        read = f"{value // 60}:{value % 60:02}"
        raise ValueError(f"a time of day in quotes: YAML reads {read} without them as {value}")
    if not isinstance(value, str) or not (_TIME.fullmatch(value) or value == _MIDNIGHT):
        raise ValueError('a time of day such as "22:00"')
    return value


def _not_midnight(value: str) -> str:
    if value == _MIDNIGHT:
        raise ValueError('a time from "00:00" to "23:59"')
    return value


_WallTime = Annotated[
    str,
    BeforeValidator(
        _time_text,
        json_schema_input_type=Annotated[str, Field(pattern=rf"^({_TIME.pattern}|{_MIDNIGHT})$")],
    ),
]


def _day_list(value: object) -> object:
    if value == "all":
        return DAYS
    return (value,) if isinstance(value, str) else value


class Opening(NamedTuple):
    """One opening of a window: two moments in UTC; the end is exclusive."""

    begin: datetime
    end: datetime


class Window(Constraint):
    """Open from ``start`` until just before ``end`` on the clock of ``timezone``, on ``days``.

    A window whose end is not after its start ends on the next day, and belongs to the day on which
    it started: 22:00 to 06:00 on ``fri`` includes Saturday at five. The end may be ``24:00``, which
    makes 00:00 to 24:00 the whole day. The module's docstring gives the rules for days on which
    clocks change.
    """

    kind: Literal["window"] = "window"
    start: Annotated[_WallTime, AfterValidator(_not_midnight)]
    end: _WallTime
    timezone: ZoneName = "UTC"
    days: Annotated[
        tuple[_Day, ...],
        BeforeValidator(_day_list, json_schema_input_type=_Day | Literal["all"] | tuple[_Day, ...]),
    ] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

    @field_validator("days")
    @classmethod
    def _in_the_order_of_the_week(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not value:
            raise ValueError("at least one day")
        return tuple(day for day in DAYS if day in value)

    @model_validator(mode="after")
    def _has_a_length(self) -> Self:
        if self.start == self.end:
            raise ValueError("an end that is not the start; a whole day is 00:00 to 24:00")
        return self

    def is_open(self, now: datetime) -> bool:
        """Returns whether ``now`` lies in an opening."""
        return self._opening_at(now) is not None

    def opens_at(self, now: datetime) -> datetime:
        """Returns the first moment after ``now`` at which an opening begins, in UTC."""
        return next(opening.begin for opening in self.openings(now) if opening.begin > now)

    def closes_at(self, now: datetime) -> datetime | None:
        """Returns when the opening that contains ``now`` ends, in UTC; None: it is closed."""
        opening = self._opening_at(now)
        return opening.end if opening else None

    def decide(self, facts: Facts, now: datetime) -> Verdict:
        what = f"the window {self.start}-{self.end} ({self.timezone})"
        closes_at = self.closes_at(now)
        if closes_at is not None:
            return admit(f"{what} is open until {format_moment(closes_at)}")
        opens_at = self.opens_at(now)
        return self.refuse(f"{what} opens at {format_moment(opens_at)}", recheck_at=opens_at)

    def _opening_at(self, now: datetime) -> Opening | None:
        for opening in self.openings(now):
            if opening.begin > now:
                return None
            if now < opening.end:
                return opening
        raise AssertionError("there is always another opening")

    def openings(self, now: datetime) -> Iterator[Opening]:
        """Yields the openings in order, from one that began before ``now`` or earlier."""
        zone = ZoneInfo(self.timezone)
        # Yesterday's may still be open; after clocks went back over midnight they show yesterday's
        # date again.
        day = now.astimezone(zone).date() - 2 * _DAY
        for number in count():
            opening = self._opening_of(day + number * _DAY, zone)
            if opening is not None:
                yield opening

    def _opening_of(self, day: date, zone: ZoneInfo) -> Opening | None:
        if DAYS[day.weekday()] not in self.days:
            return None
        midnight = self.end == _MIDNIGHT
        last_day = day + _DAY if midnight or self.end <= self.start else day
        begin = first_shown(_on(day, self.start), zone)
        end = first_shown(_on(last_day, "00:00" if midnight else self.end), zone)
        return Opening(begin, end) if begin < end else None


def _on(day: date, text: str) -> datetime:
    return datetime.combine(day, time.fromisoformat(text))


def ever_open(windows: Sequence[Window]) -> bool:
    """Returns whether all windows are ever open at the same time."""
    return first_open(windows, BEGIN) is not None


def first_open(windows: Sequence[Window], begin: datetime) -> datetime | None:
    """Returns the first moment from ``begin`` at which all windows are open, or None."""
    at = begin
    end = begin + (2 * WEEK if is_steady(window.timezone for window in windows) else YEAR)
    while at < end:
        closed = [window for window in windows if not window.is_open(at)]
        if not closed:
            return at
        at = max(window.opens_at(at) for window in closed)
    return None


def is_steady(zones: Iterable[str]) -> bool:
    """Returns whether the clocks never change: two periods then stand for all of them."""
    return all(_offsets(zone) == 1 for zone in zones)


@cache
def _offsets(zone: str) -> int:
    moments = [BEGIN + timedelta(days=10 * number) for number in range(40)]
    return len({moment.astimezone(ZoneInfo(zone)).utcoffset() for moment in moments})
