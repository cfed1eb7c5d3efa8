"""Lists the locations of a cluster with their code locations, ticks and contents."""

from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.documents import At, Document
from arctic_orchestration.schedules.location import is_alive
from arctic_orchestration.schedules.views.numbers import IS_FIRING
from arctic_orchestration.state.tables import is_active, is_waiting, jobs, locations, schedules


class ListedLocation(Document):
    """A location and its state."""

    name: str
    #: the code location and repository bound to it; None: the next one to tick
    owner: str | None
    #: with an error of up to five minutes
    ticked_at: At | None
    #: whether it ticked within the last quarter of an hour
    alive: bool
    schedules: int
    jobs_waiting: int
    jobs_active: int


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
            count(jobs, is_waiting & IS_FIRING).label("jobs_waiting"),
            count(jobs, is_active).label("jobs_active"),
        )
        .where(locations.c.cluster == cluster)
        .order_by(locations.c.name)
    )
    return [
        ListedLocation(**row, alive=is_alive(row["ticked_at"], now))
        for row in tx.execute(query).mappings()
    ]
