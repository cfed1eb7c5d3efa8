"""Finds the target partitions that an event concerns.

In a schedule with ``partitions: each`` or ``range`` every event belongs to partitions of the
target, each of which has a waiting job of its own. An event about no partition is *common* and
concerns all of them. With ``per`` an event belongs to a group of the asset's partitions.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.event_log.escaping import is_storable
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.jobs import COMMON
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.targets import PartitionMap, TargetPartitions, Targets
from arctic_orchestration.schedules.triggers import Leaf, Ticks
from arctic_orchestration.schedules.triggers.base import PartitionSource

#: the longest key of a target partition in bytes: Postgres has a limit for indexes
_LONGEST_KEY = 2_000
#: the smallest difference between two moments
_INSTANT = timedelta(microseconds=1)


#: What a transaction may add to jobs, so that a tick ends before Dagster's timeout: each new target
#: partition takes over the common events, and each common event joins all partitions that wait.
ROWS_AT_ONCE = 50_000
#: events that are mapped first; each may concern all partitions of the target
_FIRST_EVENTS = 100


class TooManyRows(Exception):
    """The events would write too many rows in one transaction; ``fits`` of them may not."""

    def __init__(self, fits: int) -> None:
        super().__init__(f"too many rows for one transaction; read {fits} events")
        self.fits = fits


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """An event that a leaf of a schedule takes."""

    event: Event
    stored: StoredSchedule
    leaf: int
    #: the target partition, or the group; None: the schedule's single job takes it
    scope: str | None = None
    #: of an event that was stored earlier
    number: int | None = None
    #: since when it was deferred, if it was
    deferred_at: datetime | None = None

    @property
    def source(self) -> PartitionSource:
        """The partition settings of the leaf for its asset."""
        return self.stored.leaves[self.leaf].source


@dataclass(frozen=True, kw_only=True, slots=True)
class Deferred:
    """A match that no job gets yet."""

    match: Match
    #: ``code``, ``match`` or ``checks``
    waits_for: str
    reason: str


class Placing:
    """The partitions of the targets of one location, looked up once in a transaction."""

    def __init__(self, targets: Targets | None, now: datetime) -> None:
        """Without ``targets`` nothing is placed: the code location is not loaded."""
        self._targets = targets
        self._now = now
        self._partitions: dict[str, TargetPartitions | None] = {}
        self._maps: dict[tuple[str, int], PartitionMap | None] = {}

    def place(
        self, matches: Sequence[Match], *, at_once: int | None = None
    ) -> tuple[list[Match], list[Deferred]]:
        """Returns the matches with their scopes, in their order, and the deferred ones.

        Args:
            matches: the events, in their order.
            at_once: the number of events that were read at most; None: they may have any number
                of scopes.

        Errors:
            TooManyRows: fewer events must be read at once.
        """
        if not any(match.stored.is_scoped for match in matches):
            return list(matches), []
        deferred: list[Deferred] = []
        placed: list[Match] = []
        events = 0
        for some in _slices(matches):
            scopes = self._scopes(some, deferred)
            for _, of_event in itertools.groupby(some, key=lambda match: id(match.event)):
                if (at_once or 1) > 1 and len(placed) > ROWS_AT_ONCE:
                    raise TooManyRows(min(events, (at_once or 1) // 2))
                found: list[Match] = []
                for match in of_event:
                    scope_of = scopes.get(id(match), (None,))
                    found.extend(replace(match, scope=scope) for scope in scope_of)
                placed += sorted(found, key=lambda m: (m.stored.id, m.scope or "", m.leaf))
                events += 1
        return placed, deferred

    def _scopes(
        self, matches: Sequence[Match], deferred: list[Deferred]
    ) -> dict[int, Sequence[str]]:
        """Returns the scopes of matches by identity; schedules without scopes are left out."""
        scopes: dict[int, Sequence[str]] = {}
        mapped: dict[tuple[str, int], list[Match]] = defaultdict(list)
        for match in matches:
            if not match.stored.is_scoped:
                continue
            if self._targets is None:
                scopes[id(match)] = ()
                reason = "the next tick of the dispatcher maps it to the target"
                deferred.append(Deferred(match=match, waits_for="code", reason=reason))
                continue
            try:
                named = self._named_by(match)
            except Exception as error:
                named = ()
                deferred.append(_not_looked_up(match, error))
            if named is None:
                mapped[match.stored.id, match.leaf].append(match)
            elif named != _UNSCOPED:
                scopes[id(match)] = named
        for of_leaf in mapped.values():
            try:
                self._map(of_leaf, scopes, deferred)
            except DatabaseUnavailable as error:
                scopes.update((id(match), ()) for match in of_leaf)
                deferred += [_not_looked_up(match, error) for match in of_leaf]
        return scopes

    def _named_by(self, match: Match) -> Sequence[str] | None:
        """Returns the scopes that are known without a partition map; None: a map is needed."""
        stored, leaf = match.stored, match.stored.leaves[match.leaf]
        if stored.schedule.partitions == "none":
            if leaf.source.per is None:
                return (COMMON,)
            return None if match.event.partition else (COMMON,)
        partitions = self._partitions_of(stored)
        if partitions is None:
            return _UNSCOPED
        if match.event.kind is EventKind.TICK:
            if leaf.clock is None:
                return (COMMON,)
            keys = partitions.keys_at(leaf.clock, match.event.at)
            return tuple(key for key in keys if _unusable(key) is None)
        event = match.event
        return None if partition_of(event) or _range_of(event) else (COMMON,)

    def _map(
        self, matches: Sequence[Match], scopes: dict[int, Sequence[str]], deferred: list[Deferred]
    ) -> None:
        """Maps the partitions of one leaf's events."""
        found: Mapping[str, tuple[str, ...]] = {}
        problems: dict[str, str] = {}
        ranges: dict[str, Sequence[str]] = {}
        try:
            mapping = self.map_of(matches[0].stored, matches[0].leaf)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            problems = {_key_of(match.event): str(error) for match in matches}
        else:
            if mapping is None:
                scopes.update((id(match), (COMMON,)) for match in matches)
                return
            ranges = _ranges(mapping, matches, problems)
            keys = {_key_of(match.event) for match in matches} - ranges.keys() - problems.keys()
            keys.update(itertools.chain.from_iterable(ranges.values()))
            found, unmapped = _mapped(mapping, keys, self._now)
            problems.update(unmapped)
        for match in matches:
            key = _key_of(match.event)
            targets = [found.get(one, ()) for one in ranges.get(key, (key,))]
            mapped = list(dict.fromkeys(itertools.chain.from_iterable(targets)))
            scopes[id(match)] = tuple(one for one in mapped if _unusable(one) is None)
            if scopes[id(match)]:
                continue
            reason = (
                problems.get(key)
                or next(filter(None, map(_unusable, mapped)), None)
                or (
                    f"{key} maps to no partition of {target_name(match.stored.schedule)}"
                    if key in found or key in ranges
                    else f"{key} is no partition of {match.event.subject}"
                )
            )
            deferred.append(Deferred(match=match, waits_for="match", reason=reason))

    @property
    def is_loaded(self) -> bool:
        """Whether the code location is loaded."""
        return self._targets is not None

    def ends(
        self, stored: StoredSchedule, after: timedelta, due_at: datetime, now: datetime
    ) -> Ticks:
        """Returns the moments in ``[due_at, now]`` that are ``after`` past the end of a window.

        At most those of the oldest thousand windows: the next one is then due, too.
        """
        if self._targets is None:
            return Ticks(deliver=(), next_at=due_at)
        partitions = self._partitions_of(stored)
        if partitions is None:
            return Ticks(deliver=(), next_at=None)
        ends = partitions.ends(due_at - after - _INSTANT, now - after)
        following = partitions.next_end(ends[-1] if ends else now - after)
        return Ticks(
            deliver=tuple(end + after for end in ends),
            next_at=None if following is None else following + after,
        )

    def ends_at(self, stored: StoredSchedule, scope: str) -> datetime | None:
        """Returns when the window of a target partition ends; None: it has none, or is unknown."""
        if not self.is_loaded or stored.schedule.partitions == "none":
            return None
        # A user-defined class may raise anything; other schedules must go on.
        try:
            partitions = self._partitions_of(stored)
            return None if partitions is None else partitions.ends_at(scope)
        except Exception:
            return None

    def map_of(self, stored: StoredSchedule, leaf: int) -> PartitionMap | None:
        """Returns the map from partitions of a leaf's asset to scopes, or None if there is none."""
        key = (stored.id, leaf)
        if key not in self._maps:
            self._maps[key] = self._find_map(stored, stored.leaves[leaf])
        return self._maps[key]

    def _find_map(self, stored: StoredSchedule, leaf: Leaf) -> PartitionMap | None:
        assert self._targets is not None
        asset = leaf.asset_of_partitions
        if leaf.source.per is not None and stored.schedule.partitions == "none":
            assert asset is not None
            return self._targets.groups(asset, leaf.source.per)
        partitions = self._partitions_of(stored)
        if partitions is None:
            return None
        return partitions.map_of(asset or "", leaf.source)

    def _partitions_of(self, stored: StoredSchedule) -> TargetPartitions | None:
        assert self._targets is not None
        if stored.id not in self._partitions:
            self._partitions[stored.id] = self._targets.partitions(stored.schedule.target)
        return self._partitions[stored.id]


def _slices(matches: Sequence[Match]) -> Iterator[Sequence[Match]]:
    """Yields the matches of the first events, then of as many more each time."""
    begin, events = 0, 1
    for end in range(1, len(matches)):
        if matches[end].event is matches[end - 1].event:
            continue
        if events % _FIRST_EVENTS == 0 and (events // _FIRST_EVENTS).bit_count() == 1:
            yield matches[begin:end]
            begin = end
        events += 1
    yield matches[begin:]


def _not_looked_up(match: Match, error: Exception) -> Deferred:
    """Defers a match: a storage is asked again in the next tick, other code when it is deployed."""
    waits_for = "code" if isinstance(error, DatabaseUnavailable) else "match"
    return Deferred(match=match, waits_for=waits_for, reason=str(error))


def _unusable(scope: str) -> str | None:
    """Returns why a target partition cannot be a scope; None: it can.

    Dagster takes keys from anywhere, such as the names of files.
    """
    if scope == COMMON:
        return f"{COMMON} cannot be a target partition: it stands for all of them"
    if not is_storable(scope) or len(scope.encode()) > _LONGEST_KEY:
        return f"the database cannot hold the target partition {ascii(scope)[:80]}"
    return None


def _mapped(
    mapping: PartitionMap, keys: Collection[str], at: datetime
) -> tuple[Mapping[str, tuple[str, ...]], dict[str, str]]:
    """Returns the target partitions of keys, and the reasons why some could not be mapped."""
    try:
        return mapping.targets_of(keys, at), {}
    except DatabaseUnavailable:
        raise
    except Exception:
        # A key that fails must not affect the others.
        found: dict[str, tuple[str, ...]] = {}
        problems: dict[str, str] = {}
        for key in keys:
            try:
                found.update(mapping.targets_of([key], at))
            except Exception as error:
                problems[key] = f"{key} could not be mapped: {error!r}"
        return found, problems


#: of a schedule whose target has no known partitions
_UNSCOPED: Final = ("",)
_EDGES: Final = ("start", "end")


def partition_of(event: Event) -> str:
    """Returns the partition of an event; for a run, its own partition; empty if there is none."""
    return event.partition or event.tags.get("dagster/partition", "")


def _range_of(event: Event) -> tuple[str, str] | None:
    """Returns the first and the last partition of a run of a range."""
    start, end = (event.tags.get(f"dagster/asset_partition_range_{edge}") for edge in _EDGES)
    return (start, end) if start and end else None


def _key_of(event: Event) -> str:
    """Returns the partition, or the range of partitions, of an event."""
    return partition_of(event) or "...".join(_range_of(event) or ())


def _ranges(
    mapping: PartitionMap, matches: Sequence[Match], problems: dict[str, str]
) -> dict[str, Sequence[str]]:
    """Returns the partitions of each event's range; a range that cannot be listed is a problem."""
    found: dict[str, Sequence[str]] = {}
    for match in matches:
        edges = None if partition_of(match.event) else _range_of(match.event)
        key = _key_of(match.event)
        if edges is None or key in found or key in problems:
            continue
        try:
            found[key] = mapping.between(*edges)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            problems[key] = f"the partitions {key} could not be listed: {error}"
    return found


def target_name(schedule: Schedule) -> str:
    """Returns the target's name, for people."""
    return schedule.target.job or ", ".join(schedule.target.assets)
