"""Lists the keys of a definition page by page: time windows newest first, others in order."""

import itertools
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg

from arctic_orchestration.dagster_internals import get_timezone
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.partitioning import windows
from arctic_orchestration.partitioning.key_space import KeySpace, join, window_of
from arctic_orchestration.partitioning.near_keys import moment_of, nearest

_INSTANT = timedelta(microseconds=1)
_DAY = timedelta(days=1)


class Calendar:
    """The keys of ``space`` between two of them; windows that begin after ``at`` are omitted.

    Args:
        space: static keys, time windows, or two dimensions of these.
        at: the present moment.
        first: the first key, or the first day or moment of windows; None: no limit.
        last: the last key, day or moment, which is included; None: no limit.

    Errors:
        InvalidInput: ``--from`` or ``--to`` is neither a key nor a date.
    """

    def __init__(self, space: KeySpace, at: datetime, first: str | None, last: str | None) -> None:
        self._space = space
        self._at = at
        time = [
            name
            for name, dimension in space.dimensions.items()
            if isinstance(dimension.definition, dg.TimeWindowPartitionsDefinition)
        ]
        #: the dimension that is listed newest first
        self._time = time[0] if time else None
        self._first = self._limit("--from", first, is_last=False)
        self._last = self._limit("--to", last, is_last=True)

    @staticmethod
    def lists(space: KeySpace) -> bool:
        """Returns whether all keys are known without Dagster's storage."""
        kinds = (dg.StaticPartitionsDefinition, dg.TimeWindowPartitionsDefinition)
        parts = space.dimensions.values() if space.dimensions else [space]
        return all(isinstance(part.definition, kinds) for part in parts)

    @property
    def _windows(self) -> dg.TimeWindowPartitionsDefinition | None:
        space = self._space if self._time is None else self._space.dimensions[self._time]
        found = space.definition
        return found if isinstance(found, dg.TimeWindowPartitionsDefinition) else None

    @property
    def is_limited(self) -> bool:
        """Whether it has limits."""
        return self._first is not None or self._last is not None

    def has(self, key: str) -> bool:
        """Returns whether a key belongs to the definition, between the limits."""
        if not self._space.has(key):
            return False
        of_time = self._windows
        if of_time is not None:
            window = window_of(of_time, self._time_part(key))
            assert window is not None
            return (self._first is None or window.end > self._first) and (
                self._last is None or window.start < self._last
            )
        order = self._space.order(key)
        return (self._first is None or order >= self._first) and (
            self._last is None or order <= self._last
        )

    def rank(self, key: str) -> Any:
        """Returns the sort key of the listing."""
        if self._windows is None:
            return self._space.order(key)
        window = window_of(self._windows, self._time_part(key))
        newest = -window.start.timestamp() if window else 0.0
        others = [
            dimension.order(part)
            for (name, dimension), part in zip(
                self._space.dimensions.items(), self._space.parts(key) or (), strict=False
            )
            if name != self._time
        ]
        return [newest, *others]

    def keys(self, after: str | None, limit: int) -> list[str]:
        """Returns the first ``limit`` keys after one; takes time for these alone."""
        begin = None if after is None else self.rank(after)
        found = (key for key in self._listed(after) if begin is None or self.rank(key) > begin)
        return list(itertools.islice(found, limit))

    def _listed(self, after: str | None) -> Iterator[str]:
        of_time = self._windows
        if of_time is None:
            yield from filter(self.has, self._space.places)
            return
        until = self._at if self._last is None else min(self._at, self._last - _INSTANT)
        if after is not None and (window := window_of(of_time, self._time_part(after))):
            until = min(until, window.start)
        listed = itertools.takewhile(
            lambda each: self._first is None or each[0].end > self._first,
            windows.begun(of_time, until),
        )
        for _, key in listed:
            yield from self._joined(key)

    def _joined(self, key: str) -> Iterable[str]:
        """Returns the keys of a window."""
        if self._time is None:
            return [key]
        parts = (
            [key] if name == self._time else dimension.existing(self._at)
            for name, dimension in self._space.dimensions.items()
        )
        return map(join, itertools.product(*parts))

    def _time_part(self, key: str) -> str:
        if self._time is None:
            return key
        place = list(self._space.dimensions).index(self._time)
        parts = self._space.parts(key)
        return parts[place] if parts is not None else key

    def _limit(self, field: str, text: str | None, *, is_last: bool) -> Any:
        """Returns a moment, for time windows; else an index in the order of keys."""
        if text is None:
            return None
        of_time = self._windows
        if of_time is None:
            if not self._space.has(text):
                found = nearest(self._space, text)
                end = f"; did you mean {found}?" if found is not None else ""
                raise InvalidInput(field, text, f"one of the partitions{end}")
            return self._space.order(text)
        window = window_of(of_time, self._time_part(text))
        if window is not None:
            return window.end if is_last else window.start
        at = moment_of(of_time, text)
        if at is None:
            expected = f"a date such as 2026-01-31, or a partition written as {of_time.fmt}"
            raise InvalidInput(field, text, expected)
        if is_last:
            whole_day = len(text) <= len("2026-01-31")
            at = _next_day(at, of_time.timezone) if whole_day else at + _INSTANT
        return at.astimezone(UTC)


def _next_day(midnight: datetime, zone: str) -> datetime:
    """Returns the next midnight, on the clock of a zone."""
    wall = midnight.replace(tzinfo=None) + _DAY
    return wall.replace(tzinfo=get_timezone(zone))
