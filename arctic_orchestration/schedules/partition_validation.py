"""Finds partition settings that a schedule's target, or an asset, does not support."""

from collections.abc import Callable, Iterator, Sequence

import dagster as dg

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.partitioning.checks import check, described
from arctic_orchestration.partitioning.key_space import Definition
from arctic_orchestration.partitioning.mapping_forms import mapping_of
from arctic_orchestration.partitioning.maps import DimensionMap
from arctic_orchestration.partitioning.target import (
    PartitionedTarget,
    existing_keys,
    has_dynamic_keys,
    windows_of,
)
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import AnyOf, Leaf, Partitions, Trigger

#: how many windows of time are looked at, and the partitions at most
_LOOKED_AT, _MOST = 70, 1_000


def partition_problems(
    schedule: Schedule,
    *,
    definitions: Sequence[Definition],
    upstream: Callable[[str], Definition | None],
    mappings: Callable[[str], Sequence[dg.PartitionMapping]],
    knows_all: bool = True,
) -> Iterator[InvalidInput]:
    """Yields partition settings of a schedule that its target, or an asset, does not support.

    Args:
        schedule: with a target that exists.
        definitions: the different partitions definitions of the target's parts.
        upstream: the partitions of an asset; None: it has none, or is unknown.
        mappings: the mappings of the target's dependencies on an asset.
        knows_all: whether an asset unknown to ``upstream`` has no partitions.
    """
    field = f"Schedule({schedule.name}).trigger"
    leaves = list(schedule.trigger.places(field))
    if schedule.partitions == "none":
        for place, leaf in leaves:
            if knows_all or upstream(leaf.asset_of_partitions or "") is not None:
                yield from _per(place, leaf, upstream)
        return
    if len(definitions) != 1:
        return
    (definition,) = definitions
    name = schedule.target.job or ", ".join(schedule.target.assets)
    for place, leaf in leaves:
        yield from _clock(place, leaf, schedule, definition, name)
        asset = leaf.asset_of_partitions
        if asset is not None and (knows_all or upstream(asset) is not None):
            yield from _mapping(place, leaf, schedule.trigger, definition, upstream, mappings)


def _per(
    place: str, leaf: Leaf, upstream: Callable[[str], Definition | None]
) -> Iterator[InvalidInput]:
    asset, dimension = leaf.asset_of_partitions, leaf.source.per
    if asset is None or dimension is None:
        return
    definition = upstream(asset)
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        have = "no partitions" if definition is None else described(definition)
        yield InvalidInput(f"{place}.per", dimension, f"no per: {asset} has {have}")
        return
    try:
        DimensionMap(definition, dimension)
    except InvalidInput as error:
        yield InvalidInput(f"{place}.per", dimension, error.expected)


def _clock(
    place: str,
    leaf: Leaf,
    schedule: Schedule,
    definition: Definition,
    target: str,
) -> Iterator[InvalidInput]:
    clock, of_time = leaf.clock, windows_of(definition)
    has = f"{target} has {described(definition)}"
    if clock is None:
        if leaf.kind == "cron":
            yield InvalidInput(
                f"{place}.partition",
                None,
                "last_ended, current, all_missing or a list of keys: with partitions: "
                f"{schedule.partitions} a tick must name a partition, and {has}",
            )
        return
    if not isinstance(clock.partition, str):
        if has_dynamic_keys(definition):
            return
        with dg.partition_loading_context(dynamic_partitions_store=None):
            unknown = [key for key in clock.partition if not definition.has_partition_key(key)]
        if unknown:
            yield InvalidInput(f"{place}.partition", unknown[0], f"one of the partitions: {has}")
        return
    where, value = f"{place}.partition", clock.partition
    if clock.partition == "ended":
        where, value = place, leaf.to_form()[leaf.kind]
    if clock.partition != "all_missing" and of_time is None:
        yield InvalidInput(where, value, f"a target with partitions by windows of time: {has}")
    elif (
        clock.partition == "current" and of_time and of_time.end_offset + max(-clock.offset, 0) < 1
    ):
        yield InvalidInput(
            where,
            value,
            "last_ended, or an end_offset of at least 1 in the partitions definition: Dagster "
            f"has no partition before its window has ended, and {has}",
        )


def _by_common_dimension(source: Definition, target: Definition) -> str:
    """Names the mapping by a dimension that two definitions have in common, if it works."""
    if isinstance(source, dg.MultiPartitionsDefinition) and isinstance(
        target, dg.MultiPartitionsDefinition
    ):
        for name in sorted(
            {*source.partition_dimension_names} & {*target.partition_dimension_names}
        ):
            by_name = mapping_of({"multi": {name: {"dimension": name}}}, field="mapping")
            if check(source, target, by_name) is None:
                return f"; the mapping {{multi: {{{name}: {{dimension: {name}}}}}}} works"
    return ""


def _mapping(
    place: str,
    leaf: Leaf,
    trigger: Trigger,
    definition: Definition,
    upstream: Callable[[str], Definition | None],
    mappings: Callable[[str], Sequence[dg.PartitionMapping]],
) -> Iterator[InvalidInput]:
    asset, form = leaf.asset_of_partitions, leaf.source.mapping
    assert asset is not None
    source = upstream(asset)
    given: Sequence[dg.PartitionMapping | None]
    if form is not None:
        try:
            given = [mapping_of(form, field=f"{place}.mapping")]
        except InvalidDefinition as error:
            yield from error.problems
            return
    else:
        given = mappings(asset) or [None]
    if source is None:
        if form is not None or leaf.needs_all:
            name = "mapping" if form is not None else "count"
            expected = f"no {name}: {asset} has no partitions in this code location"
            yield InvalidInput(f"{place}.{name}", form if form is not None else "all", expected)
        return
    for mapping in given:
        problem = check(source, definition, mapping)
        if problem is not None:
            value = form if form is not None else (type(mapping).__name__ if mapping else None)
            works = _by_common_dimension(source, definition) if value is None else ""
            yield InvalidInput(f"{place}.mapping", value, f"a mapping that works: {problem}{works}")
            return
    # Another branch may satisfy the trigger.
    is_needed = not isinstance(trigger, AnyOf)
    if (
        is_needed
        and isinstance(leaf, Partitions)
        and isinstance(leaf.count, int)
        and leaf.count > 1
    ):
        yield from _count(place, leaf, PartitionedTarget(
            definition,
            upstream=lambda _: source,
            mappings=lambda _: [mapping for mapping in given if mapping is not None],
            dynamic_keys=lambda _: (),
            missing=lambda _: (),
        ))  # fmt: skip


def _count(place: str, leaf: Partitions, target: PartitionedTarget) -> Iterator[InvalidInput]:
    """Refuses a count that no target partition can reach.

    Of windows of time the first seventy are looked at, as the first one may be shorter: until one
    has enough, which most often is the first. Other definitions are left alone if they have too
    many partitions.
    """
    if has_dynamic_keys(target.definition) or not leaf.distinct:
        return
    windows = windows_of(target.definition)
    first = (
        windows.get_next_partition_window(windows.start, respect_bounds=False) if windows else None
    )
    later = first.start + _LOOKED_AT * (first.end - first.start) if first else None
    keys = existing_keys(target.definition, later, lambda _: ())
    if windows is None and len(keys) > _MOST:
        return
    mapping, sources = target.map_of(leaf.asset, leaf.source), 0
    for key in keys[:_MOST]:
        sources = max(sources, len(mapping.sources_of(key, later)))
        # A day may be an hour longer than these.
        if isinstance(leaf.count, int) and leaf.count <= sources + sources // 20:
            return
    if sources:
        expected = f"at most {sources}: so many partitions of {leaf.asset} make one of the target"
        yield InvalidInput(f"{place}.count", leaf.count, expected)
