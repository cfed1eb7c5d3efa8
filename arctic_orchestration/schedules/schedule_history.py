"""The history of schedules, including deleted ones."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.schedules.discarded_jobs import Discard, with_discard
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.state.tables import schedule_history


class Action(StrEnum):
    """A change of a schedule."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    ENABLED = "enabled"
    SUSPENDED = "suspended"


def record(
    tx: sa.Connection,
    location: Location,
    of: Sequence[tuple[str, str, int]],
    action: Action,
    reason: str,
    now: datetime,
    *,
    actor: str = "",
    lost: Mapping[str, Discard] | None = None,
) -> None:
    """Writes a line for each schedule, given by id, name and version.

    ``actor`` is the person, or the code location that deployed. ``lost`` says by id what was
    discarded with a schedule.
    """
    discards = lost or {}
    rows = [
        {
            "location_id": location.id,
            "schedule_id": id,
            "name": name,
            "at": now,
            "action": action.value,
            "version": version,
            "actor": actor,
            "reason": with_discard(reason, discards.get(id)),
        }
        for id, name, version in of
    ]
    if rows:
        tx.execute(sa.insert(schedule_history), rows)


def history_of(
    tx: sa.Connection, location: Location, name: str | None = None, *, limit: int = 1_000
) -> list[dict[str, Any]]:
    """Returns the newest lines of a location, or of schedules of that name, in order of time.

    Each has at, name, action, version, actor and reason.
    """
    columns = schedule_history.c
    shown = ("at", "name", "action", "version", "actor", "reason")
    query = sa.select(*(columns[column] for column in shown)).where(
        columns.location_id == location.id
    )
    if name is not None:
        query = query.where(columns.name == name)
    rows = tx.execute(query.order_by(columns.id.desc()).limit(limit)).mappings().all()
    return [dict(row) for row in reversed(rows)]
