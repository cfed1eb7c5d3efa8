"""Who holds the resources by which concurrency is counted, and how many jobs wait for each."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.state.tables import (
    holders,
    is_constrained,
    jobs,
    locations,
    schedules,
)


def holders_by_resource(tx: sa.Connection, limit: int) -> Mapping[str, Sequence[Any]]:
    """Returns the first holders by resource, of all clusters: holder, cluster, location, schedule.

    A holder without a schedule is a run that no job requested.
    """
    query = (
        sa.select(
            holders.c.resource,
            holders.c.holder,
            locations.c.cluster,
            locations.c.name.label("location"),
            schedules.c.name.label("schedule"),
        )
        .join(locations, locations.c.id == holders.c.location_id)
        .outerjoin(jobs, jobs.c.id == holders.c.holder)
        .outerjoin(schedules, schedules.c.id == jobs.c.schedule_id)
        .order_by(holders.c.resource, holders.c.holder)
        .limit(limit)
    )
    found: dict[str, list[Any]] = {}
    for row in tx.execute(query):
        found.setdefault(row.resource, []).append(row)
    return found


def waiting_by_resource(tx: sa.Connection) -> Mapping[str, int]:
    """Returns how many jobs wait for each resource."""
    query = sa.select(jobs.c.held_by, sa.func.count()).where(
        is_constrained, jobs.c.held_by.is_not(None)
    )
    return {row[0]: row[1] for row in tx.execute(query.group_by(jobs.c.held_by))}
