"""How far the adoptions of a cluster have come."""

import sqlalchemy as sa

from arctic_orchestration.schedules.adoption.journal import Step
from arctic_orchestration.schedules.stored_schedule import ScheduleStatus
from arctic_orchestration.state.adoption_tables import adoptions
from arctic_orchestration.state.tables import locations, schedules

_ITS_SCHEDULE = (schedules.c.location_id == adoptions.c.location_id) & (
    schedules.c.name == adoptions.c.schedule
)


def steps(tx: sa.Connection, cluster: str) -> dict[tuple[str, str], str]:
    """Returns the last step of each adoption, by owner of the location and Dagster's name.

    A shadow whose schedule was deleted, or deleted and declared again, has ended.
    """
    shadowed = sa.exists().where(_ITS_SCHEDULE, schedules.c.status == ScheduleStatus.SHADOWED.value)
    query = (
        sa.select(locations.c.owner, adoptions.c.name, adoptions.c.step)
        .join(adoptions, adoptions.c.location_id == locations.c.id)
        .where(locations.c.cluster == cluster, (adoptions.c.step != Step.SHADOWED.value) | shadowed)
    )
    return {(row.owner or "", row.name): row.step for row in tx.execute(query)}


def abandoned(tx: sa.Connection, cluster: str) -> frozenset[tuple[str, str]]:
    """Returns the adoptions whose schedule was deleted, by owner and Dagster's name."""
    query = (
        sa.select(locations.c.owner, adoptions.c.name)
        .join(adoptions, adoptions.c.location_id == locations.c.id)
        .where(locations.c.cluster == cluster, ~sa.exists().where(_ITS_SCHEDULE))
    )
    return frozenset((row.owner or "", row.name) for row in tx.execute(query))


def replaced(tx: sa.Connection, location_id: int) -> dict[str, str]:
    """Returns Dagster's name of what is stopped there, by the name of its schedule."""
    stopped = adoptions.c.step.not_in([Step.SHADOWED.value, Step.HANDED_OVER.value])
    query = sa.select(adoptions.c.schedule, adoptions.c.name)
    rows = tx.execute(query.where(adoptions.c.location_id == location_id, stopped))
    return {row.schedule: row.name for row in rows}
