"""How each of Dagster's partition mappings relates the keys of two definitions."""

import itertools
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

import dagster as dg

from arctic_orchestration.dagster_internals import (
    BaseMultiPartitionMapping,
    infer_partition_mapping,
)
from arctic_orchestration.partitioning.key_space import KeySpace, join, window_of
from arctic_orchestration.partitioning.time_windows import TimeWindowRelation


class Relation(Protocol):
    #: whether answers depend on the moment or on a store
    moves: bool

    def targets_of(self, keys: set[str], at: datetime | None) -> dict[str, tuple[str, ...]]: ...

    def sources_of(self, target_key: str, at: datetime | None) -> tuple[str, ...]: ...


def relation_of(
    upstream: KeySpace, target: KeySpace, mapping: dg.PartitionMapping | None
) -> Relation:
    mapping = infer_partition_mapping(mapping, target.definition, upstream.definition)
    same = upstream.definition == target.definition
    # The exact type counts: a custom class may derive from one of Dagster's.
    kind = type(mapping)
    if kind is dg.IdentityPartitionMapping:
        return Identity(upstream, target)
    if kind is dg.TimeWindowPartitionMapping and not (
        same and mapping.start_offset == mapping.end_offset == 0  # type: ignore[attr-defined]
    ):
        return _Windows(upstream, target, mapping)
    if kind is dg.TimeWindowPartitionMapping:
        return Identity(upstream, target)
    if kind is dg.AllPartitionMapping:
        return _Chosen(upstream, target, None)
    if kind in (dg.LastPartitionMapping, dg.SpecificPartitionsPartitionMapping):
        return _Chosen(upstream, target, mapping)
    if kind in (dg.MultiPartitionMapping, dg.MultiToSingleDimensionPartitionMapping):
        return _Dimensions(upstream, target, mapping)
    return _EachKey(upstream, target, mapping)


class Identity:
    """Each key maps to the same key."""

    moves = False

    def __init__(self, upstream: KeySpace, target: KeySpace) -> None:
        self._upstream = upstream
        self._target = target

    def targets_of(self, keys: set[str], at: datetime | None) -> dict[str, tuple[str, ...]]:
        keys = self._upstream.those_of(keys)
        same = self._upstream.definition == self._target.definition
        common = keys if same else self._target.those_of(keys)
        return {key: (key,) if key in common else () for key in keys}

    def sources_of(self, target_key: str, at: datetime | None) -> tuple[str, ...]:
        return (target_key,) if self._upstream.has(target_key) else ()


class _Windows:
    """Time windows to time windows."""

    moves = False

    def __init__(self, upstream: KeySpace, target: KeySpace, mapping: Any) -> None:
        one, other = upstream.definition, target.definition
        assert isinstance(one, dg.TimeWindowPartitionsDefinition)
        assert isinstance(other, dg.TimeWindowPartitionsDefinition)
        self._relation = TimeWindowRelation(one, other, mapping)

    def targets_of(self, keys: set[str], at: datetime | None) -> dict[str, tuple[str, ...]]:
        return self._relation.targets_of(keys)

    def sources_of(self, target_key: str, at: datetime | None) -> tuple[str, ...]:
        return self._relation.sources_of(target_key)


class _Chosen:
    """Some upstream keys (all, the last, specific ones), on which every target key depends."""

    def __init__(
        self, upstream: KeySpace, target: KeySpace, mapping: dg.PartitionMapping | None
    ) -> None:
        self._upstream = upstream
        self._target = target
        self._mapping = mapping
        self.moves = upstream.grows or target.grows

    def _chosen(self, at: datetime | None) -> tuple[str, ...]:
        if self._mapping is None:
            return self._upstream.existing(at)
        if isinstance(self._mapping, dg.SpecificPartitionsPartitionMapping):
            specific = filter(self._upstream.has, self._mapping.partition_keys)
            return self._upstream.in_order(specific)
        with self._upstream.existing_at(at):
            last = self._upstream.definition.get_last_partition_key()
        return () if last is None else (str(last),)

    def targets_of(self, keys: set[str], at: datetime | None) -> dict[str, tuple[str, ...]]:
        every = self._target.existing(at)
        # All of a growing definition: a key of a window that has not ended is one of them.
        chosen = None if self._mapping is None else set(self._chosen(at))
        return {
            key: every if chosen is None or key in chosen else ()
            for key in self._upstream.those_of(keys)
        }

    def sources_of(self, target_key: str, at: datetime | None) -> tuple[str, ...]:
        return self._chosen(at)


class _Dimensions:
    """Dimensions to dimensions; an unmapped dimension takes all of its keys."""

    def __init__(self, upstream: KeySpace, target: KeySpace, mapping: Any) -> None:
        assert isinstance(mapping, BaseMultiPartitionMapping)
        self._upstream = upstream
        self._target = target
        dependencies = mapping.get_dimension_dependencies(upstream.definition, target.definition)
        #: the relation of each mapped pair of dimensions, by the name of either
        self._forward: dict[str | None, tuple[str | None, Relation]] = {}
        self._backward: dict[str | None, tuple[str | None, Relation]] = {}
        for dependency in dependencies:
            one, other = dependency.upstream_dimension_name, dependency.downstream_dimension_name
            relation = relation_of(
                _dimensions(upstream)[one], _dimensions(target)[other], dependency.partition_mapping
            )
            self._forward[one] = (other, relation)
            self._backward[other] = (one, relation)
        unmapped = [
            *(space for name, space in _dimensions(upstream).items() if name not in self._forward),
            *(space for name, space in _dimensions(target).items() if name not in self._backward),
        ]
        self.moves = any(space.grows for space in unmapped) or any(
            relation.moves for _, relation in self._forward.values()
        )

    def targets_of(self, keys: set[str], at: datetime | None) -> dict[str, tuple[str, ...]]:
        parts = {key: _parts(self._upstream, key) for key in self._upstream.those_of(keys)}
        mapped: dict[str | None, Mapping[str, tuple[str, ...]]] = {}
        for place, name in enumerate(_dimensions(self._upstream)):
            if name in self._forward:
                other, relation = self._forward[name]
                mapped[other] = relation.targets_of({part[place] for part in parts.values()}, at)
        places = {name: place for place, name in enumerate(_dimensions(self._upstream))}
        whole = {
            name: space.existing(at)
            for name, space in _dimensions(self._target).items()
            if name not in mapped
        }
        return {
            key: _product(
                mapped[name].get(part[places[self._backward[name][0]]], ())
                if name in mapped
                else whole[name]
                for name in _dimensions(self._target)
            )
            for key, part in parts.items()
        }

    def sources_of(self, target_key: str, at: datetime | None) -> tuple[str, ...]:
        part = dict(zip(_dimensions(self._target), _parts(self._target, target_key), strict=True))
        return _product(
            self._forward[name][1].sources_of(part[self._forward[name][0]], at)
            if name in self._forward
            else space.existing(at)
            for name, space in _dimensions(self._upstream).items()
        )


def _dimensions(space: KeySpace) -> Mapping[str | None, KeySpace]:
    named: dict[str | None, KeySpace] = dict(space.dimensions.items())
    return named or {None: space}


def _parts(space: KeySpace, key: str) -> list[str]:
    return (space.parts(key) or []) if space.dimensions else [key]


def _product(parts: Any) -> tuple[str, ...]:
    return tuple(join(combination) for combination in itertools.product(*parts))


class _EachKey:
    """A static mapping, or a custom class: one call for each key."""

    def __init__(self, upstream: KeySpace, target: KeySpace, mapping: dg.PartitionMapping) -> None:
        self._upstream = upstream
        self._target = target
        self._mapping = mapping
        self.moves = upstream.grows or target.grows

    def targets_of(self, keys: set[str], at: datetime | None) -> dict[str, tuple[str, ...]]:
        return {key: self._targets(key, at) for key in keys if self._upstream.has(key)}

    def _targets(self, key: str, at: datetime | None) -> tuple[str, ...]:
        upstream, target = self._upstream.definition, self._target.definition
        at = _all_ended(self._upstream, self._target, key, at)
        with self._target.existing_at(at):
            subset = self._mapping.get_downstream_partitions_for_partitions(
                upstream.subset_with_partition_keys([key]), upstream, target
            )
            return self._target.in_order(self._target.those_of(subset.get_partition_keys()))

    def sources_of(self, target_key: str, at: datetime | None) -> tuple[str, ...]:
        upstream, target = self._upstream.definition, self._target.definition
        at = _all_ended(self._target, self._upstream, target_key, at)
        with self._upstream.existing_at(at):
            result = self._mapping.get_upstream_mapped_partitions_result_for_partitions(
                target.subset_with_partition_keys([target_key]), target, upstream
            )
            sources = self._upstream.those_of(result.partitions_subset.get_partition_keys())
            return self._upstream.in_order(sources)


def _all_ended(space: KeySpace, other: KeySpace, key: str, at: datetime | None) -> datetime | None:
    """Returns the moment, ``at`` or later, when the key and its neighbours in ``other`` exist.

    A custom class may list all keys, so the moment is not later than necessary.
    """
    ends = list(_ends(space, key))
    if not ends:
        return at
    moment = max(ends)
    for definition in (*_time_definitions(space), *_time_definitions(other)):
        end = max(ends)
        for _ in range(2 + abs(definition.end_offset)):
            window = definition.get_next_partition_window(end, respect_bounds=False)
            assert window is not None
            end = window.end
        moment = max(moment, end)
    with space.existing_at(at) as present:
        return max(moment, present)


def _ends(space: KeySpace, key: str) -> Iterator[datetime]:
    """Yields the ends of the windows that a key names."""
    if space.dimensions:
        for part, dimension in zip(_parts(space, key), space.dimensions.values(), strict=True):
            yield from _ends(dimension, part)
    elif isinstance(space.definition, dg.TimeWindowPartitionsDefinition):
        window = window_of(space.definition, key)
        if window is not None:
            yield window.end


def _time_definitions(space: KeySpace) -> list[dg.TimeWindowPartitionsDefinition]:
    """Returns the definition, or its dimensions, with time windows."""
    spaces = space.dimensions.values() if space.dimensions else (space,)
    return [
        each.definition
        for each in spaces
        if isinstance(each.definition, dg.TimeWindowPartitionsDefinition)
    ]
