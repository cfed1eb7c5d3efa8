"""Takes the inventory of a loaded code location."""

import json
import logging
from typing import Any

import dagster as dg

from arctic_orchestration.dagster_internals import AssetGraph
from arctic_orchestration.partitioning.forms import form_of
from arctic_orchestration.partitioning.mapping_forms import form_of_mapping
from arctic_orchestration.schedules.dagster.targets import assets_made
from arctic_orchestration.schedules.inventory import Inventory, Partitioning

#: More static partitions are not stored: each inventory is one text in the database.
_MOST_KEYS = 10_000
_log = logging.getLogger(__name__)
#: the longest form of a definition that is stored, in characters
_LONGEST_FORM = 200_000


def inventory_of(repository: dg.RepositoryDefinition) -> Inventory:
    """Returns the jobs and assets of a repository; costs no query."""
    graph = repository.asset_graph
    known: dict[Any, Partitioning | None] = {None: None}
    assets: dict[str, Partitioning | None] = {}
    for key in graph.get_all_asset_keys():
        assets[key.to_user_string()] = _known(graph.get(key).partitions_def, known)
    jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
    made = {job.name: tuple(assets_made(job)) for job in jobs}
    return Inventory(
        jobs=frozenset(made),
        job_assets={job: names for job, names in made.items() if names},
        assets=assets,
        job_partitions={
            job.name: found
            for job in jobs
            if (found := _known(job.partitions_def, known)) is not None
        },
        executable=frozenset(key.to_user_string() for key in graph.executable_asset_keys),
        mappings=_mappings(graph),
        checks=_checks(graph),
        policies=frozenset(
            key.to_user_string()
            for key in graph.get_all_asset_keys()
            if graph.get(key).freshness_policy is not None
        ),
    )


def _checks(graph: AssetGraph) -> dict[str, tuple[str, ...]]:
    """Returns the names of the checks of each asset that has some."""
    found: dict[str, tuple[str, ...]] = {}
    for key in sorted(graph.asset_check_keys, key=lambda key: (key.asset_key, key.name)):
        asset = key.asset_key.to_user_string()
        found[asset] = (*found.get(asset, ()), key.name)
    return found


def _mappings(graph: AssetGraph) -> dict[str, dict[str, str]]:
    """Returns the mappings that assets declare on their dependencies."""
    found: dict[str, dict[str, str]] = {}
    for key in sorted(graph.get_all_asset_keys()):
        declared = graph.get(key).partition_mappings
        if declared:
            found[key.to_user_string()] = {
                parent.to_user_string(): json.dumps(form_of_mapping(mapping))
                for parent, mapping in sorted(declared.items())
            }
    return found


def _known(
    definition: dg.PartitionsDefinition[Any] | None, known: dict[Any, Partitioning | None]
) -> Partitioning | None:
    # A class of the user may ask a service for its keys, which must not stop all schedules.
    try:
        if definition not in known:
            known[definition] = _partitioning(definition)
        return known[definition]
    except Exception as error:
        _log.warning("partitions of %s are not known: %r", type(definition).__name__, error)
        return None


def _partitioning(definition: dg.PartitionsDefinition[Any] | None) -> Partitioning | None:
    if isinstance(definition, dg.StaticPartitionsDefinition):
        keys = tuple(definition.get_partition_keys())
        return Partitioning(keys=keys) if len(keys) <= _MOST_KEYS else None
    form = None if definition is None else form_of(definition)
    text = None if form is None else json.dumps(form, separators=(",", ":"))
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return Partitioning(format=definition.fmt, form=text)
    if text is None or isinstance(definition, dg.DynamicPartitionsDefinition):
        # The keys of dynamic definitions are in Dagster's storage.
        return None
    return Partitioning(form=text) if len(text) <= _LONGEST_FORM else None
