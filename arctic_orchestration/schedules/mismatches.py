"""Finds what in schedules does not match the code: unknown names, and settings that never fit.

A missing target can never run. A missing job or asset of the own location has no runs, so a trigger
on them waits forever. Both are refused. An asset or a check may be reported from outside without a
definition, and another location may be deployed later: these only get remarks. So does a target
with partitions whose runs get none, because its function may not read them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.event_log.event import ANY_LOCATION
from arctic_orchestration.schedules.constraints import ChecksPassed, Idle
from arctic_orchestration.schedules.declared_assets import problems_in
from arctic_orchestration.schedules.inventory import Inventory, assets_of, inventories
from arctic_orchestration.schedules.inventory import store as keep
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import near
from arctic_orchestration.schedules.mismatch_candidates import (
    as_in_events,
    by_key,
    by_target,
    makes_none,
)
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_cycles import stored_cycles
from arctic_orchestration.schedules.triggers import (
    Check,
    Elapsed,
    Freshness,
    Partitions,
    Requests,
    Run,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """A name that no inventory has, or a setting that what it has does not fit."""

    problem: InvalidInput
    #: whether a schedule that names it is refused
    refused: bool


def mismatches(
    schedule: Schedule, location: str, known: Mapping[str, Inventory]
) -> Iterator[Mismatch]:
    """Yields what of a schedule of ``location`` does not match; nothing without an inventory.

    ``known`` has the inventories of the cluster by location.
    """
    own = known.get(location)
    if own is None:
        return
    for problem in problems_in(own, schedule):
        yield Mismatch(problem=problem, refused=True)
    field = f"Schedule({schedule.name})"
    target = schedule.target
    if target.job is not None:
        yield from _job(f"{field}.target.job", target.job, own)
    for asset in target.assets:
        yield from _runs_of(f"{field}.target.assets", asset, own)
    for place, leaf in schedule.trigger.places(f"{field}.trigger"):
        for name, job in leaf.job_name_fields().items():
            yield from _job(f"{place}.{name}", job, own)
        for name, asset in leaf.asset_fields().items():
            if isinstance(leaf, Run):
                yield from _runs_of(f"{place}.{name}", asset, own)
            else:
                yield from _arrivals_of(f"{place}.{name}", asset, known)
        if isinstance(leaf, Run) and leaf.location is None:
            yield from _made_by(place, leaf, own)
        if isinstance(leaf, Partitions):
            yield from _keys_of(place, leaf, known)
        if isinstance(leaf, Freshness):
            yield from _without_policy(f"{place}.asset", leaf.asset, known)
        if isinstance(leaf, Requests) and own.sources is not None:
            yield from _requests_of(f"{place}.sensor", leaf.sensor, own.sources)
        if isinstance(leaf, Run) and leaf.location is not None:
            yield from _elsewhere(place, leaf, location, known)
    for place, check, assets in check_fields(schedule):
        yield from _check(place, check, assets, known)
    for place, assets in _fields_of_any_check(schedule):
        yield from _without_checks(place, assets, known)
    yield from _without_partition(schedule, own)
    yield from _without_windows(schedule, own)
    for number, constraint in enumerate(schedule.constraints):
        for parent in constraint.parents_needed:
            if parent not in own.jobs:
                path = f"{field}.constraints[{number}].{constraint.kind}.parents"
                yield from _arrivals_of(path, parent, known)
        for job in constraint.job_fields:
            yield from _job(f"{field}.constraints[{number}].{constraint.kind}.jobs", job, own)
        for asset in constraint.asset_fields:
            path = f"{field}.constraints[{number}].{constraint.kind}.assets"
            if isinstance(constraint, Idle):
                # It looks at the runs of this location.
                yield from (replace(each, refused=False) for each in _runs_of(path, asset, own))
            else:
                yield from _arrivals_of(path, asset, known)


def check_fields(schedule: Schedule) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yields the path of each field that names a check, the check, and the assets it may be of."""
    field = f"Schedule({schedule.name})"
    for place, leaf in schedule.trigger.places(f"{field}.trigger"):
        assets = tuple(leaf.asset_fields().values())
        if isinstance(leaf, Check) and leaf.name is not None:
            yield f"{place}.name", leaf.name, assets
        of = f"{place}.since.partitions" if isinstance(leaf, Elapsed) else place
        for check in leaf.source.checks:
            if check != "*":
                yield f"{of}.checks", check, assets
    for number, constraint in enumerate(schedule.constraints):
        if isinstance(constraint, ChecksPassed):
            path = f"{field}.constraints[{number}].{constraint.kind}.checks"
            assets = constraint.assets or tuple(schedule.trigger_assets)
            for check in constraint.checks:
                yield path, check, assets


def _fields_of_any_check(schedule: Schedule) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields the path of each field that means any check, and the assets it may be of."""
    field = f"Schedule({schedule.name})"
    for place, leaf in schedule.trigger.places(f"{field}.trigger"):
        is_any = isinstance(leaf, Check) and leaf.name is None
        if is_any or "*" in leaf.source.checks:
            yield place, tuple(leaf.asset_fields().values())
    for number, constraint in enumerate(schedule.constraints):
        if isinstance(constraint, ChecksPassed) and not constraint.checks:
            path = f"{field}.constraints[{number}].{constraint.kind}"
            yield path, constraint.assets or tuple(schedule.trigger_assets)


def take_inventory(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    inventory: Inventory,
    now: datetime,
) -> tuple[str, ...]:
    """Stores the inventory of the code.

    Returns remarks on schedules that do not match it, and on schedules in cycles.
    """
    keep(tx, location, inventory, now)
    unknown = remarks_of_location(tx, store, location)
    remarks = (f"schedule and code do not match: {remark}" for _, remark in unknown)
    return (*remarks, *map(str, stored_cycles(tx, store, location)))


def remarks_of_location(
    tx: sa.Connection, store: ScheduleStore, location: Location
) -> list[tuple[str, str]]:
    """Returns the name and remark of each stored schedule that does not match the inventories.

    Reads the index and the forms; parses only schedules that may not match.
    """
    known = inventories(tx, location.cluster)
    own = known.get(location.name)
    if own is None:
        return []
    suspects = by_target(tx, location, own) | by_key(tx, location, known)
    found = store.by_ids(tx, suspects).values()
    return [
        (stored.name, str(unknown.problem))
        for stored in sorted(found, key=lambda stored: stored.name)
        for unknown in mismatches(stored.schedule, location.name, known)
    ]


def _job(field: str, job: str, own: Inventory) -> Iterator[Mismatch]:
    # Dagster's own jobs, such as the one for runs of assets, are not in the inventory.
    if job not in own.jobs and not job.startswith("__"):
        expected = f"a job of this code location{near(job, sorted(own.jobs))}"
        yield Mismatch(problem=InvalidInput(field, job, expected), refused=True)


def _runs_of(field: str, asset: str, own: Inventory) -> Iterator[Mismatch]:
    if asset not in own.executable:
        known = near(asset, sorted(own.executable))
        expected = f"an asset that this code location can run{known}"
        yield Mismatch(problem=InvalidInput(field, asset, expected), refused=True)


def _requests_of(field: str, sensor: str, sources: frozenset[str]) -> Iterator[Mismatch]:
    if sensor not in sources:
        expected = f"a source of this code location{near(sensor, sorted(sources))}"
        yield Mismatch(problem=InvalidInput(field, sensor, expected), refused=True)


def _arrivals_of(field: str, asset: str, known: Mapping[str, Inventory]) -> Iterator[Mismatch]:
    if not any(asset in inventory.assets for inventory in known.values()):
        expected = f"an asset of a code location of this cluster{near(asset, assets_of(known))}"
        yield Mismatch(problem=InvalidInput(field, asset, expected), refused=False)


def _check(
    field: str, check: str, assets: Sequence[str], known: Mapping[str, Inventory]
) -> Iterator[Mismatch]:
    """Yields a check that no location defines."""
    defined = _checks_of(assets, known)
    if defined is not None and check not in defined:
        expected = f"a check of {' or '.join(assets)}{near(check, sorted(defined))}"
        yield Mismatch(problem=InvalidInput(field, check, expected), refused=False)


def _without_checks(
    field: str, assets: Sequence[str], known: Mapping[str, Inventory]
) -> Iterator[Mismatch]:
    """Yields assets without checks where any of their checks is meant."""
    if assets and _checks_of(assets, known) == set():
        names = " or ".join(assets)
        problem = InvalidInput(field, names, "an asset with checks: the code defines none")
        yield Mismatch(problem=problem, refused=False)


def _checks_of(assets: Sequence[str], known: Mapping[str, Inventory]) -> set[str] | None:
    """Returns the checks of some assets; None: an asset or the checks of a location are unknown."""
    defined: set[str] = set()
    for asset in assets:
        places = [inventory for inventory in known.values() if asset in inventory.assets]
        if not places or any(inventory.checks is None for inventory in places):
            return None
        defined.update(
            *(inventory.checks.get(asset, ()) for inventory in places if inventory.checks)
        )
    return defined


def _without_policy(field: str, asset: str, known: Mapping[str, Inventory]) -> Iterator[Mismatch]:
    """Yields an asset whose freshness Dagster does not evaluate."""
    places = [inventory for inventory in known.values() if asset in inventory.assets]
    policies = [inventory.policies for inventory in places]
    if places and all(of is not None and asset not in of for of in policies):
        problem = InvalidInput(field, asset, "an asset with a freshness policy")
        yield Mismatch(problem=problem, refused=False)


def _keys_of(place: str, leaf: Partitions, known: Mapping[str, Inventory]) -> Iterator[Mismatch]:
    """Yields what the listed partitions of an asset can never satisfy."""
    has_number = isinstance(leaf.count, int) and leaf.count > 1
    if leaf.where is None and not has_number:
        return
    found = [inventory.assets.get(leaf.asset) for inventory in known.values()]
    listed = [each.keys for each in found if each is not None]
    if any(each is None for each in listed):
        return
    keys = _sorted_keys(tuple(each for each in listed if each))
    wanted = leaf.wanted_of(keys)
    if not keys:
        return
    if not wanted:
        expected = f"a glob for partitions of {leaf.asset}{near(leaf.where or '', keys)}"
        yield Mismatch(problem=InvalidInput(f"{place}.where", leaf.where, expected), refused=False)
    elif leaf.distinct and isinstance(leaf.count, int) and leaf.count > len(wanted):
        expected = f"at most {len(wanted)}: {leaf.asset} has no more partitions that count"
        yield Mismatch(problem=InvalidInput(f"{place}.count", leaf.count, expected), refused=False)


@lru_cache(maxsize=256)
def _sorted_keys(listed: tuple[tuple[str, ...], ...]) -> Sequence[str]:
    """Returns the keys of an asset in several locations; thousands of schedules may name it."""
    return sorted({key for keys in listed for key in keys})


def _without_partition(schedule: Schedule, own: Inventory) -> Iterator[Mismatch]:
    """Yields a target with partitions whose runs get none."""
    if schedule.partitions != "none" or isinstance(schedule.trigger, Requests):
        return
    target = schedule.target
    made = target.assets if target.job is None else own.job_assets.get(target.job, ())
    partitioned = [name for name in made if own.assets.get(name) is not None]
    if target.job is not None and target.job in own.job_partitions:
        partitioned.insert(0, target.job)
    if partitioned:
        expected = f"each or range: {partitioned[0]} has partitions, and a run gets none of them"
        problem = InvalidInput(f"Schedule({schedule.name}).partitions", "none", expected)
        yield Mismatch(problem=problem, refused=False)


def _without_windows(schedule: Schedule, own: Inventory) -> Iterator[Mismatch]:
    """Yields triggers by windows of time of a target that has none, as with dynamic partitions."""
    if schedule.partitions == "none" or own.partitioning_of(schedule.target) is not None:
        return
    name = schedule.target.job or ", ".join(schedule.target.assets)
    for place, leaf in schedule.trigger.places(f"Schedule({schedule.name}).trigger"):
        if leaf.clock is not None and leaf.clock.partition in ("ended", "last_ended", "current"):
            expected = f"a target with partitions by windows of time, and none are known of {name}"
            problem = InvalidInput(place, leaf.to_form()[leaf.kind], expected)
            yield Mismatch(problem=problem, refused=False)


def _made_by(place: str, leaf: Run, own: Inventory) -> Iterator[Mismatch]:
    """Yields the assets of a trigger if the runs of its job make none of them."""
    made = own.job_assets.get(leaf.job or "", ())
    if leaf.job in own.jobs and makes_none(leaf.job, leaf.assets, own):
        expected = f"an asset that {leaf.job} makes{near(leaf.assets[0], made)}"
        value = leaf.assets[0] if len(leaf.assets) == 1 else list(leaf.assets)
        yield Mismatch(problem=InvalidInput(f"{place}.assets", value, expected), refused=True)


def _elsewhere(
    place: str, leaf: Run, location: str, known: Mapping[str, Inventory]
) -> Iterator[Mismatch]:
    named = as_in_events(location, known)
    there = [of for name, of in named if leaf.location in (name, ANY_LOCATION)]
    if not there:
        names = sorted({name for name, _ in named})
        of_both = zip(known, named, strict=True)
        same = [name for at, (name, of) in of_both if leaf.location in (at, of.known_as)]
        meant = f"; did you mean {same[0]}?" if same else near(leaf.location or "", names)
        expected = f"a code location of this cluster that has ticked{meant}"
        yield Mismatch(
            problem=InvalidInput(f"{place}.location", leaf.location, expected), refused=False
        )
        return
    jobs = {job for inventory in there for job in inventory.jobs}
    executable = {asset for inventory in there for asset in inventory.executable}
    of_job = [("job", leaf.job, jobs)] if leaf.job is not None else []
    for what, name, has in [*of_job, *(("assets", asset, executable) for asset in leaf.assets)]:
        if name not in has:
            where = "any location" if leaf.location == ANY_LOCATION else leaf.location
            expected = f"one of {where}{near(name, sorted(has))}"
            yield Mismatch(problem=InvalidInput(f"{place}.{what}", name, expected), refused=False)
