"""Partitions of rows, for Spark; and the partition of a file, by pyiceberg.

Spark only has to separate rows of different partitions. pyiceberg computes the partition's value
from a row of the finished file, so that both agree however Spark's functions treat dates before
1970 or an empty string.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.types as iceberg
import pyspark.sql.functions as F
from pyiceberg.partitioning import PartitionSpec, _to_partition_representation
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyspark.sql import Column

from arctic_orchestration.errors import SchemaMismatch, UnsupportedTable
from arctic_orchestration.lake.schema import column_at, path_of
from arctic_orchestration.lake.spark_versions import arrow_function

_NULL = "null"
#: Spark's longest decimals, and how much of the scale its arithmetic keeps in any case.
_MOST_DIGITS, _DIGITS_KEPT = 38, 6
_UNITS: dict[type[Transform[Any, Any]], str] = {
    YearTransform: "year",
    MonthTransform: "month",
    DayTransform: "day",
    HourTransform: "hour",
}


def require_supported_spec(spec: PartitionSpec, schema: Schema, table: str) -> None:
    """Refuses transforms with values that cannot be computed.

    Errors:
        UnsupportedTable: names the partition field and its transform.
    """
    known = {IdentityTransform, VoidTransform, BucketTransform, TruncateTransform, *_UNITS}
    for field in spec.fields:
        if type(field.transform) not in known:
            raise UnsupportedTable(
                f"{table}: partition field {field.name} has the unknown transform {field.transform}"
            )
        path_of(schema, field.source_id)
        required = schema.find_field(field.source_id).required
        if required and isinstance(field.transform, VoidTransform):
            raise UnsupportedTable(
                f"{table}: partition field {field.name} is void, and its column is required: "
                "pyiceberg cannot write its null"
            )


def partition_group(spec: PartitionSpec, schema: Schema) -> Column | None:
    """Returns a text that is equal for rows of one partition only; None: there is one partition.

    It is a hash, because it becomes the name of a directory: values may be long, empty, or contain
    any character.
    """
    parts = [
        F.coalesce(F.md5(_value(field.transform, field.source_id, schema)), F.lit(_NULL))
        for field in spec.fields
        if not isinstance(field.transform, VoidTransform)
    ]
    return F.md5(reduce(F.concat, parts).cast("binary")) if parts else None


def partition_of(file: pq.ParquetFile, spec: PartitionSpec, schema: Schema) -> Record:
    """Returns the partition of a file with rows of one partition, from its first row.

    Errors:
        SchemaMismatch: its date or timestamp is before year 1 or after 9999.
    """
    paths = {
        field.source_id: path_of(schema, field.source_id)
        for field in spec.fields
        if not isinstance(field.transform, VoidTransform)
    }
    if not paths:
        return Record(*([None] * len(spec.fields)))
    wanted = list({path[0] for path in paths.values()})
    row = next(file.iter_batches(batch_size=1, columns=wanted))
    values: list[Any] = []
    for field in spec.fields:
        if field.source_id not in paths:
            values.append(None)
            continue
        kind = schema.find_type(field.source_id)
        source = _to_partition_representation(kind, _first(row, paths[field.source_id]))
        values.append(field.transform.transform(kind)(source))
    return Record(*values)


def _first(row: pa.RecordBatch, path: tuple[str, ...]) -> Any:
    value = row.column(path[0])[0]
    for name in path[1:]:
        value = value[name] if value.is_valid else pa.scalar(None)
    try:
        return value.as_py()
    except OverflowError as error:
        # pyiceberg computes its partition, and the snapshot's summary, with Python's dates.
        raise SchemaMismatch(
            f"column {'.'.join(path)}: got {value.cast(pa.string())}, expected a year from 1 to "
            "9999, as the table is partitioned by it"
        ) from error


def transformed(
    transform: Transform[Any, Any], path: tuple[str, ...], kind: iceberg.IcebergType
) -> Column:
    """Returns the value of a transform that is not void, or one with the same order.

    Years to hours are the moments at which they begin.

    Errors:
        UnsupportedTable: the transform is unknown.
    """
    column = column_at(path)
    if isinstance(transform, IdentityTransform):
        return column
    if isinstance(transform, BucketTransform):
        return _bucket(column, transform, kind)
    if isinstance(transform, TruncateTransform):
        if isinstance(kind, iceberg.DecimalType) and _is_rounded(kind):
            return _truncated_exactly(column, transform, kind)
        return _truncated(column, transform.width, kind)
    unit = _UNITS.get(type(transform))
    if unit is None:
        raise UnsupportedTable(f"field {'.'.join(path)} has the unknown transform {transform}")
    return F.date_trunc(unit, column)


def _value(transform: Transform[Any, Any], source_id: int, schema: Schema) -> Column:
    kind = schema.find_type(source_id)
    value = transformed(transform, path_of(schema, source_id), kind)
    is_binary = isinstance(kind, iceberg.BinaryType) and not isinstance(transform, BucketTransform)
    return value if is_binary else value.cast("string").cast("binary")


def _truncated(column: Column, width: int, kind: iceberg.IcebergType) -> Column:
    match kind:
        case iceberg.StringType() | iceberg.BinaryType():
            return F.substring(column, 1, width)
        case iceberg.DecimalType():
            return column - F.pmod(column, F.lit(Decimal(width).scaleb(-kind.scale)))
        case _:
            return column - F.pmod(column, F.lit(width))


def _is_rounded(kind: iceberg.DecimalType) -> bool:
    """Returns whether a difference of two of these needs a digit that Spark takes of the scale."""
    return kind.precision == _MOST_DIGITS and kind.scale > _DIGITS_KEPT


def _truncated_exactly(
    column: Column, transform: TruncateTransform[Any], kind: iceberg.DecimalType
) -> Column:
    truncate = transform.transform(kind)

    def truncated(values: pa.Array) -> pa.Array:
        return pa.array(map(truncate, values.to_pylist()), values.type)

    return _by_arrow(truncated, f"decimal({kind.precision},{kind.scale})", transform)(column)


def _bucket(column: Column, transform: BucketTransform[Any], kind: iceberg.IcebergType) -> Column:
    # Spark's own Murmur3 differs from Iceberg's in the seed and in the last bytes of a string.
    # The workers' Python needs pyiceberg for it.
    def bucket(values: pa.Array) -> pa.Array:
        if isinstance(kind, iceberg.DecimalType):
            # Spark's batches are aligned to 8 bytes, and pyiceberg-core requires 16 here.
            values = pa.array(values.to_pylist(), values.type)
        return transform.pyarrow_transform(kind)(values)

    return _by_arrow(bucket, "int", transform)(column)


def _by_arrow(
    function: Callable[[pa.Array], pa.Array], returns: str, transform: Transform[Any, Any]
) -> Callable[[Column], Column]:
    made = arrow_function(function, returns)
    if made is None:
        raise UnsupportedTable(f"{transform}: PySpark 3.5 cannot compute it, expected PySpark 4")
    return made
