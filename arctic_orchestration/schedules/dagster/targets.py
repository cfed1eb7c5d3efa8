"""Finds the jobs, assets and partitions of the code location that a schedule names."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import dagster as dg

from arctic_orchestration.dagster_internals import AssetGraph
from arctic_orchestration.errors import DatabaseUnavailable, InvalidDefinition, InvalidInput
from arctic_orchestration.partitioning import windows
from arctic_orchestration.partitioning.checks import described
from arctic_orchestration.partitioning.key_space import store_of
from arctic_orchestration.partitioning.maps import DimensionMap
from arctic_orchestration.partitioning.target import PartitionedTarget
from arctic_orchestration.schedules import cycles
from arctic_orchestration.schedules.dagster.partitioned_targets import (
    definition_of_asset,
    definitions_of,
    definitions_of_assets,
    partitioned_target,
    problem_without_partition,
    problems_of,
)
from arctic_orchestration.schedules.mismatches import check_fields
from arctic_orchestration.schedules.schedule import Schedule, Target
from arctic_orchestration.schedules.triggers import Leaf

#: how often a look-up that fails is the storage's failure, for which a tick may end
_TRIES = 20


def asset_key(name: str) -> dg.AssetKey:
    """Returns the key of an asset given as ``raw/flights``."""
    return dg.AssetKey.from_user_string(name)


def resolved(schedule: Schedule, graph: AssetGraph) -> Schedule:
    """Returns the schedule with its target as names.

    Errors:
        InvalidDefinition: the selection is empty, or names something unknown.
    """
    if not schedule.target.is_selection:
        if schedule.target.given is None:
            return schedule
        return schedule.model_copy(update={"target": Target(job=schedule.target.job)})
    field, given = f"Schedule({schedule.name}).target", schedule.target.given
    try:
        keys = dg.AssetSelection.from_coercible(given).resolve(graph)
    except dg.DagsterInvalidSubsetError as error:
        expected = f"a selection of assets of this code location ({error})"
        raise InvalidDefinition([InvalidInput(field, str(given), expected)]) from error
    if not keys:
        raise InvalidDefinition([InvalidInput(field, str(given), "at least one asset")])
    names = tuple(sorted(key.to_user_string() for key in keys))
    return schedule.model_copy(update={"target": Target.parse({"assets": names}, field=field)})


def unknown_assets(schedules: Iterable[Schedule], graph: AssetGraph) -> list[InvalidInput]:
    """Returns names in asset fields of the schedules that are no asset of the location."""
    keys = set(graph.get_all_asset_keys())
    known = {key.to_user_string() for key in keys}
    # Arrivals are matched by name. A look-up by key would find another asset, or none.
    other = {name for key in keys if asset_key(name := key.to_user_string()) not in keys}
    executable = {key.to_user_string() for key in graph.executable_asset_keys} - other
    problems = []
    for schedule in schedules:
        field = f"Schedule({schedule.name})"
        for asset in schedule.target.assets:
            if asset not in executable:
                expected = f"an asset to run, {_some(executable)}"
                if asset in other and dg.AssetKey(asset) in graph.executable_asset_keys:
                    expected = _other_key(asset)
                problems.append(InvalidInput(f"{field}.target.assets", asset, expected))
        for place, leaf in schedule.trigger.places(f"{field}.trigger"):
            for name, asset in leaf.asset_fields().items():
                if asset in other and _looks_up_partitions(leaf):
                    problems.append(InvalidInput(f"{place}.{name}", asset, _other_key(asset)))
                elif asset not in known:
                    expected = f"one of {_some(known)}"
                    problems.append(InvalidInput(f"{place}.{name}", asset, expected))
        for number, constraint in enumerate(schedule.constraints):
            # A name without a slash may be that of a job, which is not known here.
            for parent in constraint.parents_needed:
                if "/" in parent and parent not in known:
                    path = f"{field}.constraints[{number}].{constraint.kind}.parents"
                    problems.append(InvalidInput(path, parent, f"one of {_some(known)}"))
            path = f"{field}.constraints[{number}].{constraint.kind}"
            for asset in constraint.asset_fields:
                if asset not in known:
                    expected = f"one of {_some(known)}"
                    problems.append(InvalidInput(f"{path}.assets", asset, expected))
        for path, check, assets in check_fields(schedule):
            # Checks of what is only named here may be defined in another location.
            if executable.issuperset(assets):
                problems += _unknown_check(path, check, assets, graph)
    return problems


def _looks_up_partitions(leaf: Leaf) -> bool:
    """Returns whether a leaf has settings that need the partitions definition of its asset."""
    return leaf.needs_all or leaf.source.per is not None or leaf.source.mapping is not None


def _other_key(asset: str) -> str:
    """Returns the problem of an asset name whose key is one part with a slash."""
    return f"the key {asset.split('/')}: the location has [{asset!r}], one part"


def _unknown_check(
    field: str, check: str, assets: Sequence[str], graph: AssetGraph
) -> list[InvalidInput]:
    """Returns the problem of a check that none of some assets has."""
    known = {key.name for key in graph.asset_check_keys if key.asset_key.to_user_string() in assets}
    if check in known:
        return []
    which = f"one of {_some(known)}" if known else "none is defined"
    expected = f"a check of {' or '.join(assets)}: {which}"
    return [InvalidInput(field, check, expected)]


def unknown_parents(
    schedules: Iterable[Schedule], repository: dg.RepositoryDefinition
) -> list[InvalidInput]:
    """Returns parents in ``fresh`` constraints that are neither an asset nor a job."""
    known = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    known.update(repository.job_names)
    return [
        InvalidInput(
            f"Schedule({schedule.name}).constraints[{number}].{constraint.kind}.parents",
            name,
            f"one of {_some(known)}",
        )
        for schedule in schedules
        for number, constraint in enumerate(schedule.constraints)
        for name in constraint.parents_needed
        if name not in known
    ]


def job_fields(schedules: Iterable[Schedule]) -> list[tuple[str, str]]:
    """Returns the fields of schedules with a job of their own location, and the job."""
    named = []
    for schedule in schedules:
        field = f"Schedule({schedule.name})"
        if schedule.target.job is not None:
            named.append((f"{field}.target.job", schedule.target.job))
        for place, leaf in schedule.trigger.places(f"{field}.trigger"):
            named.extend((f"{place}.{name}", job) for name, job in leaf.job_name_fields().items())
        for number, constraint in enumerate(schedule.constraints):
            path = f"{field}.constraints[{number}].{constraint.kind}.jobs"
            named.extend((path, job) for job in constraint.job_fields)
    return named


def impossible_runs(schedules: Sequence[Schedule], graph: AssetGraph) -> list[InvalidInput]:
    """Returns schedules whose ``partitions`` lead to runs that Dagster refuses or fails."""
    problems: list[InvalidInput] = []
    for schedule in schedules:
        names = schedule.target.assets
        if not names:
            continue
        keys = [asset_key(asset) for asset in names]
        problems += _incomplete(schedule, graph, keys)
        if schedule.partitions != "none" and not any(graph.get(key).is_partitioned for key in keys):
            expected = f"none: {', '.join(names)} has no partitions"
            field = f"Schedule({schedule.name}).partitions"
            problems.append(InvalidInput(field, schedule.partitions, expected))
        elif without := problem_without_partition(schedule, graph, keys):
            problems.append(without)
        else:
            definitions = definitions_of_assets(graph, names)
            if schedule.partitions != "none" and len(definitions) > 1:
                have = f"{', '.join(names)} have {' and '.join(map(described, definitions))}"
                expected = f"none, or a target whose assets have the same partitions: {have}"
                field = f"Schedule({schedule.name}).partitions"
                problems.append(InvalidInput(field, schedule.partitions, expected))
            problems.extend(problems_of(schedule, graph, definitions, names))
    return problems


def _incomplete(
    schedule: Schedule, graph: AssetGraph, keys: Sequence[dg.AssetKey]
) -> Iterator[InvalidInput]:
    """Yields assets that no run makes, and parts of functions that cannot be subset."""
    for key in keys:
        if not graph.get(key).is_executable:
            field, name = f"Schedule({schedule.name}).target.assets", key.to_user_string()
            yield InvalidInput(field, name, "an asset to run: no function makes it")
            continue
        others = graph.get(key).execution_set_asset_keys - set(keys)
        if others:
            names = ", ".join(sorted(other.to_user_string() for other in others))
            expected = f"{names} as well: one function makes them, and cannot run for some of them"
            field = f"Schedule({schedule.name}).target.assets"
            yield InvalidInput(field, key.to_user_string(), expected)


def endless_cycles(
    schedules: Iterable[Schedule], repository: dg.RepositoryDefinition
) -> list[InvalidInput]:
    """Returns the endless cycles of schedules, including the assets of their jobs."""
    named = [resolved(schedule, repository.asset_graph) for schedule in schedules]
    jobs = {schedule.target.job for schedule in named} & set(repository.job_names)
    made = {job: assets_made(repository.get_job(job)) for job in jobs if job is not None}
    return list(cycles.problems(named, job_assets=made))


def assets_made(job: dg.JobDefinition) -> list[str]:
    """Returns the assets that a run of the job makes, by name."""
    return sorted(key.to_user_string() for key in job.asset_layer.selected_asset_keys)


class RepositoryTargets:
    """The targets of a loaded code location, for the engine."""

    def __init__(
        self, repository: dg.RepositoryDefinition, instance: Callable[[], dg.DagsterInstance]
    ) -> None:
        """``instance`` is called only to look up dynamic or missing partitions."""
        self._repository = repository
        self._partitioned: dict[str, PartitionedTarget | None] = {}
        self._make_instance = instance
        #: how often in a row each look-up has failed
        self._failures: Counter[tuple[str, ...]] = Counter()

    def renew(self, instance: Callable[[], dg.DagsterInstance]) -> None:
        """Uses another instance from now on; keeps what is known about partitions."""
        self.__dict__.pop("_instance", None)
        self._make_instance = instance

    @cached_property
    def _instance(self) -> dg.DagsterInstance:
        return self._make_instance()

    def problem(self, target: Target, start: str | None, end: str | None) -> str | None:
        """Returns why Dagster would refuse a run of the target for these partitions, or None.

        Checked in advance, because one refused request fails all of a tick.
        """
        if target.job is not None and not self._repository.has_job(target.job):
            return f"job {target.job} is not in this code location"
        graph = self._repository.asset_graph
        for asset in target.assets:
            key = asset_key(asset)
            if not graph.has(key) or not graph.get(key).is_executable:
                return f"asset {asset} is not in this code location"
        partitions = {str(partition) for partition in (start, end) if partition is not None}
        if not partitions:
            return None
        name = target.job or ", ".join(target.assets)
        definitions = definitions_of(self._repository, target)
        if len(definitions) != 1:
            found = "no partitions" if not definitions else "partitions of several kinds"
            return f"{name} has {found}, and a run of {min(partitions)} was requested"
        if isinstance(definitions[0], dg.DynamicPartitionsDefinition):
            return self._lost_end(definitions[0], start, end)
        # Dynamic keys that are missing are added with the run.
        with dg.partition_loading_context(dynamic_partitions_store=store_of(None)):
            for partition in sorted(partitions):
                if not definitions[0].has_partition_key(partition):
                    return f"partition {partition!r} is none of the partitions of {name}"
        return None

    def _lost_end(
        self, definition: dg.DynamicPartitionsDefinition, start: str | None, end: str | None
    ) -> str | None:
        """Returns why a range of dynamic partitions is none any more, or None.

        Dagster orders them as they were added: one that is added again is the last.
        """
        for key in (start, end) if start != end and definition.name else ():
            if not self._instance.has_dynamic_partition(str(definition.name), str(key)):
                whole = f"the range {start} to {end} begins or ends"
                return f"partition {key!r} was deleted, with which {whole}"
        return None

    def exists(self, target: Target) -> bool:
        """Returns whether the location has the job, or at least one of the assets."""
        if target.job is not None:
            return self._repository.has_job(target.job)
        graph = self._repository.asset_graph
        return any(graph.has(asset_key(asset)) for asset in target.assets)

    def missing_dynamic(self, target: Target, keys: Sequence[str]) -> Mapping[str, list[str]]:
        """Returns what the dynamic partitions of the target, or of its dimensions, lack by name."""
        definition = self.partitions_definition(target)
        given: list[tuple[Any, Iterable[str]]] = [(definition, keys)]
        if isinstance(definition, dg.MultiPartitionsDefinition):
            parts = [definition.get_partition_key_from_str(key).keys_by_dimension for key in keys]
            given = [
                (each.partitions_def, dict.fromkeys(part[each.name] for part in parts))
                for each in definition.partitions_defs
            ]
        has = self._instance.has_dynamic_partition
        return {
            part.name: [key for key in of_part if not has(part.name, key)]
            for part, of_part in given
            if isinstance(part, dg.DynamicPartitionsDefinition) and part.name
        }

    def ranges(self, target: Target, partitions: Sequence[str]) -> list[list[str]]:
        """Returns the partitions in contiguous ranges of the target; unknown ones by themselves."""
        definition = self.partitions_definition(target)
        if definition is None:
            return [list(partitions)]
        return windows.ranges(definition, partitions, self._keys_of)

    def partitions(self, target: Target) -> PartitionedTarget | None:
        """Returns the partitions of a target, or None."""
        key = target.to_text()
        if key not in self._partitioned:
            self._partitioned[key] = partitioned_target(
                self._repository, target, self._keys_of, self._materialized
            )
        return self._partitioned[key]

    def blocking_checks(self, asset: str) -> Collection[str] | None:
        """Returns the asset's checks that block downstream assets; None: not of this location."""
        graph = self._repository.asset_graph
        key = asset_key(asset)
        if not graph.has(key):
            return None
        checks = [graph.get(check) for check in graph.get_check_keys_for_assets({key})]
        return {check.key.name for check in checks if check.blocking}

    def groups(self, asset: str, dimension: str) -> DimensionMap:
        """Returns the keys of an asset by one of their dimensions.

        Errors:
            InvalidInput: the asset's partitions have no such dimension.
        """
        definition = definition_of_asset(self._repository.asset_graph, asset)
        if not isinstance(definition, dg.MultiPartitionsDefinition):
            raise InvalidInput("per", dimension, f"a dimension of the partitions of {asset}")
        return DimensionMap(definition, dimension, self._keys_of)

    def _keys_of(self, dynamic: str) -> Sequence[str]:
        with self._translated("keys", dynamic):
            return self._instance.get_dynamic_partitions(dynamic)

    def _materialized(self, asset: str) -> Collection[str]:
        with self._translated("materialized", asset):
            return self._instance.get_materialized_partitions(asset_key(asset))

    @contextmanager
    def _translated(self, *look_up: str) -> Iterator[None]:
        """Translates the errors of a look-up, if it did not fail in all of its last tries."""
        try:
            yield
        except Exception as error:
            self._failures[look_up] += 1
            if self._failures[look_up] > _TRIES:
                # It is not the storage that is away: other schedules must not wait for it.
                raise
            # Besides the driver's errors, dagster-postgres raises errors of its own.
            raise DatabaseUnavailable(f"Dagster's storage did not answer: {error}") from error
        self._failures.pop(look_up, None)

    def partitions_definition(self, target: Target) -> dg.PartitionsDefinition[Any] | None:
        """Returns the target's partitions definition, or None."""
        return next(iter(definitions_of(self._repository, target)), None)


def _some(names: Iterable[str]) -> str:
    shown = sorted(name for name in names if not name.startswith(("__", "arctic/")))
    text = ", ".join(shown[:10])
    return text + (f" and {len(shown) - 10} others" if len(shown) > 10 else "") or "nothing at all"
