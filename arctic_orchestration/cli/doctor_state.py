"""The state database as ``arctic doctor`` finds it, and what it is used for."""

from enum import StrEnum

import sqlalchemy as sa

from arctic_orchestration.cli.state import sqlite_file
from arctic_orchestration.consuming.consumers import IS_THERE
from arctic_orchestration.database.compaction_tables import compaction_tables
from arctic_orchestration.database.consumer_tables import consumers
from arctic_orchestration.database.engine import SCHEMA_REVISION, Database
from arctic_orchestration.database.freshness_tables import task_definitions, tasks
from arctic_orchestration.database.tables import schedules
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.settings import Settings


class Use(StrEnum):
    """What somebody may use, with or without the others."""

    SCHEDULES = "schedules"
    TASKS = "tasks"
    CONSUMERS = "consumers"
    #: of all, it alone works without Dagster
    COMPACTION = "compaction"


_ROWS = (
    (Use.SCHEDULES, sa.select(schedules)),
    (Use.TASKS, sa.select(task_definitions)),
    (Use.TASKS, sa.select(tasks)),
    (Use.CONSUMERS, sa.select(consumers).where(IS_THERE)),
    (Use.COMPACTION, sa.select(compaction_tables)),
)


def readable_database(settings: Settings) -> Database | None:
    """The state database; none: it is not there, or has another schema, which is said above."""
    file = sqlite_file(settings.database_url)
    if file is not None and not file.exists():
        return None
    database = Database(settings.database_url)
    if database.revision() == SCHEMA_REVISION:
        return database
    database.close()
    return None


def uses() -> frozenset[Use]:
    """What the state database knows something of; nothing, where it cannot be read."""
    try:
        database = readable_database(Settings.from_environment())
    except ArcticError:
        # A check of its own says so.
        return frozenset()
    if database is None:
        return frozenset()
    try:
        with database.read() as tx:
            known = sa.select(*(sa.exists(rows) for _, rows in _ROWS))
            found = tx.execute(known).one()
    finally:
        database.close()
    return frozenset(use for (use, _), has in zip(_ROWS, found, strict=True) if has)
