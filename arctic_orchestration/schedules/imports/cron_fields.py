"""Fields of cron expressions as sets of numbers, and clock changes that their ticks meet."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

from arctic_orchestration.zones import end_of_gap, wall_to_utc

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
#: Always the same years, so that the answer is. They have all clock changes that are known.
_YEARS = range(2026, 2038)


def as_text(numbers: Iterable[int], lowest: int, highest: int) -> str:
    """Returns a field that matches these numbers alone: ``*``, or numbers and ranges."""
    rest = sorted(set(numbers))
    if rest == list(range(lowest, highest + 1)):
        return "*"
    parts = []
    while rest:
        size = 1
        while size < len(rest) and rest[size] == rest[0] + size:
            size += 1
        begin, end = rest[0], rest[size - 1]
        parts.append(f"{begin}-{end}" if size > 2 else ",".join(map(str, rest[:size])))
        rest = rest[size:]
    return ",".join(parts)


class Meetings(NamedTuple):
    """How many ticks clock changes of a zone touch, at most."""

    #: wall times that one gap skips, and its end
    in_a_gap: int
    #: whether a wall time is the end of a gap, besides
    at_the_end: bool
    #: whether a wall time occurs twice
    in_a_fold: bool


class _Change(NamedTuple):
    begin: datetime
    end: datetime
    is_gap: bool


def every_hour(expression: str) -> bool:
    """Returns whether the hour is ``*``: then ticks follow real time."""
    return list(croniter.expand(expression)[0][1]) == ["*"]


def meetings(expression: str, zone: str) -> Meetings:
    """Returns which ticks of an expression meet a clock change of the zone in twelve years."""
    gaps, ends, fold = 0, False, False
    for change in _changes(zone):
        walls = croniter(expression, change.begin - _SECOND, ret_type=datetime)
        inside = 0
        # An expression without any tick is refused where its trigger is made.
        with suppress(CroniterError):
            while (wall := walls.get_next(datetime)) < change.end:
                inside += 1
            ends |= change.is_gap and inside > 0 and wall == change.end
        if change.is_gap:
            gaps = max(gaps, inside)
        else:
            fold |= inside > 0
    return Meetings(gaps, ends, fold)


def moved_by_counting(expression: str, name: str) -> bool:
    """Returns whether clock changes move a tick that is counted in real time from the last one."""
    zone = ZoneInfo(name)
    for change in _changes(name):
        ends = (change.begin, change.end)
        old, new = ends if change.is_gap else reversed(ends)
        with suppress(CroniterError):
            last = croniter(expression, old, ret_type=datetime).get_prev(datetime)
            length = croniter(expression, last, ret_type=datetime).get_next(datetime) - last
            counted = (wall_to_utc(last, zone, fold=0) + length).astimezone(zone)
            ticks = croniter(expression, new - _SECOND, ret_type=datetime)
            if counted.replace(tzinfo=None) != ticks.get_next(datetime):
                return True
    return False


@cache
def _changes(name: str) -> tuple[_Change, ...]:
    """Returns the wall times that are skipped or that occur twice."""
    zone, changes = ZoneInfo(name), []
    day, end = datetime(_YEARS[0], 1, 1, tzinfo=UTC), datetime(_YEARS[-1] + 1, 1, 1, tzinfo=UTC)
    while day < end:
        if _offset(day, zone) != _offset(day + _DAY, zone):
            moment = end_of_gap(day, day + _DAY, zone)
            old, new = _offset(day, zone), _offset(moment, zone)
            first, last = sorted((moment + old, moment + new))
            changes.append(
                _Change(first.replace(tzinfo=None), last.replace(tzinfo=None), new > old)
            )
        day += _DAY
    return tuple(changes)


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)
