"""The newest decisions about a schedule: the moves of its jobs."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.schedules.location import Location
from arctic_orchestration.state.tables import job_history, jobs, schedules


def decisions(tx: sa.Connection, place: Location, name: str, limit: int) -> Sequence[Any]:
    """Returns the newest moves of a schedule's newest jobs: job, at, state, reason, actor."""
    newest = (
        sa.select(jobs.c.id)
        .join(schedules, schedules.c.id == jobs.c.schedule_id)
        .where(schedules.c.location_id == place.id, schedules.c.name == name)
        .order_by(jobs.c.created_at.desc())
        .limit(limit)
    )
    history = job_history.c
    query = sa.select(
        history.job_id.label("job"), history.at, history.state, history.reason, history.actor
    )
    query = query.where(history.job_id.in_(newest)).order_by(history.id.desc()).limit(limit)
    return tx.execute(query).all()
