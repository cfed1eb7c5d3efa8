"""The keys of one partitions definition, including those of windows that have not ended yet."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any

import dagster as dg

from arctic_orchestration.dagster_internals import (
    DynamicPartitionsStore,
    dst_safe_strftime,
    get_timezone,
)

Definition = dg.PartitionsDefinition[Any]
#: the present keys of a dynamic partitions definition, by its name
DynamicKeys = Callable[[str], Collection[str]]

#: Dagster has a partition for a time window once the window has ended. All windows are mapped as of
#: this moment; a definition with an end keeps its end.
FAR = datetime(2200, 1, 1, tzinfo=UTC)

_DELIMITER = "|"
#: the number of keys with cached windows
_REMEMBERED = 16_384


class _Store(DynamicPartitionsStore):
    """Dynamic partitions for Dagster; any key may still be added, so all exist."""

    def __init__(self, keys: DynamicKeys) -> None:
        self._keys = keys

    def get_dynamic_partitions(self, partitions_def_name: str) -> Sequence[str]:
        return list(self._keys(partitions_def_name))

    def get_paginated_dynamic_partitions(
        self, partitions_def_name: str, limit: int, ascending: bool, cursor: str | None = None
    ) -> dg.PaginatedResults[str]:
        return dg.PaginatedResults.create_from_sequence(
            self.get_dynamic_partitions(partitions_def_name), limit, ascending, cursor
        )

    def has_dynamic_partition(self, partitions_def_name: str, partition_key: str) -> bool:
        return True

    def get_existing_dynamic_partitions(
        self, partitions_def_name: str, partition_keys: Sequence[str]
    ) -> set[str]:
        return set(partition_keys)

    def get_dynamic_partitions_definition_id(self, partitions_def_name: str) -> str:
        return partitions_def_name


def store_of(dynamic_keys: DynamicPartitionsStore | DynamicKeys | None) -> DynamicPartitionsStore:
    """Returns a store in which all dynamic keys exist; it lists those of ``dynamic_keys``."""
    if isinstance(dynamic_keys, _Store):
        return dynamic_keys
    if dynamic_keys is None:
        return _Store(lambda _: ())
    if isinstance(dynamic_keys, DynamicPartitionsStore):
        return _Store(dynamic_keys.get_dynamic_partitions)
    return _Store(dynamic_keys)


class KeySpace:
    """The keys of ``definition``: their validity, existence and order."""

    def __init__(self, definition: Definition, store: DynamicPartitionsStore) -> None:
        self.definition = definition
        self._store = store

    @contextmanager
    def existing_at(self, at: datetime | None) -> Iterator[datetime]:
        """Makes Dagster's partitions those of ``at`` in the block; None: now, by its clock."""
        with dg.partition_loading_context(at, self._store) as context:
            yield context.effective_dt

    @cached_property
    def _static(self) -> dict[str, int]:
        """The index of each key of a static definition."""
        assert isinstance(self.definition, dg.StaticPartitionsDefinition)
        return {key: place for place, key in enumerate(self.definition.get_partition_keys())}

    @cached_property
    def places(self) -> dict[str, int]:
        """The index of each key that exists when this is read first."""
        return {key: place for place, key in enumerate(self.existing(None))}

    @cached_property
    def dimensions(self) -> dict[str, "KeySpace"]:
        """The dimensions of a multi-partitions definition, in the order of its keys; else none."""
        if not isinstance(self.definition, dg.MultiPartitionsDefinition):
            return {}
        return {
            dimension.name: KeySpace(dimension.partitions_def, self._store)
            for dimension in self.definition.partitions_defs
        }

    @cached_property
    def grows(self) -> bool:
        """Whether :meth:`existing` depends on the moment or on a store."""
        if self.dimensions:
            return any(dimension.grows for dimension in self.dimensions.values())
        return not isinstance(self.definition, dg.StaticPartitionsDefinition)

    def has(self, key: str) -> bool:
        """Returns whether ``key`` is a key of the definition, or will be when its window has ended.

        A dynamic definition has every key, since any may be added.
        """
        definition = self.definition
        if isinstance(definition, dg.StaticPartitionsDefinition):
            return key in self._static
        if isinstance(definition, dg.DynamicPartitionsDefinition):
            return bool(key)
        if self.dimensions:
            parts = self.parts(key)
            return parts is not None and all(
                dimension.has(part)
                for dimension, part in zip(self.dimensions.values(), parts, strict=True)
            )
        if isinstance(definition, dg.TimeWindowPartitionsDefinition):
            return window_of(definition, key) is not None
        with self.existing_at(None):
            return definition.has_partition_key(key)

    def those_of(self, keys: Iterable[str]) -> set[str]:
        """Returns those of ``keys`` that the definition has; parses shared parts once."""
        if not self.dimensions:
            return {key for key in keys if self.has(key)}
        parts = {key: found for key in keys if (found := self.parts(key)) is not None}
        valid = [
            dimension.those_of({part[place] for part in parts.values()})
            for place, dimension in enumerate(self.dimensions.values())
        ]
        return {
            key
            for key, part in parts.items()
            if all(each in among for each, among in zip(part, valid, strict=True))
        }

    def parts(self, key: str) -> list[str] | None:
        """Returns the key's part in each of :attr:`dimensions`; None: wrong number of parts."""
        parts = key.split(_DELIMITER)
        return parts if len(parts) == len(self.dimensions) else None

    def existing(self, at: datetime | None) -> tuple[str, ...]:
        """Returns all keys that Dagster has at the moment ``at``, in order; None: now."""
        with self.existing_at(at):
            return tuple(str(key) for key in self.definition.get_partition_keys())

    def between(self, start: str, end: str) -> Sequence[str]:
        """Returns the keys of a contiguous range, including windows that have not ended."""
        with self.existing_at(FAR):
            return self.definition.get_partition_keys_in_range(dg.PartitionKeyRange(start, end))

    def in_order(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Returns the distinct ``keys``, all of them of the definition, in its order."""
        return tuple(sorted(map(str, set(keys)), key=self.order))

    def order(self, key: str) -> Any:
        """Returns the sort key for keys of the definition."""
        if isinstance(self.definition, dg.StaticPartitionsDefinition):
            return self._static[key]
        if self.dimensions:
            parts = self.parts(key) or ()
            return [
                dimension.order(part)
                for dimension, part in zip(self.dimensions.values(), parts, strict=True)
            ]
        if isinstance(self.definition, dg.TimeWindowPartitionsDefinition):
            window = window_of(self.definition, key)
            return window.start.timestamp() if window else 0.0
        return key


def join(parts: Iterable[str]) -> str:
    """Joins parts, in the order of the dimensions, to the key of a multi-partitions definition."""
    return _DELIMITER.join(parts)


def utc(window: dg.TimeWindow) -> dg.TimeWindow:
    """Returns the window in UTC: moments of one zone are compared by their wall times."""
    return dg.TimeWindow(window.start.astimezone(UTC), window.end.astimezone(UTC))


def key_at(definition: dg.TimeWindowPartitionsDefinition, start: datetime) -> str:
    """Returns the key of the window that begins at ``start``."""
    wall = start.astimezone(get_timezone(definition.timezone))
    return dst_safe_strftime(wall, definition.timezone, definition.fmt, definition.cron_schedule)


@lru_cache(maxsize=1024)
def bounds(definition: dg.TimeWindowPartitionsDefinition) -> dg.TimeWindow | None:
    """Returns the start of the first window and the end of the last; None: there is no window."""
    with dg.partition_loading_context(FAR):
        first = definition.get_first_partition_window()
        last = definition.get_last_partition_window()
    return None if first is None or last is None else utc(dg.TimeWindow(first.start, last.end))


@lru_cache(maxsize=_REMEMBERED)
def window_of(definition: dg.TimeWindowPartitionsDefinition, key: str) -> dg.TimeWindow | None:
    """Returns the window of a key in UTC, ended or not; None: the definition has no such key."""
    try:
        window = definition.time_window_for_partition_key(key)
    except Exception:
        # Text in another format, or a date that the calendar or the cron does not have.
        return None
    whole = bounds(definition)
    # Dagster parses other texts, too: the hour 03:30 of an hourly definition, the day 2026-1-5.
    if whole is None or key_at(definition, window.start) != key:
        return None
    window = utc(window)
    return window if whole.start <= window.start and window.end <= whole.end else None
