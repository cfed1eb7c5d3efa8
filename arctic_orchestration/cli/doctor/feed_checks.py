"""The checks of reading Dagster's event log, in ``arctic doctor``."""

from typing import TYPE_CHECKING

import sqlalchemy as sa

from arctic_orchestration.console.display import counted
from arctic_orchestration.console.findings import GOOD, WARNING, Finding, bad, warning
from arctic_orchestration.console.state import read_state
from arctic_orchestration.errors import LogWentBack
from arctic_orchestration.state import unreadable_events
from arctic_orchestration.state.consumer_tables import consumers
from arctic_orchestration.state.tables import locations
from arctic_orchestration.waits import command

if TYPE_CHECKING:
    from dagster import DagsterInstance

#: who keeps a position in the log: the rows, the check's name, and what starts it again
_READERS = (
    (locations, "feed of", ("feed", "restart")),
    (consumers, "consumer", ("consumers", "reset")),
)


def mode(instance: "DagsterInstance") -> list[Finding]:
    """Checks whether the log can be read exactly, and the time zone of its database."""
    from arctic_orchestration.event_log.dagster_log import DagsterLog
    from arctic_orchestration.event_log.feed import FeedMode

    log = DagsterLog(instance)
    status = GOOD if log.mode is FeedMode.EXACT else WARNING
    found = f"{log.mode.value}: {log.mode_reason}"
    advice = "" if status == GOOD else "fix the reported reason, then restart the code location"
    findings = [Finding(check="feed", status=status, found=found, advice=advice)]
    if zone := log.other_zone():
        found = f"Dagster's Postgres has the time zone {zone}: Dagster shows wrong times of runs"
        advice = "alter database ... set timezone to 'UTC', then restart Dagster's processes"
        findings.append(warning("time zone", found, advice))
    log.close()
    return findings


def positions(instance: "DagsterInstance") -> list[Finding]:
    """Finds locations and consumers that stopped because the log went back."""
    from arctic_orchestration.event_log.dagster_log import DagsterLog
    from arctic_orchestration.event_log.feed import Position

    with read_state() as state:
        if state is None:
            return []
        tx, cluster = state
        rows = [
            (kind, words, row)
            for table, kind, words in _READERS
            for row in tx.execute(
                sa.select(table.c.name, table.c.position, table.c.storage_id)
                .where(table.c.cluster == cluster)
                .order_by(table.c.name)
            )
        ]
    log = DagsterLog(instance)
    found = []
    for kind, words, row in rows:
        if row.position is None or row.storage_id != log.storage_id:
            continue
        try:
            log.read(Position.from_json(row.position), 1)
        except LogWentBack as error:
            advice = f"see: {command(*words, row.name, options=('--help',))}"
            check = f"{kind} {row.name}"
            found.append(bad(check, str(error), advice))
    log.close()
    return found


def unreadable() -> list[Finding]:
    """Finds events that were set aside."""
    with read_state() as state:
        if state is None:
            return []
        newest = unreadable_events.listed(*state, limit=1)
        total = unreadable_events.count(*state)
    if not newest:
        return []
    last = newest[0]
    found = f"{counted(total, 'event')} set aside, the newest {last.event_id}: {last.reason}"
    return [warning("unreadable events", found, "see: arctic events unreadable")]
