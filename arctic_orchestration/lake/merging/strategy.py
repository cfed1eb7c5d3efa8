"""The strategy by which the files of a group are merged, with its reason.

Copying row groups is far cheaper than decoding them, and does far less; it is chosen only where
nothing is lost.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pyiceberg.types as iceberg
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from arctic_orchestration.errors import LakeError, UnsupportedFile
from arctic_orchestration.lake.arrow_files import why_misread
from arctic_orchestration.lake.clustering import is_sorted
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.merging.lineage import why_lineage_is_lost, with_own_lineage
from arctic_orchestration.lake.merging.row_groups import Footer, FooterUnreadable, read_footers
from arctic_orchestration.lake.parquet_footers import with_ids
from arctic_orchestration.lake.row_lineage import FIRST_VERSION, with_lineage
from arctic_orchestration.lake.schema import without_unknown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MB = 1_000_000
#: The average size of a row group from which on copying is right. Measured once, on a busy machine,
#: with 11 columns and zstd: compared to row groups of 1 MB, scans by DuckDB and pyarrow took 1.1
#: and 1.4 times the CPU time with 0.25 MB, 1.6 and 2.6 times with 0.07 MB; with 2 and 6 MB it was
#: between 0.7 and 1.5 times, without a trend. The size stays lost: compared to 6 MB a file was 1.18
#: times as large with 1 MB, 1.22 times with 0.5 MB, 1.33 times with 0.07 MB.
SMALLEST_ROW_GROUP = _MB

_UNCOMPRESSED = "UNCOMPRESSED"


class Way(StrEnum):
    """How files are merged."""

    #: Spark reads the rows and writes them again
    DECODE = "decode"
    #: row groups are copied as they are
    APPEND = "append"


def choose_way(spark: "SparkSession | None", table: Table, group: FileGroup) -> tuple[Way, str]:
    """Chooses to append row groups if that loses nothing; else returns why they are decoded.

    Appending requires at least two Parquet files, of one physical schema that matches the table's
    current one by names, ids and types, without deleted rows, of a table without a sort order,
    compressed, with row groups of :data:`SMALLEST_ROW_GROUP` bytes on average; in format 3, with
    the row lineage as columns. The footers are read only if the rest allows it, in parallel.

    Args:
        spark: the session that will run it; None considers the files alone.

    Errors:
        LakeError: a file cannot be read at all.
    """
    if len(group.files) < 2:
        return Way.DECODE, "a file alone gains nothing by being copied"
    footers = _copyable(spark, table, group)
    if isinstance(footers, str):
        return Way.DECODE, footers
    if loss := _loss(footers, group):
        return Way.DECODE, loss
    return Way.APPEND, (
        f"{len(group.files)} files of one schema, no deletes, row groups of "
        f"{_mean_row_group(footers, group) / _MB:.1f} MB: copied without decoding"
    )


def why_not_appended(spark: "SparkSession | None", table: Table, group: FileGroup) -> str | None:
    """Returns why appending the row groups would write wrong files; None: it would not.

    Correct files may still be of little use: small row groups stay small, and are allowed here.

    Errors:
        LakeError: a file cannot be read at all.
    """
    footers = _copyable(spark, table, group)
    return footers if isinstance(footers, str) else None


def _copyable(
    spark: "SparkSession | None", table: Table, group: FileGroup
) -> Sequence[Footer] | str:
    """Returns the files' footers, or why their row groups cannot be copied unchanged."""
    hindrance = _known_hindrance(spark, table, group)
    if hindrance is not None:
        return hindrance
    try:
        footers = read_footers(table.io, (file.path for file in group.files))
    except FooterUnreadable as error:
        return str(error)
    schema = without_unknown(table.schema())
    if table.format_version >= FIRST_VERSION:
        if lost := why_lineage_is_lost(footers):
            return lost
        schema = with_lineage(schema)
    return next(_hindrances(footers, schema), None) or footers


def _known_hindrance(spark: "SparkSession | None", table: Table, group: FileGroup) -> str | None:
    """Returns the reason in the plan against copying."""
    if spark is not None and getattr(spark, "_jvm", None) is None:
        return "Spark Connect has no JVM here to copy row groups in"
    other = next((file for file in group.files if file.file_format.lower() != "parquet"), None)
    if other is not None:
        return f"{other.path} is {other.file_format}, not Parquet"
    deleted = sum(1 for file in group.files if file.deletes)
    if deleted:
        return f"rows are deleted from {deleted} of {len(group.files)} files"
    if is_sorted(table):
        return "merged files are sorted, and copied row groups are not"
    return None


def _hindrances(footers: Sequence[Footer], schema: Schema) -> Iterator[str]:
    """Yields the reasons in the footers against copying, the strongest first."""
    for footer in footers:
        if footer.is_encrypted:
            yield f"{footer.path} is encrypted"
    schemas = {footer.schema: footer for footer in footers}
    if len(schemas) > 1:
        yield f"the {len(footers)} files have {len(schemas)} physical schemas"
    for footer in schemas.values():
        problem = next(misfits(footer, schema), None)
        if problem is not None:
            yield f"{footer.path} has not the table's schema: {problem}"
    for footer in footers:
        why = why_misread(footer.metadata)
        if why is not None:
            yield f"{footer.path} {why}"


def _loss(footers: Sequence[Footer], group: FileGroup) -> str | None:
    """Returns the advantage of decoded files."""
    for footer in footers:
        if _is_uncompressed(footer):
            return f"{footer.path} is not compressed"
    if not any(footer.metadata.num_rows for footer in footers):
        return "the files have no rows"
    mean = _mean_row_group(footers, group)
    if mean < SMALLEST_ROW_GROUP:
        return (
            f"row groups of {mean / _MB:.2f} MB on the average, "
            f"and below {SMALLEST_ROW_GROUP / _MB:.2f} MB they would keep the table slow"
        )
    return None


def _mean_row_group(footers: Sequence[Footer], group: FileGroup) -> float:
    count = sum(1 for footer in footers for rows, _ in footer.row_groups if rows)
    return sum(file.size for file in group.files) / max(1, count)


def require_current_schema(table: Table, group: FileGroup) -> None:
    """Refuses files whose columns differ from the table's current ones.

    Errors:
        UnsupportedFile: a column was renamed, widened or dropped since the file was written.
        LakeError: a file cannot be read.
    """
    for footer in read_footers(table.io, (file.path for file in group.files)):
        problem = next(misfits(footer, with_own_lineage(footer, table.schema())), None)
        if problem is not None:
            raise UnsupportedFile(
                f"{'.'.join(table.name())}: {footer.path} was written with an earlier schema "
                f"({problem}), which Spark 3.5 cannot merge: expected PySpark 4"
            )


def misfits(footer: Footer, schema: Schema) -> Iterator[str]:
    """Yields how a file's columns differ from the table's current ones: names, ids, types."""
    try:
        if with_ids(footer.thrift, schema) != footer.thrift:
            yield "field ids are missing"
    except LakeError as error:
        yield str(error)
    ids = parquet_path_to_id_mapping(schema)
    leaves = footer.metadata.schema
    for number in range(len(leaves)):
        column = leaves.column(number)
        if column.path not in ids:
            yield f"column {column.path} is not the table's"
            continue
        expected = schema.find_type(ids[column.path])
        if not _is_of_type(column, expected):
            kind = column.physical_type
            if column.logical_type.type != "NONE":
                kind = f"{kind} ({column.logical_type})"
            yield f"column {column.path} is {kind}, expected {expected}"


#: The specification's physical and logical types for a type, in pyarrow's names. Shapes are not
#: copied: PySpark 3.5 cannot read their annotation.
_PHYSICAL: dict[type[iceberg.IcebergType], tuple[str, tuple[str, ...]]] = {
    iceberg.BooleanType: ("BOOLEAN", ("NONE",)),
    iceberg.IntegerType: ("INT32", ("NONE", "INT")),
    iceberg.LongType: ("INT64", ("NONE", "INT")),
    iceberg.FloatType: ("FLOAT", ("NONE",)),
    iceberg.DoubleType: ("DOUBLE", ("NONE",)),
    iceberg.DateType: ("INT32", ("DATE",)),
    iceberg.TimeType: ("INT64", ("TIME",)),
    iceberg.TimestampType: ("INT64", ("TIMESTAMP",)),
    iceberg.TimestamptzType: ("INT64", ("TIMESTAMP",)),
    iceberg.TimestampNanoType: ("INT64", ("TIMESTAMP",)),
    iceberg.TimestamptzNanoType: ("INT64", ("TIMESTAMP",)),
    iceberg.StringType: ("BYTE_ARRAY", ("STRING",)),
    iceberg.BinaryType: ("BYTE_ARRAY", ("NONE",)),
    iceberg.UUIDType: ("FIXED_LEN_BYTE_ARRAY", ("UUID", "NONE")),
    iceberg.FixedType: ("FIXED_LEN_BYTE_ARRAY", ("NONE",)),
}


def _is_of_type(column: pq.ColumnSchema, expected: iceberg.IcebergType) -> bool:
    logical = column.logical_type
    if isinstance(expected, iceberg.DecimalType):
        return (logical.type, column.precision, column.scale) == (
            "DECIMAL",
            expected.precision,
            expected.scale,
        )
    physical, kinds = _PHYSICAL.get(type(expected), ("", ()))
    if column.physical_type != physical or logical.type not in kinds:
        return False
    form = logical.to_json()
    match expected:
        case iceberg.IntegerType() | iceberg.LongType():
            bits = 32 if physical == "INT32" else 64
            return logical.type == "NONE" or f'"bitWidth":{bits},"isSigned":true' in form
        case iceberg.TimeType():
            return '"microseconds"' in form
        case iceberg.TimestampType():
            return '"microseconds"' in form and '"isAdjustedToUTC":false' in form
        case iceberg.TimestamptzType():
            return '"microseconds"' in form and '"isAdjustedToUTC":true' in form
        case iceberg.TimestampNanoType():
            return '"nanoseconds"' in form and '"isAdjustedToUTC":false' in form
        case iceberg.TimestamptzNanoType():
            return '"nanoseconds"' in form and '"isAdjustedToUTC":true' in form
        case iceberg.UUIDType():
            return int(column.length) == 16
        case iceberg.FixedType():
            return int(column.length) == len(expected)
        case _:
            return True


def _is_uncompressed(footer: Footer) -> bool:
    if not footer.row_groups:
        return False
    group = footer.metadata.row_group(0)
    codecs = {group.column(number).compression for number in range(group.num_columns)}
    return codecs == {_UNCOMPRESSED}
