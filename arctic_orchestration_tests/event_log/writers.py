"""A process that writes events into Dagster's log; started by the proof tests.

``api``: one event at a time through ``instance.report_runless_asset_event``. ``batch``: twenty at
a time through ``event_log_storage.store_event_batch``. ``raw``: rows of the same shape in
transactions of its own, which stay open for a while between the id and the commit, hold several
rows, are rolled back in part (savepoints) or as a whole.

A writer goes on when its connection is lost, until it has had ``COUNT`` events accepted; an event
whose commit was not answered is written again under another key, so the table alone says what
was committed.
"""

import random
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import dagster as dg
import psycopg2
from dagster import DagsterEvent, DagsterEventType, DagsterInstance, EventLogEntry
from dagster._core.events import StepMaterializationData
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._time import get_current_timestamp

ASSET = ("raw", "flights")
PAUSE_WHEN_REFUSED = 0.05


def entry(partition: str, *, size: int = 100) -> EventLogEntry:
    """The entry of a partition of raw/flights."""
    return entry_of(
        dg.AssetMaterialization(
            list(ASSET), partition=partition, metadata={"bytes": size, "rows": 3}
        )
    )


def entry_of(materialization: dg.AssetMaterialization) -> EventLogEntry:
    """The entry that ``report_runless_asset_event`` makes of a materialization."""
    return EventLogEntry(  # type: ignore[no-untyped-call]
        user_message="",
        level=20,
        job_name="",
        run_id="",
        error_info=None,
        timestamp=get_current_timestamp(),
        dagster_event=DagsterEvent(
            event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
            job_name="",
            event_specific_data=StepMaterializationData(materialization, []),
        ),
    )


def write(way: str, home: str, count: int, name: str, dsn: str) -> None:
    """Writes at least ``count`` events whose partition keys begin with ``name``."""
    instance = DagsterInstance.from_config(home)
    if way == "raw":
        _write_raw(instance, dsn, count, name)
        return
    storage: Any = instance.event_log_storage
    attempt = written = 0
    while written < count:
        attempt += 1
        key = f"{name}-{attempt}"
        try:
            if way == "api":
                instance.report_runless_asset_event(
                    dg.AssetMaterialization(
                        list(ASSET), partition=key, metadata={"bytes": 100, "rows": 3}
                    )
                )
                written += 1
            else:
                storage.store_event_batch([entry(f"{key}-{i}") for i in range(20)])
                written += 20
        except Exception:
            time.sleep(PAUSE_WHEN_REFUSED)


@contextmanager
def late_commit(instance: DagsterInstance, dsn: str) -> Iterator[int]:
    """Commits one event at the end of the block, and a later one, whose id it yields, before.

    A cursor that has read the later one in the block misses the other, at whatever pace it reads.
    """
    storage: Any = instance.event_log_storage
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        _insert(storage, cursor, "late")
        storage.store_event_batch([entry("after the late one")])
        cursor.execute("select max(id) from event_logs where partition = 'after the late one'")
        yield int((cursor.fetchone() or (0,))[0])
        connection.commit()


def _write_raw(instance: DagsterInstance, dsn: str, count: int, name: str) -> None:
    chance = random.Random(name)
    storage: Any = instance.event_log_storage
    connection: Any = None
    attempt = written = 0
    while written < count:
        attempt += 1
        try:
            if connection is None:
                connection = psycopg2.connect(dsn)
            fate = chance.random()
            wanted = chance.randint(1, 6)
            accepted = 0
            with connection.cursor() as cursor:
                for number in range(wanted):
                    if fate < 0.15:
                        cursor.execute("savepoint part")
                    _insert(storage, cursor, f"{name}-{attempt}-{number}")
                    accepted += 1
                    if chance.random() < 0.3:
                        time.sleep(chance.random() * 0.02)
                    if fate < 0.15 and number % 2:
                        cursor.execute("rollback to savepoint part")
                        accepted -= 1
            if 0.15 < fate < 0.35:
                connection.rollback()
            else:
                if fate > 0.98:
                    time.sleep(0.3)
                connection.commit()
                written += accepted
        except psycopg2.Error:
            connection = None
            time.sleep(PAUSE_WHEN_REFUSED)


def _insert(storage: Any, cursor: Any, partition: str) -> None:
    row = storage._event_to_row(entry(partition))
    columns = [column.name for column in SqlEventLogStorageTable.c if column.name in row]
    names = ", ".join(f'"{column}"' for column in columns)
    marks = ", ".join(["%s"] * len(columns))
    cursor.execute(
        f"insert into event_logs ({names}) values ({marks})", [row[column] for column in columns]
    )
