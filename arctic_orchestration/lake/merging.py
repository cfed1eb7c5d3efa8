"""Merges a group of an Iceberg table's data files into fewer files, and commits nothing.

Readers find the same rows in the outputs: those of the inputs without the deleted ones, with the
table's current columns. Where a column that the table requires holds a null, the null stays, as
readers see it today; refusing it would leave the files small for ever and mend nothing.

Of the outputs nothing is believed: their footers are read, and there must be as many rows as in the
inputs without those that the deletes took away, which are counted apart from what was written.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyspark.sql.functions as F
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import VoidTransform
from pyiceberg.utils.properties import property_as_int
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import InvalidInput, LakeError
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake.data_files import files_below, remove_directory, with_all_ids
from arctic_orchestration.lake.deletes import plain_path
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.live_rows import live_rows
from arctic_orchestration.lake.partitioning import transformed
from arctic_orchestration.lake.row_groups import append_row_groups, read_footers
from arctic_orchestration.lake.schema import require_supported, require_supported_format
from arctic_orchestration.lake.session import require_lake_session
from arctic_orchestration.lake.ways import Way, choose_way

#: So much greater than the target may an output be before there is one more of them.
_TOLERANCE = 1.25
_FILES_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFile:
    """A finished file that belongs to no snapshot yet; its size in bytes."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    """What a merge made of its group."""

    outputs: tuple[OutputFile, ...]
    rows_in: int
    rows_deleted: int
    rows_out: int
    way: Way
    #: why this way was taken
    because: str
    #: the sort order of the table, if the outputs are sorted by it
    sort_order_id: int | None = None


def merge(
    spark: SparkSession,
    table: Table,
    group: FileGroup,
    directory: str,
    *,
    target_bytes: int,
    way: Way | None = None,
) -> Merged:
    """Writes the rows of the group's files into new files below a directory.

    All files of the group have one partition, and so have the outputs. One Spark job writes them,
    without a shuffle; equality deletes are read by a small one before it, for each set of columns.
    Outputs are near ``target_bytes``: as the inputs are encoded otherwise, they may be smaller.
    They are sorted if the table has a sort order. Without one the rows of an input stay together
    and in order; inputs follow each other by their size if they become one file, and in the order
    of the group if they become several.

    When it fails, what it wrote is removed, or said to be left.

    Args:
        table: as it was loaded; its current schema, sort order and properties count.
        directory: of this merge alone, in the form that the table's own file paths have.
        way: None: whichever :func:`~arctic_orchestration.lake.ways.choose_way` finds right.

    Errors:
        UnsupportedTable: the format version, a type or a file would not survive.
        InvalidInput: a property of the table has a bad value.
        LakeError: a file is missing or not what the table says of it, Spark failed, the disk is
            full, or the outputs do not have the rows that they should have.
        ConfigurationError: the Spark session lacks a setting that the lake needs.
    """
    name = ".".join(table.name())
    require_lake_session(spark)
    require_supported_format(table.format_version, name)
    if target_bytes < 1:
        raise InvalidInput("target_bytes", target_bytes, "a number of bytes above zero")
    because = "it was asked for"
    if way is None:
        way, because = choose_way(spark, table, group)
    below = f"{directory.rstrip('/')}/rows-{new_id(utc_now())}"
    written = _appended if way == Way.APPEND else _decoded
    try:
        outputs, rows_deleted, sort_order_id = written(spark, table, group, below, target_bytes)
    except BaseException as error:
        _clean_up(spark, below, error)
        if isinstance(error, PySparkException | Py4JError):
            raise LakeError(
                f"{name}: merging {len(group.files)} files failed: {_reason(error)}"
            ) from error
        raise
    return Merged(
        outputs=outputs,
        rows_in=group.rows,
        rows_deleted=rows_deleted,
        rows_out=sum(output.rows for output in outputs),
        way=way,
        because=because,
        sort_order_id=sort_order_id,
    )


_Written = tuple[tuple[OutputFile, ...], int, int | None]


def _appended(
    spark: SparkSession, table: Table, group: FileGroup, directory: str, target_bytes: int
) -> _Written:
    paths = append_row_groups(spark, table, group, directory, target_bytes)
    outputs = _finished(table, paths)
    _require_all(table, group, 0, outputs)
    return outputs, 0, None


def _decoded(
    spark: SparkSession, table: Table, group: FileGroup, directory: str, target_bytes: int
) -> _Written:
    name = ".".join(table.name())
    require_supported(table.schema(), name)
    order = table.sort_order()
    count = _outputs_wanted(group, target_bytes)
    live = live_rows(spark, table, group, in_order=order.is_unsorted and count > 1)
    rows = live.rows
    if not order.is_unsorted:
        rows = _sorted(rows, table)
    _write(rows, table, directory, math.ceil((live.rows_in - live.deleted_by_position) / count))
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        found = sorted(files_below(spark, directory))
        outputs = _finished(table, list(pool.map(partial(with_all_ids, table), found)))
    deleted = live.deleted_by_position + live.deleted_by_equality()
    _require_all(table, group, deleted, outputs)
    return outputs, deleted, None if order.is_unsorted else order.order_id


def _outputs_wanted(group: FileGroup, target_bytes: int) -> int:
    """How many outputs come nearest to the target; better one that is a little too large than
    two of which each is far too small."""
    size = sum(file.size for file in group.files)
    count = max(1, size // target_bytes)
    return count if size / count <= _TOLERANCE * target_bytes else count + 1


def _write(rows: DataFrame, table: Table, directory: str, rows_per_file: int) -> None:
    writer = (
        rows.write.option("compression", "zstd")
        .option("maxRecordsPerFile", str(max(1, rows_per_file)))
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    )
    key = TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES
    if key in table.properties:
        writer = writer.option("parquet.block.size", str(_positive(table, key)))
    writer.parquet(directory)


def _positive(table: Table, key: str) -> int:
    expected = "a number of bytes above zero"
    try:
        value = property_as_int(table.properties, key)
    except ValueError as error:
        raise InvalidInput(key, table.properties[key], expected) from error
    if value is None or value < 1:
        raise InvalidInput(key, table.properties[key], expected)
    return value


def _sorted(rows: DataFrame, table: Table) -> DataFrame:
    """The rows in the table's sort order; refuses one that cannot be computed."""
    keys = [
        _sort_key(field, transformed(field.transform, field.source_id, table.schema()))
        for field in table.sort_order().fields
        if not isinstance(field.transform, VoidTransform)
    ]
    return rows.sortWithinPartitions(*keys) if keys else rows


def _sort_key(field: SortField, column: Column) -> Column:
    first = field.null_order == NullOrder.NULLS_FIRST
    if field.direction == SortDirection.ASC:
        return F.asc_nulls_first(column) if first else F.asc_nulls_last(column)
    return F.desc_nulls_first(column) if first else F.desc_nulls_last(column)


def _finished(table: Table, paths: list[str]) -> tuple[OutputFile, ...]:
    """The outputs by their footers; those without rows are removed."""
    outputs = []
    for path, footer in zip(paths, read_footers(table.io, map(plain_path, paths)), strict=True):
        if footer.metadata.num_rows:
            size = len(table.io.new_input(plain_path(path)))
            outputs.append(OutputFile(path=path, size=size, rows=footer.metadata.num_rows))
        else:
            table.io.delete(plain_path(path))
    return tuple(outputs)


def _require_all(
    table: Table, group: FileGroup, deleted: int, outputs: tuple[OutputFile, ...]
) -> None:
    written = sum(output.rows for output in outputs)
    if written != group.rows - deleted:
        raise LakeError(
            f"{'.'.join(table.name())}: {written} rows were written, expected "
            f"{group.rows - deleted}: {group.rows} of {len(group.files)} files without {deleted} "
            "deleted ones"
        )


def _clean_up(spark: SparkSession, directory: str, error: BaseException) -> None:
    try:
        remove_directory(spark, directory)
    except Exception as failure:
        error.add_note(f"{directory} could not be removed: {failure}")


def _reason(error: Exception) -> str:
    """What Java said, down to the first cause; without its stack."""
    said: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    parts: list[str] = []
    while said is not None:
        parts.append(str(said.toString()).splitlines()[0])
        said = said.getCause()
    return "; ".join(dict.fromkeys(parts)) or str(error)
