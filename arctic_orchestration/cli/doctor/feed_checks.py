"""The checks of reading Dagster's event log, in ``arctic doctor``."""

from typing import TYPE_CHECKING

import sqlalchemy as sa

from arctic_orchestration.console.display import counted
from arctic_orchestration.console.findings import BAD, GOOD, WARNING, Finding
from arctic_orchestration.console.state import readable_database
from arctic_orchestration.errors import LogWentBack
from arctic_orchestration.settings import Settings
from arctic_orchestration.state import unreadable_events
from arctic_orchestration.state.tables import locations

if TYPE_CHECKING:
    from dagster import DagsterInstance


def mode(instance: "DagsterInstance") -> list[Finding]:
    """Checks whether the log can be read exactly."""
    from arctic_orchestration.event_log.dagster_log import DagsterLog
    from arctic_orchestration.event_log.feed import FeedMode

    log = DagsterLog(instance)
    status = GOOD if log.mode is FeedMode.EXACT else WARNING
    found = f"{log.mode.value}: {log.mode_reason}"
    advice = "" if status == GOOD else "fix the reported reason, then restart the code location"
    log.close()
    return [Finding(check="feed", status=status, found=found, advice=advice)]


def positions(instance: "DagsterInstance") -> list[Finding]:
    """Finds locations that stopped because the log went back."""
    from arctic_orchestration.event_log.dagster_log import DagsterLog
    from arctic_orchestration.event_log.feed import Position

    settings = Settings.from_environment()
    database = readable_database(settings)
    if database is None:
        return []
    try:
        with database.read() as tx:
            col = locations.c
            query = sa.select(col.name, col.position, col.storage_id)
            rows = tx.execute(query.where(col.cluster == settings.cluster)).all()
    finally:
        database.close()
    log = DagsterLog(instance)
    found = []
    for row in rows:
        if row.position is None or row.storage_id != log.storage_id:
            continue
        try:
            log.read(Position.from_json(row.position), 1)
        except LogWentBack as error:
            check, advice = f"feed of {row.name}", f"see: arctic feed restart {row.name} --help"
            found.append(Finding(check=check, status=BAD, found=str(error), advice=advice))
    log.close()
    return found


def unreadable() -> list[Finding]:
    """Finds events that were set aside."""
    settings = Settings.from_environment()
    database = readable_database(settings)
    if database is None:
        return []
    try:
        with database.read() as tx:
            newest = unreadable_events.listed(tx, settings.cluster, limit=1)
            total = unreadable_events.count(tx, settings.cluster)
    finally:
        database.close()
    if not newest:
        return []
    last = newest[0]
    found = f"{counted(total, 'event')} set aside, the newest {last.event_id}: {last.reason}"
    advice = "see: arctic events unreadable"
    return [Finding(check="unreadable events", status=WARNING, found=found, advice=advice)]
