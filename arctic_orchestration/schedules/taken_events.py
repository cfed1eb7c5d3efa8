"""Stores the events that schedules take, each under a number of its location."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.target_partitions import Match
from arctic_orchestration.state import bulk_rows
from arctic_orchestration.state.tables import events

_COLUMNS = (
    "location_id",
    "number",
    "kind",
    "subject",
    "partition",
    "at",
    "taken_at",
    "details",
)


def store_events(
    tx: sa.Connection,
    location: Location,
    matches: Sequence[Match],
    next_event: int,
    now: datetime,
) -> tuple[dict[int, int], int]:
    """Stores the event of each match once, unless it has a number already.

    Returns the numbers by ``id(event)``, and the location's next number. The caller stores the
    latter with the position of the feed.
    """
    numbers: dict[int, int] = {}
    rows: list[tuple[Any, ...]] = []
    for match in matches:
        event = match.event
        if id(event) in numbers:
            continue
        if match.number is not None:
            numbers[id(event)] = match.number
            continue
        numbers[id(event)] = next_event
        details = to_json(event.to_json()).decode()
        rows.append(
            (
                location.id,
                next_event,
                event.kind.value,
                event.subject,
                event.partition,
                event.at,
                now,
                details,
            )
        )
        next_event += 1
    if rows:
        bulk_rows.insert_rows(tx, events, _COLUMNS, rows)
    return numbers, next_event
