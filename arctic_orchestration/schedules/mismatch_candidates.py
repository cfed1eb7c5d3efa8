"""Finds the stored schedules that may not match the code, without parsing the others."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.event_log.event import ANY_LOCATION
from arctic_orchestration.schedules.inventory import Inventory
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import stored_forms
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import schedule_keys

#: the beginnings of fields of which the inventory knows more than a name
_OF_THE_CODE = ('"check', '"count', '"freshness', '"idle', '"where')


def by_target(tx: sa.Connection, location: Location, own: Inventory) -> set[str]:
    """Returns the ids of schedules with an unknown target, and of those that need more of the code.

    These have target partitions, or a target with some, or name checks or numbers of partitions.
    """
    partitioned = {asset for asset, of in own.assets.items() if of is not None}
    of_jobs = {job for job, made in own.job_assets.items() if not partitioned.isdisjoint(made)}
    of_jobs.update(own.job_partitions)
    found = set()
    for id, spec, form, target in stored_forms(tx, location):
        job, assets = target.get("job"), target.get("assets", ())
        is_known = (job is None or job in own.jobs) and own.executable.issuperset(assets)
        has_partitions = job in of_jobs or not partitioned.isdisjoint(assets)
        needs_more = (
            has_partitions
            or form.get("partitions", "none") != "none"
            or any(field in spec for field in _OF_THE_CODE)
            or ('"run"' in spec and _has_impossible_run(form.get("trigger"), own))
        )
        if not is_known or needs_more:
            found.add(id)
    return found


def _has_impossible_run(form: Any, own: Inventory) -> bool:
    """Returns whether a trigger, as written, has runs of a job that make none of its assets."""
    if isinstance(form, list):
        return any(_has_impossible_run(each, own) for each in form)
    if not isinstance(form, dict):
        return False
    run = form.get("run")
    if isinstance(run, dict) and makes_none(run.get("job"), run.get("assets", ()), own):
        return True
    return any(_has_impossible_run(each, own) for each in form.values())


def by_key(tx: sa.Connection, location: Location, known: Mapping[str, Inventory]) -> set[str]:
    """Returns the ids of schedules that listen to unknown jobs or assets."""
    in_location = schedule_keys.c.location_id == location.id
    keys = tx.execute(sa.select(schedule_keys.c.event_key).where(in_location).distinct()).scalars()
    named = as_in_events(location.name, known)
    deaf = [key for key in keys if not _has(key, named)]
    query = sa.select(schedule_keys.c.schedule_id).where(
        in_location, dialect.among(tx, schedule_keys.c.event_key, deaf)
    )
    return set(tx.execute(query).scalars()) if deaf else set()


def _has(key: str, named: Sequence[tuple[str, Inventory]]) -> bool:
    """Returns whether an event with this key can come, according to the inventories."""
    kind, _, rest = key.partition(":")
    if kind == "partition":
        return any(rest in inventory.assets for _, inventory in named)
    for location, inventory in named:
        place = next((at for at in (location, ANY_LOCATION) if rest.startswith(f"{at}:")), None)
        if place is not None:
            what, _, of = rest.removeprefix(f"{place}:").partition(":")
            name = of.rpartition(":")[0]
            if name in (inventory.jobs if what == "job" else inventory.executable):
                return True
    return False


def as_in_events(location: str, known: Mapping[str, Inventory]) -> Sequence[tuple[str, Inventory]]:
    """Returns the inventories with the names that runs have in the events of ``location``.

    Those of others are Dagster's.
    """
    return [
        (name if name == location else inventory.known_as or name, inventory)
        for name, inventory in known.items()
    ]


def makes_none(job: str | None, assets: Sequence[str], own: Inventory) -> bool:
    """Returns whether no run of a job makes one of some assets.

    Earlier versions of the package stored nothing of what jobs make.
    """
    known = own.job_assets
    return bool(job and assets and known) and set(assets).isdisjoint(known.get(job or "", ()))
