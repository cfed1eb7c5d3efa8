"""Binds a location to one Dagster storage and one code location."""

from dataclasses import replace

import sqlalchemy as sa

from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.waits import command


def bound(
    tx: sa.Connection, cluster: str, name: str, *, storage_id: str, owner: str | None
) -> Location:
    """Locks a location's row, and returns it, bound to one Dagster storage and code location.

    The first tick binds it.

    Args:
        tx: the transaction.
        cluster: the cluster.
        name: the location.
        storage_id: the Dagster storage that it follows.
        owner: the code location and repository that declare its schedules; None: not checked.

    Errors:
        ConfigurationError: it is bound to another storage, or to another code location.
    """
    location = locations.locked(tx, cluster, name)
    if location.storage_id is None:
        locations.update(tx, location, storage_id=storage_id)
    elif location.storage_id != storage_id:
        raise ConfigurationError(
            f"location {name} of cluster {cluster} follows another Dagster "
            "storage. Two Dagster instances that share a state database need different "
            "names in ARCTIC_CLUSTER. If this instance was given a new storage, begin at its "
            f"end with: {command('feed', 'restart', name)}"
        )
    if owner is not None and location.owner is None:
        locations.update(tx, location, owner=owner)
        location = replace(location, owner=owner)
    elif owner not in (None, location.owner):
        raise ConfigurationError(
            f"location {name} of cluster {cluster} belongs to the code location "
            f"{location.owner}, this is {owner}. Each deployment would delete the "
            "schedules of the other: give this one a name of its own, Arctic(location=...). "
            f"If {location.owner} was renamed or replaced by it, hand the schedules over with: "
            f"{command('locations', 'unbind', name)}"
        )
    return location
