"""Levels that a person assigns to queued runs.

They are stored until the daemon's next pass writes them into the tags of the run. Dagster changes
tags by writing all of them; if a command and a pass did so at the same time, one of the two changes
would be lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.tags import (
    FIRST_LEVEL,
    LEVEL,
    PRIORITY,
    level_tags,
)
from arctic_orchestration.state import dialect
from arctic_orchestration.state.run_queue_tables import queue_levels


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelRequest:
    """A requested new level for a run."""

    run_id: str
    level: int
    at: datetime


def request_level(tx: sa.Connection, cluster: str, run_id: str, level: int, now: datetime) -> None:
    """Requests a level for a run, from the next pass on; the last request counts."""
    values = {"level": level, "at": now}
    new = dialect.insert(tx, queue_levels).values(cluster=cluster, run_id=run_id, **values)
    tx.execute(new.on_conflict_do_update(index_elements=["cluster", "run_id"], set_=values))


def pending_levels(tx: sa.Connection, cluster: str) -> list[LevelRequest]:
    """Returns the requests that no pass has written yet."""
    query = sa.select(queue_levels).where(queue_levels.c.cluster == cluster)
    return [
        LevelRequest(run_id=row.run_id, level=row.level, at=row.at) for row in tx.execute(query)
    ]


def pending_level(tx: sa.Connection, cluster: str, run_id: str) -> int | None:
    """Returns the level that no pass has written yet to a run, or None."""
    col = queue_levels.c
    query = sa.select(col.level).where(col.cluster == cluster, col.run_id == run_id)
    return tx.execute(query).scalar_one_or_none()


def written(tx: sa.Connection, cluster: str, request: LevelRequest) -> None:
    """Deletes a request, unless there is a newer one for the run."""
    tx.execute(
        sa.delete(queue_levels).where(
            queue_levels.c.cluster == cluster,
            queue_levels.c.run_id == request.run_id,
            queue_levels.c.at == request.at,
        )
    )


def tags_of(
    level: int, tags: Mapping[str, str], queued_at: datetime, rules: Rules
) -> dict[str, str]:
    """Returns the tags that give a run a level and keep its age.

    Args:
        level: the new one.
        tags: those the run has.
        queued_at: when it was queued, which gives its age.
        rules: if levels do not age, the level is Dagster's priority.
    """
    if not rules.ages:
        return {PRIORITY: str(level)}
    new = level_tags(level, queued_at, rules.seconds_per_level)
    first = tags.get(FIRST_LEVEL, tags.get(LEVEL))
    return {**new, FIRST_LEVEL: first} if first is not None else new
