"""The partitions of targets in a loaded code location, and checks of schedules against them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from arctic_orchestration.dagster_internals import AssetGraph
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.partitioning.key_space import DynamicKeys
from arctic_orchestration.partitioning.target import PartitionedTarget, existing_keys
from arctic_orchestration.schedules.partition_validation import partition_problems
from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.schedules.triggers import Elapsed, Freshness, Requests


def partitioned_target(
    repository: dg.RepositoryDefinition,
    target: Target,
    dynamic_keys: DynamicKeys,
    materialized: Callable[[str], Collection[str]],
) -> PartitionedTarget | None:
    """Returns the partitions of a target, or None if it has none or its parts differ."""
    definitions = definitions_of(repository, target)
    if len(definitions) != 1:
        return None
    (definition,) = definitions
    graph = repository.asset_graph
    assets = assets_of(repository, target)

    def missing(at: datetime) -> list[str]:
        keys = existing_keys(definition, at, dynamic_keys)
        have = [set(materialized(asset)) for asset in assets]
        return [key for key in keys if not have or any(key not in made for made in have)]

    return PartitionedTarget(
        definition,
        upstream=lambda asset: definition_of_asset(graph, asset),
        mappings=lambda asset: mappings_of(graph, assets, asset),
        dynamic_keys=dynamic_keys,
        missing=missing,
    )


def definitions_of(
    repository: dg.RepositoryDefinition, target: Target
) -> list[dg.PartitionsDefinition[Any]]:
    """Returns the different partitions definitions of a target's parts."""
    if target.job is not None:
        definition = repository.get_job(target.job).partitions_def
        return [definition] if definition is not None else []
    return definitions_of_assets(repository.asset_graph, target.assets)


def definitions_of_assets(
    graph: AssetGraph, assets: Sequence[str]
) -> list[dg.PartitionsDefinition[Any]]:
    """Returns the different partitions definitions of some assets."""
    found: list[dg.PartitionsDefinition[Any]] = []
    for asset in assets:
        definition = definition_of_asset(graph, asset)
        if definition is not None and definition not in found:
            found.append(definition)
    return found


def definition_of_asset(graph: AssetGraph, asset: str) -> dg.PartitionsDefinition[Any] | None:
    """Returns an asset's partitions definition; None: it has none, or the location lacks it."""
    key = dg.AssetKey.from_user_string(asset)
    return graph.get(key).partitions_def if graph.has(key) else None


def assets_of(repository: dg.RepositoryDefinition, target: Target) -> list[str]:
    """Returns the assets that a run of the target makes."""
    if target.job is None:
        return list(target.assets)
    selected = repository.get_job(target.job).asset_layer.executable_asset_keys
    return sorted(key.to_user_string() for key in selected)


def mappings_of(
    graph: AssetGraph, assets: Sequence[str], upstream: str
) -> list[dg.PartitionMapping]:
    """Returns the mappings on the dependencies of some assets on another."""
    parent = dg.AssetKey.from_user_string(upstream)
    keys = [dg.AssetKey.from_user_string(asset) for asset in assets]
    return [
        graph.get_partition_mapping(key, parent)
        for key in keys
        if graph.has(key) and parent in graph.get(key).parent_keys and key != parent
    ]


def without_partitions(
    schedule: Schedule, repository: dg.RepositoryDefinition, *, some: bool = False
) -> list[str]:
    """Returns what a trigger names, if its runs have no partitions to make jobs for.

    Arrivals from outside may name a partition of the target, whatever their asset has. So may the
    tags of a run: this is not refused. ``some``: also if another part of the trigger has some.
    """
    if schedule.partitions == "none":
        return []
    graph = repository.asset_graph
    named: set[str] = set()
    for leaf in schedule.trigger.leaves:
        if isinstance(leaf, (Elapsed, Freshness)):
            continue
        names = leaf.job_name_fields().values()
        jobs = [repository.get_job(name) for name in names if repository.has_job(name)]
        assets = list(leaf.asset_fields().values())
        made = [key.to_user_string() for job in jobs for key in job.asset_layer.selected_asset_keys]
        arrive = {dg.AssetKey.from_user_string(asset) for asset in assets}
        if (
            leaf.clock is not None
            or not (jobs or assets)
            or arrive - graph.executable_asset_keys
            or any(job.partitions_def for job in jobs)
            or definitions_of_assets(graph, assets + made)
        ):
            if not some:
                return []
        else:
            named.update(assets, names)
    return sorted(named)


def problems_of_job(schedule: Schedule, repository: dg.RepositoryDefinition) -> list[InvalidInput]:
    """As :func:`partition_problems`, for a target that is a job of a loaded location."""
    if schedule.target.job is None or not repository.has_job(schedule.target.job):
        return []
    selected = repository.get_job(schedule.target.job).asset_layer.executable_asset_keys
    if problem := problem_without_partition(schedule, repository.asset_graph, selected):
        return [problem]
    assets = assets_of(repository, schedule.target)
    found = definitions_of(repository, schedule.target)
    if not found and schedule.partitions != "none":
        field, expected = f"Schedule({schedule.name}).partitions", "none: the job has no partitions"
        return [InvalidInput(field, schedule.partitions, expected)]
    return problems_of(schedule, repository.asset_graph, found, assets)


def problem_without_partition(
    schedule: Schedule, graph: AssetGraph, assets: Iterable[dg.AssetKey]
) -> InvalidInput | None:
    """Returns the problem of a target whose runs get no partition and fail.

    Dagster looks up the versions of a partitioned asset's partitioned parents by the partition of
    the run, and fails a run without one. A run of ``requests`` may get one from its request.
    """
    if schedule.partitions != "none" or isinstance(schedule.trigger, Requests):
        return None
    for asset in sorted(assets):
        node = graph.get(asset)
        parents = [key for key in node.parent_keys if graph.get(key).is_partitioned]
        if node.is_partitioned and parents:
            expected = (
                f"each or range: {asset.to_user_string()} and its parent "
                f"{min(parents).to_user_string()} are partitioned, "
                "and Dagster fails an unpartitioned run of such an asset"
            )
            return InvalidInput(f"Schedule({schedule.name}).partitions", "none", expected)
    return None


def problems_of(
    schedule: Schedule,
    graph: AssetGraph,
    definitions: Sequence[dg.PartitionsDefinition[Any]],
    assets: Sequence[str],
) -> list[InvalidInput]:
    """As :func:`partition_problems`, for a target that makes some assets of a graph."""
    return list(
        partition_problems(
            schedule,
            definitions=definitions,
            upstream=lambda asset: definition_of_asset(graph, asset),
            mappings=lambda asset: mappings_of(graph, assets, asset),
        )
    )
