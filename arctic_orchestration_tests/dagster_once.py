"""What Dagster's storages do for each operation, done once in a process.

For each run and sensor that they read, they ask the database for its tables and their columns: of
databases that are younger than the test process, the answer is known. For each operation on
SQLite, they build an engine and look at the database's settings. That was a sixth of what tests
with an instance cost. Connections are opened and closed as ever.
"""

import functools
from typing import Any

from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs import sql_run_storage
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules import sql_schedule_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from sqlalchemy import Engine

_COLUMNS = (
    "has_run_stats_index_cols", "has_bulk_actions_selector_cols", "has_backfill_id_column",
)  # fmt: skip
_TABLES = ("has_instigators_table", "_has_instigators_table")
_ENGINES = 500


def put_in_place() -> None:
    """From here on, in this process and in those that are forked from it."""
    for name in _COLUMNS:
        setattr(sql_run_storage.SqlRunStorage, name, _newest)
    for name in _TABLES:
        setattr(sql_schedule_storage.SqlScheduleStorage, name, _newest)
    for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        built = module.create_engine
        if not hasattr(built, "cache_clear"):
            module.create_engine = _built_once(built)  # type: ignore[attr-defined]


def _newest(*_: object) -> bool:
    return True


def _built_once(create: Any) -> Any:
    @functools.lru_cache(_ENGINES)
    def create_engine(address: str, options: tuple[tuple[str, Any], ...]) -> Engine:
        arguments = {name: dict(of) if isinstance(of, tuple) else of for name, of in options}
        return create(address, **arguments)  # type: ignore[no-any-return]

    def remembered(address: str, **options: Any) -> Engine:
        kept = {
            name: tuple(of.items()) if isinstance(of, dict) else of for name, of in options.items()
        }
        return create_engine(address, tuple(kept.items()))

    remembered.cache_clear = create_engine.cache_clear  # type: ignore[attr-defined]
    return remembered
