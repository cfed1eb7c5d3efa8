"""Makes tables due when their assets arrive, from Dagster's event log.

An asset names its table in its metadata or its tags, ``arctic/table: nyc.flights``. The position in
the log is the sensor's cursor, which Dagster stores after a successful tick: an arrival is marked
at least once, and twice only after a crash, which changes nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from arctic_orchestration.compaction.tables import make_due
from arctic_orchestration.errors import InvalidInput, LogWentBack
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.event import EventKind
from arctic_orchestration.event_log.feed import Position
from arctic_orchestration.state.database import Database

if TYPE_CHECKING:
    from arctic_orchestration.dagster_internals import AssetGraph

TABLE = "arctic/table"
_EVENTS_AT_ONCE = 2_000
_MOST_READINGS = 10

_log = logging.getLogger("arctic.compaction.sensor")


@dataclass(frozen=True, kw_only=True)
class Marked:
    """The result of one read."""

    #: the position of the next read
    cursor: str | None
    #: tables that are due now
    tables: frozenset[str] = frozenset()
    #: tables that assets fill and compaction does not know yet
    unknown: frozenset[str] = frozenset()


def tables_of(graph: "AssetGraph") -> Mapping[str, str]:
    """Returns the tables that assets fill, by the assets' keys with slashes."""
    found = {}
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        table = node.metadata.get(TABLE) or node.tags.get(TABLE)
        if table is not None:
            found[key.to_user_string()] = str(getattr(table, "value", table))
    return found


def mark_arrivals(
    log: DagsterLog,
    database: Database,
    tables: Mapping[str, str],
    cursor: str | None,
    now: datetime,
) -> Marked:
    """Makes tables due that arrived since the cursor; without one, since now.

    Errors:
        DatabaseUnavailable: one of the two databases did not answer.
    """
    if cursor is None:
        return Marked(cursor=log.end().to_json())
    arrived: dict[str, str] = {}
    try:
        position = Position.from_json(cursor)
        for _ in range(_MOST_READINGS):
            batch = log.read(position, _EVENTS_AT_ONCE)
            position = batch.position
            for event in batch.events:
                if event.kind is EventKind.PARTITION and event.subject in tables:
                    arrived[tables[event.subject]] = event.subject
            if not batch.more:
                break
    except (InvalidInput, LogWentBack) as error:
        # Of another or a restored storage: the planner's own checks find what arrived meanwhile.
        _log.warning("the position in the event log is reset: %s", error)
        return Marked(cursor=log.end().to_json())
    unknown = set()
    if arrived:
        with database.begin() as tx:
            for table, asset in sorted(arrived.items()):
                if not make_due(tx, table, f"asset {asset} has arrived", now):
                    unknown.add(table)
    return Marked(
        cursor=position.to_json(),
        tables=frozenset(arrived) - unknown,
        unknown=frozenset(unknown),
    )
