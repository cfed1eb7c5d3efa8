"""The windows of a time-window partitions definition, in its own zone and by its own cron.

Windows count whether or not Dagster has them as partitions yet, except excluded ones; a
definition's start and end apply. Moments are aware, and results are in UTC. For a definition
without time windows the results are None or empty.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TypeGuard

import dagster as dg

from arctic_orchestration.dagster_internals import (
    DynamicPartitionsStore,
    earlier_windows,
    later_windows,
)
from arctic_orchestration.partitioning.key_space import (
    Definition,
    DynamicKeys,
    KeySpace,
    bounds,
    join,
    key_at,
    store_of,
    utc,
    window_of,
)

Windows = dg.TimeWindowPartitionsDefinition

_INSTANT = timedelta(microseconds=1)


def last_ended(definition: Definition, at: datetime, offset: int = 0) -> str | None:
    """Returns the key of the last window that ended by ``at``, or ``offset`` windows from there."""
    if not _of_time(definition):
        return None
    whole = bounds(definition)
    if whole is None:
        return None
    last = next(_backwards(definition, _earlier(at, whole.end)))
    return _key(definition, _moved(definition, last, offset))


def current(definition: Definition, at: datetime, offset: int = 0) -> str | None:
    """Returns the key of the window that contains ``at``, or ``offset`` windows from there.

    None if ``at`` lies in an excluded window; its neighbours have the offsets -1 and 1.
    """
    if not _of_time(definition):
        return None
    following = next(_forwards(definition, next(_backwards(definition, at)).end))
    if following.start.timestamp() > at.timestamp():
        # Excluded: the windows on both sides have the offsets -1 and 1.
        if offset == 0:
            return None
        offset -= offset > 0
    return _key(definition, _moved(definition, following, offset))


def exists_from(definition: Definition, key: str) -> datetime | None:
    """Returns the first moment at which Dagster has the key as a partition; None: it is no key.

    With several dimensions, the moment at which it has the windows of all of them.
    """
    space = KeySpace(definition, store_of(None))
    if space.dimensions:
        parts = zip(space.dimensions.values(), space.parts(key) or (), strict=False)
        moments = [exists_from(dimension.definition, part) for dimension, part in parts]
        return max((moment for moment in moments if moment is not None), default=None)
    if not _of_time(definition):
        return None
    window = window_of(definition, key)
    whole = bounds(definition)
    if window is None or whole is None:
        return None
    ahead = definition.end_offset
    if ahead > 0 and window.start == whole.start:
        # Dagster has the first partition one window earlier than its rule for later ones says.
        return _moved(definition, window, -ahead).start + _INSTANT
    return _moved(definition, window, -ahead).end


def ends(
    definition: Definition, after: datetime, until: datetime, limit: int
) -> list[tuple[datetime, str]]:
    """Returns the newest window ends with ``after < end <= until``, in order, and their keys.

    At most ``limit``; takes time for those alone.
    """
    whole = bounds(definition) if _of_time(definition) else None
    if not _of_time(definition) or whole is None:
        return []
    windows = itertools.takewhile(
        lambda window: window.end.timestamp() > after.timestamp() and window.start >= whole.start,
        _backwards(definition, _earlier(until, whole.end)),
    )
    newest = [
        (window.end, key_at(definition, window.start))
        for window in itertools.islice(windows, limit)
    ]
    return newest[::-1]


def first_ends(
    definition: Definition, after: datetime, until: datetime, limit: int
) -> list[datetime]:
    """Returns the oldest window ends with ``after < end <= until``, in order, at most ``limit``."""
    whole = bounds(definition) if _of_time(definition) else None
    first = next_end(definition, after)
    if not _of_time(definition) or whole is None or first is None:
        return []
    following = (window.end for window in _forwards(definition, first))
    latest = _earlier(until, whole.end).timestamp()
    found = itertools.takewhile(
        lambda end: end.timestamp() <= latest, itertools.chain([first], following)
    )
    return list(itertools.islice(found, limit))


def next_end(definition: Definition, after: datetime) -> datetime | None:
    """Returns the first end of a window after the moment ``after``; None: there is no later one."""
    whole = bounds(definition) if _of_time(definition) else None
    if not _of_time(definition) or whole is None:
        return None
    if after.timestamp() < whole.start.timestamp():
        return next(_forwards(definition, whole.start)).end
    last = next(_backwards(definition, after))
    later = _forwards(definition, last.end)
    end = next(each.end for each in later if each.end.timestamp() > after.timestamp())
    return end if end <= whole.end else None


def begun(definition: Windows, at: datetime) -> Iterator[tuple[dg.TimeWindow, str]]:
    """Yields the windows that begin by the moment ``at``, newest first, with their keys."""
    whole = bounds(definition)
    if whole is None:
        return
    last = next_end(definition, at) or whole.end
    for window in _backwards(definition, last):
        if window.start < whole.start:
            return
        if window.start <= at:
            yield window, key_at(definition, window.start)


def ranges(
    definition: Definition,
    keys: Collection[str],
    dynamic_keys: DynamicPartitionsStore | DynamicKeys | None = None,
) -> list[list[str]]:
    """Groups the keys into ranges that Dagster can run, each in the definition's order.

    Does not enumerate time windows. An unknown key is a group by itself, at the end; so is each
    dynamic key that ``dynamic_keys`` does not list.
    """
    space = KeySpace(definition, store_of(dynamic_keys))
    known = {key for key in keys if space.has(key)}
    unknown = [[key] for key in dict.fromkeys(keys) if key not in known]
    return [*_stretches(space, known), *unknown]


def _stretches(space: KeySpace, keys: set[str]) -> list[list[str]]:
    definition = space.definition
    if _of_time(definition):
        windows = sorted(
            ((window, key) for key in keys if (window := window_of(definition, key)) is not None),
            key=lambda each: each[0].start.timestamp(),
        )
        groups: list[list[str]] = []
        following = None
        for window, key in windows:
            if following != window.start.timestamp():
                groups.append([])
            groups[-1].append(key)
            following = next(_forwards(definition, window.end)).start.timestamp()
        return groups
    if space.dimensions:
        return _rectangles(space, keys)
    order = space.places
    listed = sorted(keys & order.keys(), key=order.__getitem__)
    stretches = [
        [key for _, key in stretch]
        for _, stretch in itertools.groupby(
            enumerate(listed), lambda each: order[each[1]] - each[0]
        )
    ]
    return stretches + [[key] for key in sorted(keys - order.keys())]


def _rectangles(space: KeySpace, keys: set[str]) -> list[list[str]]:
    """Groups two-dimensional keys; Dagster runs all pairs of a range of each dimension."""
    first, second = space.dimensions.values()
    rows: dict[str, set[str]] = {}
    for key in keys:
        row, column = space.parts(key) or ("", "")
        rows.setdefault(row, set()).add(column)
    # Consecutive rows with the same range of columns are joined.
    columns: dict[tuple[str, ...], set[str]] = {}
    for row, members in rows.items():
        for stretch in _stretches(second, members):
            columns.setdefault(tuple(stretch), set()).add(row)
    found = [
        [join((row, column)) for row in stretch for column in members]
        for members, same in columns.items()
        for stretch in _stretches(first, same)
    ]
    return sorted(found, key=lambda group: space.order(group[0]))


def _of_time(definition: Definition) -> TypeGuard[Windows]:
    return isinstance(definition, Windows)


def _earlier(one: datetime, other: datetime) -> datetime:
    return min(one, other, key=datetime.timestamp)


def _backwards(definition: Windows, at: datetime) -> Iterator[dg.TimeWindow]:
    """Yields the windows that have ended at ``at``, the last one first, without a beginning."""
    return map(utc, earlier_windows(definition, at.timestamp()))


def _forwards(definition: Windows, at: datetime) -> Iterator[dg.TimeWindow]:
    """Yields the windows that start at ``at`` or later, without an end."""
    return map(utc, later_windows(definition, at.timestamp()))


def _moved(definition: Windows, window: dg.TimeWindow, offset: int) -> dg.TimeWindow:
    """Returns the window this many places after, or before, not bounded by start and end."""
    windows: Iterable[dg.TimeWindow]
    if offset == 0:
        return window
    if offset > 0:
        windows = _forwards(definition, window.end)
    else:
        windows = _backwards(definition, window.start)
    return next(itertools.islice(windows, abs(offset) - 1, None))


def _key(definition: Windows, window: dg.TimeWindow) -> str | None:
    """Returns the window's key, if the definition has it."""
    key = key_at(definition, window.start)
    return key if window_of(definition, key) is not None else None
