"""What a person may do to a location: unbind it from its code location, rename it, delete it.

Each is one transaction of the caller. A dispatcher that goes on under a name that was renamed or
deleted begins anew there, as at its first tick.
"""

from collections.abc import Iterable
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput, TransitionRefused
from arctic_orchestration.schedules import location as rows
from arctic_orchestration.schedules import resources
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration.state.tables import (
    deleted_schedules,
    events,
    holders,
    is_active,
    is_constrained,
    jobs,
    launches,
    location_inventories,
    locations,
    notices,
    run_ends,
    runs,
    schedule_history,
    schedule_keys,
    schedules,
    timers,
)

#: What is deleted with a location; jobs, and what belongs to them, go with their schedules.
OF_LOCATION = (
    location_inventories,
    deferred_arrivals,
    schedules,
    deleted_schedules,
    timers,
    schedule_keys,
    events,
    runs,
    notices,
    schedule_history,
)


def unbind(tx: sa.Connection, location: Location) -> None:
    """Lets the next code location that ticks under the name deploy there, and only that one."""
    rows.update(tx, location, owner=None)


def delete(tx: sa.Connection, location: Location, now: datetime) -> None:
    """Deletes a locked location with its schedules, jobs and history.

    Its active runs go on, and count in no group any more.
    """
    held = sa.select(holders.c.holder).where(holders.c.location_id == location.id)
    resources.release(tx, list(tx.execute(held).scalars()), now, {})
    for table in OF_LOCATION:
        tx.execute(sa.delete(table).where(table.c.location_id == location.id))
    for table in (launches, run_ends):
        for prefix in _prefixes(location.cluster, location.name):
            mine = table.c.resource.startswith(prefix, autoescape=True)
            tx.execute(sa.delete(table).where(mine))
    tx.execute(sa.delete(locations).where(locations.c.id == location.id))


def rename(
    tx: sa.Connection, store: ScheduleStore, location: Location, name: str, now: datetime
) -> None:
    """Gives a locked location another name; schedules, jobs and the feed position stay.

    A location that has the name already is deleted first, unless its jobs were launched. Whoever
    ticks first under the new name is bound to it.

    Errors:
        InvalidInput: it has that name already.
        TransitionRefused: the location that has the name launched jobs; nothing was changed.
    """
    if name == location.name or not name:
        raise InvalidInput("NEW", name, f"another name than {location.name}")
    has_name = (locations.c.cluster == location.cluster) & (locations.c.name == name)
    if tx.execute(sa.select(locations.c.id).where(has_name)).first() is not None:
        other = rows.locked(tx, location.cluster, name)
        launched = (jobs.c.location_id == other.id) & (jobs.c.attempt > 0)
        if tx.execute(sa.select(jobs.c.id).where(launched).limit(1)).first() is not None:
            raise TransitionRefused(
                f"Location {name} has launched jobs of its own: with the feed position of "
                f"{location.name} they would run again. Delete one of the two: "
                f"arctic locations delete {location.name}, or arctic locations delete {name}"
            )
        delete(tx, other, now)
    rows.update(tx, location, name=name, owner=None, definitions_digest=None)
    _rename_resources(tx, location, name)
    waiting = (jobs.c.location_id == location.id) & is_constrained
    tx.execute(sa.update(jobs).where(waiting).values(held_by=None, next_check_at=now))
    renamed = rows.locked(tx, location.cluster, name)
    store.index_again(tx, renamed)


def listeners(tx: sa.Connection, location: Location) -> list[tuple[str, str]]:
    """The schedules of other locations that listen to runs of this one: location and schedule."""
    query = (
        sa.select(locations.c.name, schedules.c.name)
        .join(schedules, schedules.c.id == schedule_keys.c.schedule_id)
        .join(locations, locations.c.id == schedule_keys.c.location_id)
        .where(locations.c.cluster == location.cluster, locations.c.id != location.id)
        .where(schedule_keys.c.event_key.startswith(f"run:{location.name}:", autoescape=True))
        .distinct()
        .order_by(locations.c.name, schedules.c.name)
    )
    return [(row[0], row[1]) for row in tx.execute(query)]


def active_jobs(tx: sa.Connection, location: Location) -> int:
    """How many jobs of a location are launching or launched."""
    here = sa.select(sa.func.count()).where(jobs.c.location_id == location.id, is_active)
    return int(tx.execute(here).scalar_one())


def _prefixes(cluster: str, name: str) -> tuple[str, ...]:
    """How the names of a location's targets begin, as resources."""
    return tuple(f"{kind}:{cluster}/{name}/" for kind in ("job", "asset"))


def _rename_resources(tx: sa.Connection, location: Location, name: str) -> None:
    """Jobs and runs hold, and rates and intervals remember, targets by the new name."""
    pairs: Iterable[tuple[str, str]] = zip(
        _prefixes(location.cluster, location.name), _prefixes(location.cluster, name), strict=True
    )
    for old, new in pairs:
        for table in (holders, launches, run_ends):
            resource = table.c.resource
            mine = resource.startswith(old, autoescape=True)
            # What a location that had the name left behind.
            tx.execute(sa.delete(table).where(resource.startswith(new, autoescape=True)))
            rest = sa.func.substr(resource, len(old) + 1, type_=sa.Text)
            tx.execute(sa.update(table).where(mine).values(resource=sa.literal(new) + rest))
