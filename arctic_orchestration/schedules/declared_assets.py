"""The assets and jobs that a file or an inventory declares, and how they are partitioned.

::

    assets:
      raw/orders: {partitions: {multi: {date: {daily: {start: 2026-01-01}},
                                        region: {static: [emea, amer, apac]}}}}
      summary:
        partitions: {daily: {start: 2026-01-01}}
        deps: [raw/orders]                    # or {raw/orders: {time_window: {start_offset: -1}}}
    jobs:
      rollup: [summary]

Definitions and mappings are Dagster's own; no instance and no code location is needed.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from arctic_orchestration.errors import InvalidDefinition, InvalidInput
from arctic_orchestration.schedules.inventory import Inventory, Partitioning
from arctic_orchestration.schedules.schedule import Schedule, Target

if TYPE_CHECKING:
    import dagster as dg

    from arctic_orchestration.partitioning.maps import DimensionMap
    from arctic_orchestration.partitioning.target import PartitionedTarget

_ASSET_FIELDS = ("partitions", "deps")
_EMPTY: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class DeclaredAsset:
    """An asset, its partitions, and the mapping to each asset it depends on."""

    partitions: "dg.PartitionsDefinition[Any] | None" = None
    #: None: Dagster's default
    deps: "Mapping[str, dg.PartitionMapping | None]" = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeclaredAssets:
    """The assets and jobs that a file declares; other assets are unknown."""

    assets: Mapping[str, DeclaredAsset] = field(default_factory=dict)
    #: the assets that each job makes
    jobs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: the keys of dynamic definitions by their names
    dynamic: Mapping[str, Sequence[str]] = field(default_factory=dict)
    _targets: "dict[str, PartitionedTarget | None]" = field(default_factory=dict)

    def with_those_of(self, others: "DeclaredAssets") -> "DeclaredAssets":
        """Returns the union of both declarations; this one wins where both declare a name."""
        return DeclaredAssets(
            assets={**others.assets, **self.assets},
            jobs={**others.jobs, **self.jobs},
            dynamic={**others.dynamic, **self.dynamic},
        )

    def partitions(
        self, target: Target, materialized: Callable[[str], Collection[str]]
    ) -> "PartitionedTarget | None":
        """Returns the partitions of a target, or None if they are not declared."""
        key = target.to_text()
        if key not in self._targets:
            self._targets[key] = self._find(target, materialized)
        return self._targets[key]

    def groups(self, asset: str, dimension: str) -> "DimensionMap":
        """Returns the keys of an asset by one of their dimensions.

        Errors:
            InvalidInput: the asset's partitions have no such dimension.
        """
        import dagster as dg

        from arctic_orchestration.partitioning.maps import DimensionMap

        found = self.assets.get(asset)
        if found is None or not isinstance(found.partitions, dg.MultiPartitionsDefinition):
            expected = f"a dimension of the partitions of {asset}, as assets: declares them"
            raise InvalidInput("per", dimension, expected)
        return DimensionMap(found.partitions, dimension, self._keys_of)

    def ranges(self, target: Target, keys: Sequence[str]) -> list[list[str]] | None:
        """Returns the partitions of a target in contiguous ranges; None: they are not declared."""
        definition = self._definition(target)
        if definition is None:
            return None
        from arctic_orchestration.partitioning import windows

        return windows.ranges(definition, keys, self._keys_of)

    def problems(self, schedules: Sequence[Schedule]) -> list[InvalidInput]:
        """Returns partition settings of schedules that the declared assets do not support."""
        problems: list[InvalidInput] = []
        for schedule in schedules:
            problems += self._undeclared(schedule)
        if not self.assets or problems:
            return problems
        return [problem for schedule in schedules for problem in self.refused(schedule)]

    def refused(self, schedule: Schedule, *, knows_all: bool = True) -> "Iterator[InvalidInput]":
        """As ``partition_problems``, for the declared assets."""
        from arctic_orchestration.schedules.partition_validation import partition_problems

        definition = self._definition(schedule.target)
        return partition_problems(
            schedule,
            definitions=[definition] if definition is not None else [],
            upstream=self._upstream,
            mappings=partial(self._mappings, schedule.target),
            knows_all=knows_all,
        )

    def _undeclared(self, schedule: Schedule) -> Iterator[InvalidInput]:
        """Returns problems of triggers that require a target's undeclared partitions."""
        if schedule.partitions == "none" or self._definition(schedule.target) is not None:
            return
        target = schedule.target.job or ", ".join(schedule.target.assets)
        for place, leaf in schedule.trigger.places(f"Schedule({schedule.name}).trigger"):
            if leaf.needs_all or leaf.clock is not None:
                yield InvalidInput(
                    place,
                    leaf.to_form()[leaf.kind],
                    f"assets: in the file, or --location, that declares the partitions of {target}",
                )

    def _find(
        self, target: Target, materialized: Callable[[str], Collection[str]]
    ) -> "PartitionedTarget | None":
        definition = self._definition(target)
        if definition is None:
            return None
        from arctic_orchestration.partitioning.target import PartitionedTarget, existing_keys

        def missing(at: datetime) -> list[str]:
            have = [set(materialized(asset)) for asset in self._assets_of(target)]
            keys = existing_keys(definition, at, self._keys_of)
            return [key for key in keys if any(key not in made for made in have)]

        return PartitionedTarget(
            definition,
            upstream=self._upstream,
            mappings=lambda asset: self._mappings(target, asset),
            dynamic_keys=self._keys_of,
            missing=missing,
        )

    def _definition(self, target: Target) -> "dg.PartitionsDefinition[Any] | None":
        found = [
            asset.partitions
            for name in self._assets_of(target)
            if (asset := self.assets.get(name)) is not None and asset.partitions is not None
        ]
        return found[0] if found else None

    def _assets_of(self, target: Target) -> Sequence[str]:
        return self.jobs.get(target.job, ()) if target.job is not None else target.assets

    def _upstream(self, asset: str) -> "dg.PartitionsDefinition[Any] | None":
        found = self.assets.get(asset)
        return None if found is None else found.partitions

    def _mappings(self, target: Target, asset: str) -> "list[dg.PartitionMapping]":
        deps = [self.assets[name].deps for name in self._assets_of(target) if name in self.assets]
        given = (of.get(asset) for of in deps)
        return [mapping for mapping in given if mapping is not None]

    def _keys_of(self, dynamic: str) -> Sequence[str]:
        return self.dynamic.get(dynamic, ())


def read_declared(document: object) -> DeclaredAssets:
    """Returns the ``assets:`` and ``jobs:`` of a loaded file; both are optional.

    Errors:
        InvalidDefinition: names every field, its value and what was expected.
    """
    if not isinstance(document, Mapping):
        return DeclaredAssets()
    given, jobs = document.get("assets", _EMPTY), document.get("jobs", _EMPTY)
    problems: list[InvalidInput] = []
    if not isinstance(given, Mapping):
        problems.append(InvalidInput("assets", given, "a mapping of asset names"))
        given = _EMPTY
    if not isinstance(jobs, Mapping):
        problems.append(InvalidInput("jobs", jobs, "a mapping of job names"))
        jobs = _EMPTY
    assets: dict[str, DeclaredAsset] = {}
    dynamic: dict[str, Sequence[str]] = {}
    for name, form in given.items():
        place = f"assets.{name}"
        try:
            assets[str(name)] = _asset(form, place, dynamic)
        except InvalidDefinition as error:
            problems += error.problems
        except InvalidInput as error:
            problems.append(error)
    for name, made in jobs.items():
        if not (isinstance(made, list) and all(isinstance(asset, str) for asset in made)):
            problems.append(InvalidInput(f"jobs.{name}", made, "a list of assets"))
            continue
        problems += [
            InvalidInput(f"jobs.{name}", asset, "an asset that assets: declares")
            for asset in made
            if asset not in assets
        ]
    if problems:
        raise InvalidDefinition(problems)
    return DeclaredAssets(assets=assets, jobs=dict(jobs), dynamic=dynamic)


def problems_in(inventory: Inventory, schedule: Schedule) -> list[InvalidInput]:
    """Returns partition settings that the code location of an inventory does not support.

    Only what the inventory has is judged. User-defined partitions and mappings, and those of other
    locations, are unknown.
    """
    sources = {leaf.asset_of_partitions for leaf in schedule.trigger.leaves} - {None}
    grouped = any(leaf.source.per is not None for leaf in schedule.trigger.leaves)
    if schedule.partitions == "none" and not grouped:
        return []
    target = schedule.target
    made = target.assets if target.job is None else inventory.job_assets.get(target.job, ())
    assets = {name: inventory.assets.get(name) for name in {*sources, *made} if name is not None}
    known = declared_by(replace(inventory, assets=assets))
    return list(known.refused(schedule, knows_all=False))


def declared_by(inventory: Inventory) -> DeclaredAssets:
    """Returns the assets and jobs of a code location from its inventory.

    The inventory lacks dynamic partitions and user-defined definitions and mappings: assets with
    these are unknown.
    """
    from arctic_orchestration.partitioning.mapping_forms import mapping_of

    def deps_of(name: str) -> "dict[str, dg.PartitionMapping | None]":
        forms = {of: json.loads(form) for of, form in inventory.mappings.get(name, {}).items()}
        return {
            of: mapping_of(form, field=f"{name}.deps.{of}")
            for of, form in forms.items()
            if form is not None
        }

    def definition_of(partitioning: Partitioning | None) -> "dg.PartitionsDefinition[Any] | None":
        space = None if partitioning is None else partitioning.key_space()
        return None if space is None else space.definition

    has_own = {name for name, of in inventory.mappings.items() if "null" in of.values()}
    return DeclaredAssets(
        assets={
            name: DeclaredAsset(partitions=definition_of(of), deps=deps_of(name))
            for name, of in inventory.assets.items()
            if name not in has_own
        },
        jobs=inventory.job_assets,
    )


def _asset(form: object, place: str, dynamic: dict[str, Sequence[str]]) -> DeclaredAsset:
    # Importing Dagster takes a second, and most files declare no assets.
    from arctic_orchestration.partitioning.forms import definition_of, dynamic_keys_of
    from arctic_orchestration.partitioning.mapping_forms import mapping_of

    if form is None:
        form = {}
    if not isinstance(form, Mapping):
        raise InvalidInput(place, form, f"a mapping of {', '.join(_ASSET_FIELDS)}")
    for name in form:
        if name not in _ASSET_FIELDS:
            raise InvalidInput(f"{place}.{name}", form[name], "no such field")
    partitions = form.get("partitions")
    definition = None
    if partitions is not None:
        definition = definition_of(partitions, field=f"{place}.partitions")
        dynamic.update(dynamic_keys_of(partitions, field=f"{place}.partitions"))
    deps = form.get("deps", [])
    if isinstance(deps, list):
        deps = dict.fromkeys(deps)
    if not isinstance(deps, Mapping) or not all(isinstance(name, str) for name in deps):
        raise InvalidInput(f"{place}.deps", deps, "a list of assets, or a mapping to mappings")
    return DeclaredAsset(
        partitions=definition,
        deps={
            asset: None if mapping is None else mapping_of(mapping, field=f"{place}.deps.{asset}")
            for asset, mapping in deps.items()
        },
    )
