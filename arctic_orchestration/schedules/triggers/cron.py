"""Fires at the ticks of a cron expression, in a time zone, with a rule for missed ticks.

croniter finds the wall times; this file maps them to moments, because libraries differ when clocks
change (croniter 7 runs ``30 1 * * *`` twice in autumn, Dagster once at the second 01:30, cron once
at the first). An expression whose hour is ``*`` follows real time: each moment whose wall time
matches is a tick. With an hour given:

* a wall time that does not exist is the first moment after the gap;
* a wall time that occurs twice follows ``dst``; its default ``dagster`` is what Dagster's own
  schedules do, the second occurrence, but for clocks that are set back at midnight.

Dagster reads the minute of an hourly expression in UTC, which is wrong in zones with half-hour
offsets; this trigger reads it in the zone.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal, Self
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter
from pydantic import Field, field_validator, model_validator

from arctic_orchestration.quantities import Duration
from arctic_orchestration.schedules.triggers.base import (
    Arrivals,
    Firing,
    Leaf,
    PartitionClock,
    Ticks,
)
from arctic_orchestration.zones import ZoneName, end_of_gap, wall_to_utc

#: No clock change in the time zone database since 1970 is longer, apart from date changes.
_NEAR = timedelta(hours=3)
#: With ``catch_up: none`` even a live dispatcher needs some time to reach its tick.
_PROMPT = timedelta(minutes=1)
_ANY_WALL_TIME = datetime.fromisoformat("2000-01-01")
#: croniter draws these again at each evaluation; FRI, MAR and APR are names.
_RANDOM = re.compile(r"(?:^|[\s,])r(?:$|[\s,(/])")
_HASHED = re.compile(r"(?:^|\s)h(?:$|[\s(/])", re.IGNORECASE)
#: croniter would spread these by the hash of the name, down to the second.
NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Cron(Leaf):
    """Fires at each tick of ``expression`` in ``timezone``.

    ``H`` in a field spreads schedules by a hash of their name; as the day, over 1 to 28, which each
    month has. ``catch_up`` decides which ticks missed during downtime are made up: only the
    ``latest``, ``all`` (the newest ``catch_up_limit``) or ``none``; never one older than ``grace``.
    """

    kind: Literal["cron"] = "cron"
    expression: str
    timezone: ZoneName = "UTC"
    catch_up: Literal["latest", "all", "none"] = "latest"
    catch_up_limit: int = Field(default=24, ge=1, strict=True)
    grace: Duration | None = None
    dst: Literal["dagster", "first", "second", "both", "skip"] = "dagster"
    #: the partitions of the target for a tick: the last one whose window has ended, the current
    #: one, all that were never materialized, or their keys
    partition: Literal["last_ended", "current", "all_missing"] | tuple[str, ...] | None = None
    #: in partitions, counted from the selected one; -1 is the one before
    offset: int = Field(default=0, strict=True, ge=-100_000, le=100_000)

    @property
    def label(self) -> str:
        return f"{self.kind} {self.expression}"

    @model_validator(mode="after")
    def _offset_of_what(self) -> Self:
        if self.offset and self.partition not in ("last_ended", "current"):
            raise ValueError("no offset, or partition: last_ended or current beside it")
        if self.partition == ():
            raise ValueError("at least one partition, or no list")
        return self

    @property
    def clock(self) -> PartitionClock | None:
        if self.partition is None:
            return None
        return PartitionClock(partition=self.partition, offset=self.offset)

    @field_validator("expression")
    @classmethod
    def _has_ticks(cls, value: str) -> str:
        if value not in NAMED and (len(value.split()) != 5 or "@" in value):
            raise ValueError("a cron expression of five fields, such as 0 4 * * *")
        if _RANDOM.search(value.lower()):
            raise ValueError("H in place of R: random ticks differ at each look, and are missed")
        try:
            _walls(value, _ANY_WALL_TIME, "").get_next(datetime)
        except (CroniterError, ValueError, KeyError) as error:
            raise ValueError(f"a cron expression with ticks, such as 0 4 * * * ({error})") from None
        return value

    def next_tick(self, after: datetime, name: str) -> datetime | None:
        return next(self._ticks(after, name))

    def ticks_due(self, due_at: datetime, now: datetime, name: str) -> Ticks:
        wanted = self.catch_up_limit if self.catch_up == "all" else 1
        oldest = due_at
        grace = self.grace
        if grace is None and self.catch_up == "none":
            grace = _PROMPT
        if grace is not None:
            oldest = max(due_at, now - grace)
        # Usually one tick is due and the next follows: one iteration finds both.
        ticks = self._ticks(due_at - timedelta(microseconds=1), name)
        first, second = next(ticks), next(ticks)
        if first > now:
            # The timer was set by other rules of the zone: what was due is no tick any more.
            return Ticks(deliver=(), next_at=first)
        if second > now:
            return Ticks(deliver=(first,) if oldest <= first else (), next_at=second)
        return Ticks(
            deliver=tuple(self._newest(oldest, now, wanted, name)),
            next_at=self.next_tick(now, name),
        )

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        ticks, what = arrivals[0].events, f"cron {self.expression} ({self.timezone})"
        reason = f"{ticks} ticks of {what}" if ticks else f"no tick of {what} yet"
        return self._counted(arrivals[0], 1, reason)

    def _newest(self, oldest: datetime, now: datetime, wanted: int, name: str) -> list[datetime]:
        """Returns the newest ``wanted`` ticks in ``[oldest, now]``; searches no further back."""
        span = timedelta(hours=1)
        while True:
            begin = max(oldest, now - span)
            found: list[datetime] = []
            for tick in self._ticks(begin - timedelta(microseconds=1), name):
                if tick > now:
                    break
                found.append(tick)
            if len(found) >= wanted or begin == oldest:
                return found[-wanted:]
            span *= 4

    def _ticks(self, after: datetime, name: str) -> Iterator[datetime]:
        """Yields all ticks after a moment, in order."""
        zone = ZoneInfo(self.timezone)
        wall_after = after.astimezone(zone).replace(tzinfo=None)
        near_change = _offset(after - _NEAR, zone) != _offset(after + _NEAR, zone)
        begin = wall_after - _NEAR if near_change else wall_after
        last, waiting = after, list[datetime]()
        walls = _walls(self.expression, begin - timedelta(seconds=1), name)
        for wall in walls.all_next(datetime):
            # While an hour repeats, moments of one wall time may follow those of the next.
            final_before = wall_to_utc(wall, zone, fold=0)
            while waiting and waiting[0] < final_before:
                last = waiting.pop(0)
                yield last
            for moment in self._moments(wall, zone):
                if moment > last and moment not in waiting:
                    waiting.append(moment)
            waiting.sort()

    def _moments(self, wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
        """Returns the moments at which ``wall`` is a tick: none, one, or two."""
        first, second = wall_to_utc(wall, zone, fold=0), wall_to_utc(wall, zone, fold=1)
        if first == second:
            return (first,)
        exists = first.astimezone(zone).replace(tzinfo=None) == wall
        if self._follows_real_time:
            return (first, second) if exists else ()
        if self.dst == "skip":
            return ()
        if not exists:
            return (end_of_gap(second, first, zone),)
        if self.dst == "both":
            return (first, second)
        return (first,) if self.dst == "first" else (second,)

    @property
    def is_hashed(self) -> bool:
        """Whether its ticks depend on the name of the schedule."""
        return _HASHED.search(self.expression) is not None

    @property
    def _follows_real_time(self) -> bool:
        fields = NAMED.get(self.expression, self.expression)
        hours: Sequence[object] = croniter.expand(fields, hash_id=b"H")[0][1]
        return list(hours) == ["*"]


def _walls(expression: str, begin: datetime, name: str) -> "croniter[datetime]":
    """Returns the wall times of an expression after ``begin``."""
    minute, hour, day, *others = NAMED.get(expression, expression).split()
    # Of the days 29 to 31 some months have none: a hash of these would leave runs out.
    day = "H(1-28)" if day in ("H", "h") else day
    fields = " ".join((minute, hour, day, *others))
    return croniter(fields, begin, ret_type=datetime, hash_id=name.encode() or b"H")


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()
