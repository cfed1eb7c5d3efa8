"""Rows in exactly the columns of a table: with its order, its types and its field ids."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pyiceberg.types as iceberg
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame

from arctic_orchestration.lake.schema import column_at, spark_schema

_REQUIRED = "a required column holds a null:"


def fitted(dataframe: DataFrame, schema: Schema) -> DataFrame:
    """Converts rows to the table's columns; missing ones have their default value, or null.

    The rows are known to fit. If a required column contains a null, the job that computes the rows
    fails, and :func:`null_found` identifies it.
    """
    found = dataframe.schema
    target = spark_schema(schema)
    return dataframe.select(
        *(
            # Also before: a null that is missing, or has no type, has no elements to look at.
            _guarded(_column(found, field).cast(target[field.name].dataType), field)
            # The cast puts the ids of nested fields into the type. DataFrame.to() would do all of
            # this, but the optimizer loses its ids.
            .cast(target[field.name].dataType)
            .alias(field.name, metadata=target[field.name].metadata)
            for field in schema.fields
        )
    )


def literal_of(kind: iceberg.IcebergType, value: Any) -> Column:
    """Returns a value of a type of Iceberg, such as a default value, as a column.

    Errors:
        UnsupportedTable: the type has no equivalent in Spark.
    """
    (field,) = spark_schema(Schema(iceberg.NestedField(1, "value", kind))).fields
    if isinstance(value, bytes):
        return F.unhex(F.lit(value.hex()))
    if isinstance(value, int) and (column := moment_of(kind, value)) is not None:
        return column
    if isinstance(value, date | Decimal):
        # As a text: a time without zone is not to be taken for one of this process's zone.
        value = str(value)
    return F.lit(value).cast(field.dataType)


def moment_of(kind: iceberg.IcebergType, value: int) -> Column | None:
    """Returns a date or timestamp, given as in manifests, as a column; None: it is another type."""
    match kind:
        case iceberg.DateType():
            return F.date_from_unix_date(F.lit(value))
        case iceberg.TimestamptzType():
            return F.timestamp_micros(F.lit(value))
        case iceberg.TimestampType():
            # The session's zone is UTC, so the wall time does not change.
            return F.timestamp_micros(F.lit(value)).cast("timestamp_ntz")
    return None


def null_found(error: Exception) -> str | None:
    """Returns the path of the required column that made a job fail because of a null."""
    _, found, after = str(error).partition(_REQUIRED)
    return after.split(";", 1)[0].strip() if found else None


def _column(found: spark.StructType, field: iceberg.NestedField) -> Column:
    if field.name not in found.names:
        return _default_of(field)
    column = column_at((field.name,))
    return ordered(column, found[field.name].dataType, field.field_type)


def _default_of(field: iceberg.NestedField) -> Column:
    default = field.write_default
    return F.lit(None) if default is None else literal_of(field.field_type, default)


def ordered(column: Column, found: spark.DataType, kind: iceberg.IcebergType) -> Column:
    """Returns the column with struct fields in the table's order: a cast matches by position."""
    if not _has_structs(kind):
        return column
    match found, kind:
        case spark.StructType(), iceberg.StructType():
            fields = [
                (
                    ordered(
                        column.getField(field.name), found[field.name].dataType, field.field_type
                    )
                    if field.name in found.names
                    else _default_of(field)
                ).alias(field.name)
                for field in kind.fields
            ]
            return F.when(column.isNotNull(), F.struct(*fields))
        case spark.ArrayType(), iceberg.ListType():
            return F.transform(
                column, lambda value: ordered(value, found.elementType, kind.element_type)
            )
        case spark.MapType(), iceberg.MapType():
            keys = F.transform_keys(
                column, lambda key, _: ordered(key, found.keyType, kind.key_type)
            )
            return F.transform_values(
                keys, lambda _, value: ordered(value, found.valueType, kind.value_type)
            )
    return column


def _has_structs(kind: iceberg.IcebergType) -> bool:
    match kind:
        case iceberg.StructType():
            return True
        case iceberg.ListType():
            return _has_structs(kind.element_type)
        case iceberg.MapType():
            return _has_structs(kind.key_type) or _has_structs(kind.value_type)
    return False


def _guarded(column: Column, field: iceberg.NestedField) -> Column:
    """Returns the column, or a failing job for a null in it or below where that is not allowed."""
    guarded = column
    for path, broken in _nulls(column, field, field.name):
        guarded = F.when(broken, F.raise_error(F.lit(f"{_REQUIRED} {path};"))).otherwise(guarded)
    return guarded


def _nulls(column: Column, field: iceberg.NestedField, path: str) -> Iterator[tuple[str, Column]]:
    """Yields the required paths at or below a field, each with the condition that it is null."""
    if field.required:
        yield path, column.isNull()
    yield from _nulls_inside(column, field.field_type, path)


def _nulls_inside(
    column: Column, kind: iceberg.IcebergType, path: str
) -> Iterator[tuple[str, Column]]:
    match kind:
        case iceberg.StructType():
            for field in kind.fields:
                for where, broken in _nulls(
                    column.getField(field.name), field, f"{path}.{field.name}"
                ):
                    yield where, column.isNotNull() & broken
        case iceberg.ListType():
            yield from _nulls_among(column, kind.element_field, f"{path}.element")
        case iceberg.MapType():
            yield from _nulls_among(F.map_keys(column), kind.key_field, f"{path}.key")
            yield from _nulls_among(F.map_values(column), kind.value_field, f"{path}.value")


def _nulls_among(
    values: Column, field: iceberg.NestedField, path: str
) -> Iterator[tuple[str, Column]]:
    # The conditions use a variable of the lambda, one lambda for each.
    paths = [where for where, _ in _nulls(F.lit(None), field, path)]
    for number, where in enumerate(paths):

        def broken(value: Column, number: int = number) -> Column:
            return list(_nulls(value, field, path))[number][1]

        yield where, F.coalesce(F.exists(values, lambda value: broken(value)), F.lit(False))
