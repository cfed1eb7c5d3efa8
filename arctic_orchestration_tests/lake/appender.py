"""Processes that make a table, or append to one, on request."""

from multiprocessing.connection import Connection
from pathlib import Path

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from arctic_orchestration.lake import append, ensure_table, open_catalog
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.sessions import RunningJvm
from arctic_orchestration_tests.proofs.processes import end_with_the_parent

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))


def append_batches(
    connection: Connection, lake: Path, name: str, jvm: RunningJvm, who: int, batches: int
) -> None:
    """Appends ten rows at a time, and sends the number of each batch that is in the table.

    Each has a key of its own, so that one that is killed can be started again.
    """
    end_with_the_parent()
    spark = jvm.session()
    table = open_catalog(settings_for(lake)).load_table(name)
    connection.send("ready")
    connection.recv()
    for batch in range(batches):
        first = who * 1000 + batch * 10
        append(spark, spark.range(first, first + 10), table, once=f"{who}-{batch}")
        connection.send(batch)


def make_table(connection: Connection, lake: Path, name: str) -> None:
    """Sends the id of the table that it has got."""
    end_with_the_parent()
    connection.send("ready")
    connection.recv()
    catalog = open_catalog(settings_for(lake))
    connection.send(ensure_table(catalog, name, SCHEMA).metadata.table_uuid)
