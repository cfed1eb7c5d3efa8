"""The columns of a table that is created for the rows of a query."""

import pyiceberg.types as iceberg
import pyspark.sql.types as spark
from pyiceberg.schema import Schema

from arctic_orchestration.errors import UnsupportedTable

_KINDS: dict[type[spark.DataType], iceberg.IcebergType] = {
    spark.BooleanType: iceberg.BooleanType(),
    spark.ByteType: iceberg.IntegerType(),
    spark.ShortType: iceberg.IntegerType(),
    spark.IntegerType: iceberg.IntegerType(),
    spark.LongType: iceberg.LongType(),
    spark.FloatType: iceberg.FloatType(),
    spark.DoubleType: iceberg.DoubleType(),
    spark.DateType: iceberg.DateType(),
    spark.TimestampType: iceberg.TimestamptzType(),
    spark.TimestampNTZType: iceberg.TimestampType(),
    spark.StringType: iceberg.StringType(),
    spark.BinaryType: iceberg.BinaryType(),
}


def schema_for(rows: spark.StructType, table: str) -> Schema:
    """Returns Iceberg's schema for Spark rows: optional columns, numbered from 1 in their order.

    Errors:
        UnsupportedTable: a duplicate name, or a column type that needs a table created manually.
    """
    problems = []
    columns = []
    seen: set[str] = set()
    for number, field in enumerate(rows.fields, start=1):
        kind = _kind(field.dataType)
        if kind is None:
            found = field.dataType.simpleString()
            problems.append(f"column {field.name}: got {found}, expected a plain type; cast it")
        elif field.name.lower() in seen:
            problems.append(f"column {field.name}: got it twice, expected it once")
        else:
            columns.append(iceberg.NestedField(number, field.name, kind, required=False))
        seen.add(field.name.lower())
    if problems:
        raise UnsupportedTable(f"{table} is to be made: " + "; ".join(problems))
    return Schema(*columns)


def _kind(found: spark.DataType) -> iceberg.IcebergType | None:
    if isinstance(found, spark.DecimalType):
        return iceberg.DecimalType(found.precision, found.scale)
    return _KINDS.get(type(found))
