"""Which partitions of a target depend on which partitions of an asset: Dagster's own answer.

Dagster maps to partitions that exist at the moment, and a day exists when it has ended; its hours
arrive before. So windows are mapped as of a moment at which all of them have ended. Mappings that
depend on existing partitions (*all*, *last*) are evaluated as of ``at``.
"""

import itertools
from collections.abc import Collection, Sequence
from datetime import datetime

import dagster as dg

from arctic_orchestration.dagster_internals import DynamicPartitionsStore
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.partitioning.checks import check
from arctic_orchestration.partitioning.key_space import (
    Definition,
    DynamicKeys,
    KeySpace,
    join,
    store_of,
)
from arctic_orchestration.partitioning.relations import Identity, Relation, relation_of

__all__ = ["DimensionMap", "PartitionMap", "check"]

#: The number of keys with cached answers, where these do not change.
_REMEMBERED = 16_384


class PartitionMap:
    """The dependency of the partitions of ``target`` on those of ``upstream``.

    Args:
        upstream: the asset's partitions; None: it is not defined in this code location, and the
            target's keys stand for themselves.
        target: the target's partitions.
        mapping: Dagster's mapping of the dependency; None: Dagster's default for the two.
        dynamic_keys: lists the existing keys of dynamic partitions definitions, for mappings to all
            or the last of them: a store such as the Dagster instance, or a function of the
            definition's name.
    """

    def __init__(
        self,
        upstream: Definition | None,
        target: Definition,
        mapping: dg.PartitionMapping | None = None,
        dynamic_keys: DynamicPartitionsStore | DynamicKeys | None = None,
    ) -> None:
        store = store_of(dynamic_keys)
        self._target = KeySpace(target, store)
        self._upstream = None if upstream is None else KeySpace(upstream, store)
        self._relation: Relation
        if self._upstream is None:
            self._relation = Identity(self._target, self._target)
        else:
            self._relation = relation_of(self._upstream, self._target, mapping)
        self._known: dict[str, tuple[str, ...] | None] = {}

    def targets_of(
        self, keys: Collection[str], at: datetime | None = None
    ) -> dict[str, tuple[str, ...]]:
        """Returns the target partitions of each upstream key, in order; they need not exist yet.

        A missing key is no partition of the asset. An empty tuple: the key maps to nothing. ``at``:
        the moment of the partitions for *all* and *last*; None: now.
        """
        if self._relation.moves:
            return self._relation.targets_of(set(keys), at)
        answers = {key: names for key in keys if (names := self._known.get(key, ...)) is not ...}
        unknown = set(keys) - answers.keys()
        found = self._relation.targets_of(unknown, at) if unknown else {}
        answers.update((key, found.get(key)) for key in unknown)
        if len(self._known) + len(unknown) > _REMEMBERED:
            self._known.clear()
        if len(unknown) <= _REMEMBERED:
            self._known.update((key, found.get(key)) for key in unknown)
        targets = {key: names for key, names in answers.items() if names is not None}
        if self._upstream is None:
            # It is unknown whether such an asset has the key; it maps to nothing.
            targets.update((key, ()) for key in keys if key not in targets)
        return targets

    def sources_of(self, target_key: str, at: datetime | None = None) -> tuple[str, ...]:
        """Returns all upstream keys that map to the target partition, in order; ``at`` as above."""
        if not self._target.has(target_key):
            return ()
        return self._relation.sources_of(target_key, at)

    def between(self, start: str, end: str) -> Sequence[str]:
        """Returns the upstream keys of a contiguous range."""
        return (self._upstream or self._target).between(start, end)


class DimensionMap:
    """The keys of one dimension of a multi-partitions definition, as if a target had them.

    Errors:
        InvalidInput: ``dimension`` is not one of the definition's.
    """

    def __init__(
        self,
        multi: dg.MultiPartitionsDefinition,
        dimension: str,
        dynamic_keys: DynamicPartitionsStore | DynamicKeys | None = None,
    ) -> None:
        self._multi = KeySpace(multi, store_of(dynamic_keys))
        names = list(self._multi.dimensions)
        if dimension not in names:
            raise InvalidInput("per", dimension, f"one of the dimensions {', '.join(names)}")
        self._place = names.index(dimension)

    def targets_of(
        self, keys: Collection[str], at: datetime | None = None
    ) -> dict[str, tuple[str, ...]]:
        """Returns the dimension's part of each key; omits keys that are no partition."""
        parts = {key: self._multi.parts(key) for key in self._multi.those_of(set(keys))}
        return {key: (part[self._place],) for key, part in parts.items() if part is not None}

    def sources_of(self, target_key: str, at: datetime | None = None) -> tuple[str, ...]:
        """Returns all keys with that part that exist at the moment ``at``, in order; None: now."""
        spaces = list(self._multi.dimensions.values())
        if not spaces[self._place].has(target_key):
            return ()
        parts = [
            (target_key,) if place == self._place else space.existing(at)
            for place, space in enumerate(spaces)
        ]
        return tuple(join(combination) for combination in itertools.product(*parts))

    def between(self, start: str, end: str) -> Sequence[str]:
        """Returns the keys of a contiguous range."""
        return self._multi.between(start, end)
