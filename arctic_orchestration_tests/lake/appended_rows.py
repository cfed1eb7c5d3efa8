"""Rows to append, their table, and what it has of them."""

from pathlib import Path
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DoubleType,
    LongType,
    NestedField,
    StringType,
)
from pyspark.sql import DataFrame, SparkSession

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "origin", StringType()),
    NestedField(3, "delay", DoubleType()),
)


BY_ORIGIN = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "origin"))


def rows(spark: SparkSession, *values: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), "id long, origin string, delay double")


def ids(table: Table) -> list[int]:
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


def files_in(table: Table) -> set[str]:
    """The Parquet files below the table, whether a snapshot has them or not."""
    return {str(path) for path in Path(table.location()).rglob("*.parquet")}


def live_files(table: Table) -> set[str]:
    return {task.file.file_path for task in table.refresh().scan().plan_files()}
