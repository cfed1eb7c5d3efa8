"""Why a mapping between two partitions definitions cannot work."""

import dagster as dg

from arctic_orchestration.dagster_internals import infer_partition_mapping
from arctic_orchestration.partitioning.key_space import FAR, Definition, KeySpace, store_of

#: The maximum number of shown keys of a static definition.
_SHOWN = 5


def check(
    upstream: Definition, target: Definition, mapping: dg.PartitionMapping | None = None
) -> str | None:
    """Returns why no partition of ``target`` can depend on ``upstream``; None: one can.

    ``mapping`` None: Dagster's default for the two. A mapping is refused if Dagster refuses it, or
    if it relates no two partitions. The text describes both definitions.
    """
    why = _why(upstream, target, infer_partition_mapping(mapping, target, upstream))
    if why is None:
        return None
    return f"{described(upstream)} cannot be mapped onto {described(target)}: {why}"


def described(definition: Definition) -> str:
    """Formats the definition for people: ``daily partitions from 2026-01-01 (Europe/Berlin)``."""
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        kind = definition.schedule_type
        rhythm = kind.value.lower() if kind else f"cron {definition.cron_schedule!r}"
        start = f"{definition.start:%Y-%m-%d %H:%M}".removesuffix(" 00:00")
        end = (
            f" to {definition.end:%Y-%m-%d %H:%M}".removesuffix(" 00:00") if definition.end else ""
        )
        return f"{rhythm} partitions from {start}{end} ({definition.timezone})"
    if isinstance(definition, dg.StaticPartitionsDefinition):
        try:
            keys = definition.get_partition_keys()
        except Exception as error:
            # A class of the user may ask a service, which does not answer.
            return f"partitions that cannot be listed now ({error})"
        more = f" and {len(keys) - _SHOWN} others" if len(keys) > _SHOWN else ""
        return f"the partitions {', '.join(keys[:_SHOWN])}{more}"
    if isinstance(definition, dg.DynamicPartitionsDefinition):
        return f"dynamic partitions {definition.name}" if definition.name else "dynamic partitions"
    if isinstance(definition, dg.MultiPartitionsDefinition):
        dimensions = " and ".join(
            f"{dimension.name} ({described(dimension.partitions_def)})"
            for dimension in definition.partitions_defs
        )
        return f"partitions by {dimensions}"
    return f"partitions of {type(definition).__name__}"


def _why(upstream: Definition, target: Definition, mapping: dg.PartitionMapping) -> str | None:
    try:
        mapping.validate_partition_mapping(upstream, target)
    except Exception as error:
        # Dagster raises errors of definitions, of checks and of values.
        return str(error).strip() or type(error).__name__
    kind = type(mapping)
    if kind is dg.IdentityPartitionMapping:
        return _no_common_key(upstream, target)
    if isinstance(mapping, dg.TimeWindowPartitionMapping) and kind is dg.TimeWindowPartitionMapping:
        with dg.partition_loading_context(FAR):
            reached = mapping.get_downstream_partitions_for_partitions(
                upstream.subset_with_all_partitions(), upstream, target
            )
        return "their time windows have nothing in common" if reached.is_empty else None
    if isinstance(mapping, dg.SpecificPartitionsPartitionMapping):
        space = KeySpace(upstream, store_of(None))
        missing = [key for key in mapping.partition_keys if not space.has(key)]
        return f"{missing[0]!r} is none of the first partitions" if missing else None
    if isinstance(mapping, dg.MultiToSingleDimensionPartitionMapping):
        name, several = mapping.partition_dimension_name, upstream
        if not isinstance(several, dg.MultiPartitionsDefinition):
            several = target
        known = [one.name for one in getattr(several, "partitions_defs", ())]
        if name and name not in known:
            return f"no dimension is called {name}"
    if isinstance(mapping, dg.MultiPartitionMapping | dg.MultiToSingleDimensionPartitionMapping):
        for dependency in mapping.get_dimension_dependencies(upstream, target):
            one, other = dependency.upstream_dimension_name, dependency.downstream_dimension_name
            why = _why(
                _dimension(upstream, one), _dimension(target, other), dependency.partition_mapping
            )
            if why is not None:
                return f"{one or 'the keys'} onto {other or 'the keys'}: {why}"
    return None


def _dimension(definition: Definition, name: str | None) -> Definition:
    """Returns the partitions of a dimension; without a name, those that have one only."""
    if name is None:
        return definition
    assert isinstance(definition, dg.MultiPartitionsDefinition)
    return definition.get_partitions_def_for_dimension(name)


def _no_common_key(upstream: Definition, target: Definition) -> str | None:
    """Returns why the definitions have no common key, as far as that is known."""
    spaces = KeySpace(upstream, store_of(None)), KeySpace(target, store_of(None))
    if upstream == target:
        return None
    if all(isinstance(space.definition, dg.StaticPartitionsDefinition) for space in spaces):
        common = set(spaces[0].existing(None)) & set(spaces[1].existing(None))
        return None if common else "they have no key in common, and keys are mapped to themselves"
    if all(space.dimensions for space in spaces):
        one, other = (list(space.dimensions.items()) for space in spaces)
        for (name, first), (other_name, second) in zip(one, other, strict=True):
            if type(first.definition) is not type(second.definition):
                return f"the keys of {name} are not those of {other_name}"
            why = _no_common_key(first.definition, second.definition)
            if why is not None:
                return f"{name} and {other_name}: {why}"
    return None
