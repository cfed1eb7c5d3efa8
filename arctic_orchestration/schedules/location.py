"""A code location of a cluster, and its row: the lock of its dispatcher."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import locations

#: A dispatcher records every few minutes that it ticks.
SILENT = timedelta(minutes=15)


def is_alive(ticked_at: datetime | None, now: datetime) -> bool:
    """Returns whether a dispatcher with its last recorded tick at ``ticked_at`` is alive."""
    return ticked_at is not None and ticked_at >= now - SILENT


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """The row of a location, as read by the transaction that locked it."""

    id: int
    cluster: str
    name: str
    position: str | None
    storage_id: str | None
    definitions_digest: str | None
    next_event: int
    ticked_at: datetime | None
    owner: str | None
    former_names: str | None

    @property
    def place(self) -> str:
        """Cluster and name, as in the names of resources."""
        return f"{self.cluster}/{self.name}"


def former_names(tx: sa.Connection, location: Location) -> frozenset[str]:
    """Returns Dagster's former names of a location, without those of other locations now."""
    names = frozenset(json.loads(location.former_names or "[]"))
    if not names:
        return names
    others = sa.select(locations.c.name, locations.c.owner).where(
        locations.c.cluster == location.cluster, locations.c.id != location.id
    )
    for row in tx.execute(others):
        names -= {row.name, code_location(row.owner)}
    return names


def with_present_name(location: Location) -> str:
    """Returns the former names of a location once it is bound to another code location."""
    known = set(json.loads(location.former_names or "[]"))
    return json.dumps(sorted({*known, code_location(location.owner) or location.name}))


def code_location(owner: str | None) -> str | None:
    """Returns Dagster's name of the location that an owner has, or None."""
    return owner.rpartition("/")[0] if owner else None


def locked(tx: sa.Connection, cluster: str, name: str) -> Location:
    """Locks the row of a location until the transaction ends; creates it if there is none.

    Two dispatchers of one location wait for each other at this lock, so that no event is read from
    the feed twice.
    """
    this = {"of_cluster": cluster, "of_name": name}
    row = tx.execute(_LOCKED, this).mappings().one_or_none()
    if row is None:
        new = dialect.insert(tx, locations).values(cluster=cluster, name=name)
        tx.execute(new.on_conflict_do_nothing())
        row = tx.execute(_LOCKED, this).mappings().one()
    return from_row(row)


def from_row(row: Mapping[Any, Any]) -> Location:
    """Reads a location from a row of ``arctic_locations``."""
    return Location(**{field: row[field] for field in Location.__slots__})


def update(tx: sa.Connection, location: Location, **values: str | int | datetime | None) -> None:
    """Writes fields of a locked location."""
    tx.execute(_update(tuple(sorted(values))), {"of_id": location.id, **values})


_LOCKED = (
    sa.select(locations)
    .where(
        locations.c.cluster == sa.bindparam("of_cluster"),
        locations.c.name == sa.bindparam("of_name"),
    )
    .with_for_update()
)


@cache
def _update(names: tuple[str, ...]) -> sa.Update:
    given: dict[str, Any] = {name: sa.bindparam(name) for name in names}
    return sa.update(locations).where(locations.c.id == sa.bindparam("of_id")).values(given)
