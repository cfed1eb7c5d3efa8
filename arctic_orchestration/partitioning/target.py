"""The partitions of one target, and the mapping of assets' partitions to them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

import dagster as dg

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.partitioning import windows
from arctic_orchestration.partitioning.key_space import (
    Definition,
    DynamicKeys,
    KeySpace,
    store_of,
    window_of,
)
from arctic_orchestration.partitioning.mapping_forms import mapping_of
from arctic_orchestration.partitioning.maps import DimensionMap, PartitionMap

#: the maximum number of ended windows that are made up at once
_ENDS_AT_ONCE = 1_000


class Source(Protocol):
    """A trigger's settings for the partitions of its asset."""

    @property
    def mapping(self) -> Any: ...


class Clock(Protocol):
    """The partitions that a moment names."""

    @property
    def partition(self) -> str | tuple[str, ...]: ...
    @property
    def offset(self) -> int: ...
    @property
    def after(self) -> timedelta | None: ...


class AnyOfMaps:
    """Several mappings of a target to one asset: relates what any of them relates."""

    def __init__(self, maps: Sequence[PartitionMap]) -> None:
        self._maps = maps

    def targets_of(
        self, keys: Collection[str], at: datetime | None = None
    ) -> dict[str, tuple[str, ...]]:
        """Returns the union of the maps' targets."""
        found: dict[str, tuple[str, ...]] = {}
        for one in self._maps:
            for key, targets in one.targets_of(keys, at).items():
                found[key] = tuple(dict.fromkeys((*found.get(key, ()), *targets)))
        return found

    def sources_of(self, target: str, at: datetime | None = None) -> tuple[str, ...]:
        """Returns the union of the maps' sources."""
        sources = (key for one in self._maps for key in one.sources_of(target, at))
        return tuple(dict.fromkeys(sources))

    def between(self, start: str, end: str) -> Sequence[str]:
        """Returns the range of the first map."""
        return self._maps[0].between(start, end)


@dataclass
class PartitionedTarget:
    """A target with a partitions definition.

    Args:
        definition: the target's partitions.
        upstream: the definition of an asset; None: it has none, or is unknown.
        mappings: Dagster's mapping for each asset that the target depends on; none: Dagster's
            default.
        dynamic_keys: lists the keys of dynamic definitions.
        missing: the partitions that exist at a moment and were never materialized.
    """

    definition: Definition
    upstream: Callable[[str], Definition | None]
    mappings: Callable[[str], Sequence[dg.PartitionMapping]]
    dynamic_keys: DynamicKeys
    missing: Callable[[datetime], Sequence[str]]
    _maps: dict[str, PartitionMap | AnyOfMaps] = field(default_factory=dict)

    def map_of(self, asset: str, source: Source) -> PartitionMap | AnyOfMaps:
        """Returns the map from keys of an asset's arrivals to target partitions.

        Keys of an unpartitioned asset, and of a run's job, stand for the target's own.

        Errors:
            InvalidDefinition: the trigger's mapping is invalid.
        """
        key = f"{asset} {source.mapping}"
        if key not in self._maps:
            self._maps[key] = self._find(asset, source.mapping)
        return self._maps[key]

    def _find(self, asset: str, form: Any) -> PartitionMap | AnyOfMaps:
        upstream = self.upstream(asset) if asset else None
        given: list[dg.PartitionMapping | None]
        if form is not None:
            given = [mapping_of(form, field="mapping")]
        else:
            given = []
            for mapping in self.mappings(asset) if upstream else ():
                # Some are not hashable.
                if mapping not in given:
                    given.append(mapping)
        maps = [
            PartitionMap(upstream, self.definition, mapping, self.dynamic_keys)
            for mapping in given or [None]
        ]
        return maps[0] if len(maps) == 1 else AnyOfMaps(maps)

    def keys_at(self, clock: Clock, at: datetime) -> Sequence[str]:
        """Returns the partitions that a moment names; empty: there are none yet.

        Errors:
            InvalidInput: the partitions are not time windows.
        """
        if not isinstance(clock.partition, str):
            return clock.partition
        if clock.partition == "all_missing":
            return self.missing(at)
        moved = at - clock.after if clock.after is not None else at
        find = windows.current if clock.partition == "current" else windows.last_ended
        key = find(self._windows, moved, clock.offset)
        if key is None:
            return ()
        if self.definition is self._windows:
            return (key,)
        assert isinstance(self.definition, dg.MultiPartitionsDefinition)
        return DimensionMap(self.definition, self._time_dimension(), self.dynamic_keys).sources_of(
            key, at
        )

    def ends(self, after: datetime, until: datetime) -> Sequence[datetime]:
        """Returns the ends of windows in ``(after, until]``, at most the oldest thousand."""
        return windows.first_ends(self._windows, after, until, _ENDS_AT_ONCE)

    def next_end(self, after: datetime) -> datetime | None:
        """Returns the end of the next window; none: there is no later one."""
        return windows.next_end(self._windows, after)

    def exists_from(self, key: str) -> datetime | None:
        """Returns when Dagster begins to have a partition; none: it has no time."""
        return windows.exists_from(self.definition, key)

    def ends_at(self, key: str) -> datetime | None:
        """Returns when the window of a partition ends; none: it is not a time window."""
        return end_of(self.definition, key)

    def between(self, start: str, end: str) -> Sequence[str]:
        """Returns the partitions of a contiguous range."""
        return KeySpace(self.definition, store_of(self.dynamic_keys)).between(start, end)

    @property
    def _windows(self) -> dg.TimeWindowPartitionsDefinition:
        """The time windows among the partitions."""
        found = windows_of(self.definition)
        if found is None:
            raise InvalidInput("partition", str(self.definition), "partitions by windows of time")
        return found

    def _time_dimension(self) -> str:
        return _time_dimension(self.definition, self._windows)


def windows_of(definition: Definition) -> dg.TimeWindowPartitionsDefinition | None:
    """Returns the time windows of a definition, or of its one dimension with time windows."""
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return definition
    if isinstance(definition, dg.MultiPartitionsDefinition):
        found = [
            one.partitions_def
            for one in definition.partitions_defs
            if isinstance(one.partitions_def, dg.TimeWindowPartitionsDefinition)
        ]
        if len(found) == 1:
            return found[0]
    return None


def end_of(definition: Definition, key: str) -> datetime | None:
    """Returns when the window of a partition ends; none: it is not a time window."""
    of_time = windows_of(definition)
    if of_time is None:
        return None
    if of_time is not definition:
        assert isinstance(definition, dg.MultiPartitionsDefinition)
        dimension = _time_dimension(definition, of_time)
        found = DimensionMap(definition, dimension).targets_of([key])
        key = found.get(key, ("",))[0]
    window = window_of(of_time, key)
    return None if window is None else window.end


def _time_dimension(definition: Definition, windows: dg.TimeWindowPartitionsDefinition) -> str:
    assert isinstance(definition, dg.MultiPartitionsDefinition)
    return next(one.name for one in definition.partitions_defs if one.partitions_def == windows)


def has_dynamic_keys(definition: Definition) -> bool:
    """Returns whether the partitions, or those of a dimension, are kept in a Dagster instance."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        parts = definition.partitions_defs
        return any(
            isinstance(part.partitions_def, dg.DynamicPartitionsDefinition) for part in parts
        )
    return isinstance(definition, dg.DynamicPartitionsDefinition)


def existing_keys(
    definition: Definition, at: datetime | None, dynamic_keys: DynamicKeys
) -> Sequence[str]:
    """Returns the partitions that Dagster has at a moment; None: now."""
    with dg.partition_loading_context(
        effective_dt=at, dynamic_partitions_store=store_of(dynamic_keys)
    ):
        return definition.get_partition_keys()
