"""Manual changes of a location: unbind it from its code location, rename it, delete it.

Each is one transaction of the caller. A dispatcher that continues under a renamed or deleted name
starts again there, as with its first tick.
"""

from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput, TransitionRefused
from arctic_orchestration.schedules import location as rows
from arctic_orchestration.schedules import resources
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.state.adoption_tables import adoptions
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration.state.source_tables import source_requests, sources
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
from arctic_orchestration.waits import command

#: Rows that are deleted with a location; jobs and their rows go with their schedules.
OF_LOCATION = (
    adoptions,
    sources,
    source_requests,
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
    """Unbinds the location: the next code location that ticks under its name binds it again."""
    rows.update(tx, location, owner=None, former_names=rows.with_present_name(location))


def delete(tx: sa.Connection, location: Location, now: datetime) -> None:
    """Deletes a locked location with its schedules, jobs and history.

    Its active runs continue and no longer count in any group.
    """
    held = sa.select(holders.c.holder).where(holders.c.location_id == location.id)
    resources.release(tx, list(tx.execute(held).scalars()), now, {})
    for table in OF_LOCATION:
        tx.execute(sa.delete(table).where(table.c.location_id == location.id))
    for table in (launches, run_ends):
        mine = resources.of_location(tx, table.c.resource, location)
        tx.execute(sa.delete(table).where(mine))
    tx.execute(sa.delete(locations).where(locations.c.id == location.id))


def rename(
    tx: sa.Connection, store: ScheduleStore, location: Location, name: str, now: datetime
) -> None:
    """Renames a locked location; its schedules, jobs and feed position stay.

    An existing location of that name is deleted first, unless its jobs were launched. The first
    code location that ticks under the new name is bound to it. Runs of the code location that was
    bound before still count as its own.

    Errors:
        InvalidInput: the location has that name already.
        TransitionRefused: the location of that name launched jobs; nothing was changed.
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
                f"{command('locations', 'delete', location.name)}, or "
                f"{command('locations', 'delete', name)}"
            )
        delete(tx, other, now)
    former = rows.with_present_name(location)
    rows.update(tx, location, name=name, owner=None, definitions_digest=None, former_names=former)
    renamed = rows.locked(tx, location.cluster, name)
    _rename_resources(tx, location, renamed)
    waiting = (jobs.c.location_id == location.id) & is_constrained
    tx.execute(sa.update(jobs).where(waiting).values(held_by=None, next_check_at=now))
    store.index_again(tx, renamed, location.name)


def listeners(tx: sa.Connection, location: Location) -> list[tuple[str, str]]:
    """Returns the schedules elsewhere that listen to runs of this location, with their location."""
    query = (
        sa.select(locations.c.name, schedules.c.name)
        .join(schedules, schedules.c.id == schedule_keys.c.schedule_id)
        .join(locations, locations.c.id == schedule_keys.c.location_id)
        .where(locations.c.cluster == location.cluster, locations.c.id != location.id)
        .where(resources.begins(schedule_keys.c.event_key, f"run:{location.name}:"))
        .distinct()
        .order_by(locations.c.name, schedules.c.name)
    )
    return [(row[0], row[1]) for row in tx.execute(query)]


def active_jobs(tx: sa.Connection, location: Location) -> int:
    """Returns how many jobs of a location are launching or launched."""
    here = sa.select(sa.func.count()).where(jobs.c.location_id == location.id, is_active)
    return int(tx.execute(here).scalar_one())


def _rename_resources(tx: sa.Connection, old: Location, new: Location) -> None:
    """Renames the location's targets in held resources, launches and ends."""
    for table in (holders, launches, run_ends):
        resource = table.c.resource
        mine = resources.of_location(tx, resource, old)
        # Left behind by an earlier location of that name.
        left = resources.of_location(tx, resource, new)
        tx.execute(sa.delete(table).where(left, ~mine))
        for prefix in resources.TARGET_PREFIXES:
            before, after = prefix(old.place), prefix(new.place)
            this = mine & resources.begins(resource, before)
            rest = sa.func.substr(resource, len(before) + 1, type_=sa.Text)
            tx.execute(sa.update(table).where(this).values(resource=sa.literal(after) + rest))
