"""Lists the locations of a cluster with their code locations, ticks and contents."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.quantities import iso
from arctic_orchestration.schedules.location import is_alive
from arctic_orchestration.schedules.views.numbers import IS_FIRING
from arctic_orchestration.state.tables import is_active, is_waiting, jobs, locations, schedules


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedLocation:
    """A location and its state."""

    name: str
    #: the code location and repository bound to it; None: the next one to tick
    owner: str | None
    #: with an error of up to five minutes
    ticked_at: datetime | None
    #: whether it ticked within the last quarter of an hour
    alive: bool
    schedules: int
    waiting: int
    active: int

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "name": self.name,
            "owner": self.owner,
            "ticked_at": iso(self.ticked_at),
            "alive": self.alive,
            "schedules": self.schedules,
            "jobs_waiting": self.waiting,
            "jobs_active": self.active,
        }


def list_locations(tx: sa.Connection, cluster: str, now: datetime) -> list[ListedLocation]:
    """Returns the locations of a cluster, by name."""

    def count(table: sa.Table, *where: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
        here = sa.select(sa.func.count()).select_from(table)
        return here.where(table.c.location_id == locations.c.id, *where).scalar_subquery()

    query = (
        sa.select(
            locations.c.name,
            locations.c.owner,
            locations.c.ticked_at,
            count(schedules).label("schedules"),
            count(jobs, is_waiting & IS_FIRING).label("waiting"),
            count(jobs, is_active).label("active"),
        )
        .where(locations.c.cluster == cluster)
        .order_by(locations.c.name)
    )
    return [
        ListedLocation(**row, alive=is_alive(row["ticked_at"], now))
        for row in tx.execute(query).mappings()
    ]
