"""Iceberg tables and their files: pyiceberg keeps the tables, Spark reads and writes the rows.

::

    catalog = open_catalog(settings)
    table = ensure_table(catalog, "lake.flights", schema, partition_spec=spec)
    append(spark, dataframe, table, once="job-17")            # or replacing=EqualTo("day", day)
    read(spark, table, row_filter=EqualTo("origin", "JFK"))

A Spark session comes from :func:`spark_session` in a program, and from
:func:`arctic_orchestration.lake.spark_resource.pyspark_resource` in a Dagster run.

Names are loaded on first use: finding a Java must not import Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from arctic_orchestration.errors import MissingExtra

if TYPE_CHECKING:
    from arctic_orchestration.lake.java import JavaHome, find_java
    from arctic_orchestration.lake.session import spark_properties, spark_session
    from arctic_orchestration.lake.table_reader import read
    from arctic_orchestration.lake.table_writer import Appended, append
    from arctic_orchestration.lake.tables import ensure_table, open_catalog

__all__ = [
    "Appended",
    "JavaHome",
    "append",
    "ensure_table",
    "find_java",
    "open_catalog",
    "read",
    "spark_properties",
    "spark_session",
]

_HOMES = {
    "Appended": "table_writer",
    "JavaHome": "java",
    "append": "table_writer",
    "ensure_table": "tables",
    "find_java": "java",
    "open_catalog": "tables",
    "read": "table_reader",
    "spark_properties": "session",
    "spark_session": "session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        raise MissingExtra.of(error) or error
