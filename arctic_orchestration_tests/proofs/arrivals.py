"""A process that writes arrivals of many assets into Dagster's event log.

Asset ``raw/a<i>`` gets the partitions ``<writer>-<n>`` that are its share of the writer's numbers.
Half of the writers store through Dagster's storage, in batches; the others insert rows of the
same shape in transactions of their own, which commit late and out of order, and take one of five
back, to write it again.
"""

import random
import time
from multiprocessing.synchronize import Barrier
from typing import Any

import dagster as dg
import psycopg2
from dagster import DagsterInstance, EventLogEntry
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable

from arctic_orchestration_tests.event_log.writers import entry_of

_TOGETHER = 20
_OPEN_SECONDS = 0.02


def arrivals_of(writer: int, count: int, assets: int) -> list[tuple[int, str]]:
    """(asset, partition) of everything that a writer writes."""
    return [((writer + number) % assets, f"{writer}-{number}") for number in range(count)]


def entry(asset: int, partition: str) -> EventLogEntry:
    """What Dagster stores of a materialization that was reported from outside of a run."""
    return entry_of(dg.AssetMaterialization(["raw", f"a{asset}"], partition=partition))


def write(home: str, dsn: str, writer: int, count: int, assets: int, together: Barrier) -> None:
    """Writes the arrivals of one writer, each committed once, when all are there."""
    instance = DagsterInstance.from_config(home)
    storage: Any = instance.event_log_storage
    chance = random.Random(writer)
    todo = arrivals_of(writer, count, assets)
    connection = psycopg2.connect(dsn)
    together.wait()
    while todo:
        some, todo = todo[:_TOGETHER], todo[_TOGETHER:]
        if writer % 2:
            storage.store_event_batch([entry(*arrival) for arrival in some])
            continue
        for arrival in some:
            _insert(storage, connection, entry(*arrival))
        time.sleep(chance.random() * _OPEN_SECONDS)
        if chance.random() < 0.2:
            connection.rollback()
            todo = some + todo
        else:
            connection.commit()
    connection.close()
    instance.dispose()


def _insert(storage: Any, connection: Any, one: EventLogEntry) -> None:
    row = storage._event_to_row(one)
    columns = [column.name for column in SqlEventLogStorageTable.c if column.name in row]
    names = ", ".join(f'"{column}"' for column in columns)
    marks = ", ".join(["%s"] * len(columns))
    with connection.cursor() as cursor:
        cursor.execute(
            f"insert into event_logs ({names}) values ({marks})",
            [row[column] for column in columns],
        )
