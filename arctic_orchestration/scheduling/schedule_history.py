"""What was done to schedules, those that are deleted too."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.database.tables import schedule_history
from arctic_orchestration.scheduling.discards import Discard, with_discard
from arctic_orchestration.scheduling.location import Location


class Action(StrEnum):
    """What was done to a schedule."""

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
    lost: Mapping[str, Discard] | None = None,
) -> None:
    """Writes a line for each schedule, given by id, name and version.

    ``lost`` is what was discarded with some of them, by id.
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
            "reason": with_discard(reason, discards.get(id)),
        }
        for id, name, version in of
    ]
    if rows:
        tx.execute(sa.insert(schedule_history), rows)


def history_of(tx: sa.Connection, location: Location, name: str) -> list[dict[str, Any]]:
    """What was done to the schedules that had this name: at, action, version and reason."""
    columns = schedule_history.c
    query = (
        sa.select(columns.at, columns.action, columns.version, columns.reason)
        .where(columns.location_id == location.id, columns.name == name)
        .order_by(columns.id)
    )
    return [dict(row) for row in tx.execute(query).mappings()]
