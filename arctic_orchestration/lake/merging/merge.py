"""Merges a group of an Iceberg table's data files into fewer files; commits nothing.

The outputs contain the same rows for readers: those of the inputs without the deleted ones, with
the table's current columns. If a required column contains a null, the null stays, as readers see it
today; refusing it would leave the files small forever and fix nothing.

The outputs are verified: their footers are read, and they must have as many rows as the inputs
without the deleted ones, which are counted separately from the output.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from py4j.protocol import Py4JError
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import InvalidInput, LakeError, UnsupportedFile, UnsupportedTable
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake.arrow_rows import write_arrow_rows
from arctic_orchestration.lake.clustering import clustering_of, is_sorted
from arctic_orchestration.lake.data_files import files_below, remove_directory, with_all_ids
from arctic_orchestration.lake.file_access import file_access
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.file_sizes import outputs_wanted
from arctic_orchestration.lake.java_errors import reason_of
from arctic_orchestration.lake.merging.arrow_rewrite import WorkersUnable, rewritten
from arctic_orchestration.lake.merging.deletes import plain_path
from arctic_orchestration.lake.merging.live_rows import live_rows
from arctic_orchestration.lake.merging.parquet_properties import row_group_bytes, zstd_level
from arctic_orchestration.lake.merging.plain_files import plain_files, writing_of
from arctic_orchestration.lake.merging.row_groups import append_row_groups, read_footers
from arctic_orchestration.lake.merging.sessions import merging_session
from arctic_orchestration.lake.merging.sorting import sorted_rows
from arctic_orchestration.lake.merging.strategy import Way, choose_way, why_not_appended
from arctic_orchestration.lake.row_lineage import FIRST_VERSION, with_lineage
from arctic_orchestration.lake.schema import require_supported
from arctic_orchestration.lake.session import require_lake_session
from arctic_orchestration.lake.supported_formats import require_supported_format

_FILES_AT_ONCE = 8


class Engine(StrEnum):
    """The engine that decodes the rows."""

    #: Arrow, in a Python worker of Spark; for files whose values need no conversion
    ARROW = "arrow"
    #: Spark's own rows; for all files
    SPARK = "spark"


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFile:
    """A finished file that is in no snapshot yet; its size in bytes."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    """The result of merging a group."""

    outputs: tuple[OutputFile, ...]
    rows_in: int
    rows_deleted: int
    rows_out: int
    way: Way
    #: why this way was chosen; for decoding, also the engine and its reason
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
    engine: Engine | None = None,
) -> Merged:
    """Writes the rows of the group's files into new files below a directory.

    All files of the group have one partition, and so do the outputs. One Spark job writes them,
    without a shuffle.
    :func:`~arctic_orchestration.lake.file_sizes.outputs_wanted` gives the number of outputs; as the
    inputs are encoded otherwise, they may be smaller. They are sorted if the table has a sort order
    or the property ``arctic.compaction.sort``. Otherwise, the rows of an input stay together and in
    order, and so do the inputs, with one exception: where Spark's own rows become one file, inputs
    are ordered by size.

    A failure removes its outputs, or reports that they were left.

    Args:
        table: as it was loaded; its current schema, sort order and properties apply.
        directory: of this merge alone, in the form of the table's own file paths.
        way: None: chosen by :func:`~arctic_orchestration.lake.merging.strategy.choose_way`.
            Appending is refused where it would write wrong files, and not where it is of little
            use.
        engine: for decoding. None: Arrow for the files of
            :func:`~arctic_orchestration.lake.merging.plain_files.plain_files`, else Spark.

    Errors:
        UnsupportedTable: the format version, or a file, would not survive.
        InvalidInput: a property of the table is invalid.
        LakeError: a file is missing or differs from the table's record of it, Spark failed, the
            disk is full, the outputs lack rows or have too many, or the requested engine or way
            does not fit the group.
        ConfigurationError: the Spark session lacks a setting that the lake needs.
    """
    name = ".".join(table.name())
    require_lake_session(spark)
    require_supported_format(table.format_version, name)
    if target_bytes < 1:
        raise InvalidInput("target_bytes", target_bytes, "a number of bytes above zero")
    because = "it was requested"
    if way is None:
        way, because = choose_way(spark, table, group)
    elif way == Way.APPEND and (reason := why_not_appended(spark, table, group)):
        raise LakeError(f"{name}: row groups cannot be copied: {reason}")
    below = f"{directory.rstrip('/')}/rows-{new_id(utc_now())}"
    try:
        if way == Way.APPEND:
            outputs = _appended(spark, table, group, below, target_bytes)
            rows_deleted, sort_order_id = 0, None
        else:
            (outputs, rows_deleted, sort_order_id), how = _decoded(
                spark, table, group, below, target_bytes, engine
            )
            because = f"{because}; {how}"
    except BaseException as error:
        _clean_up(table, below, error)
        if isinstance(error, PySparkException | Py4JError):
            raise LakeError(
                f"{name}: merging {len(group.files)} files failed: {reason_of(error)}"
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


_Outputs = tuple[tuple[OutputFile, ...], int, int | None]


def _appended(
    spark: SparkSession, table: Table, group: FileGroup, directory: str, target_bytes: int
) -> tuple[OutputFile, ...]:
    paths = append_row_groups(spark, table, group, directory, target_bytes)
    outputs = _finished(table, paths)
    _require_all(table, group, 0, outputs)
    return outputs


def _decoded(
    spark: SparkSession,
    table: Table,
    group: FileGroup,
    directory: str,
    target_bytes: int,
    engine: Engine | None,
) -> tuple[_Outputs, str]:
    """Decodes and rewrites the group; returns the outputs, with the engine and its reason."""
    name = ".".join(table.name())
    reason = "it was requested"
    if engine != Engine.SPARK:
        plain = plain_files(table, group)
        if isinstance(plain, str):
            reason = plain
        else:
            try:
                paths, deleted = rewritten(spark, table, group, plain, directory, target_bytes)
            except WorkersUnable as error:
                reason = f"Spark's workers cannot run it in Python: {error}"
            else:
                _remove_others(table, directory, paths)
                outputs = _finished(table, paths)
                _require_all(table, group, deleted, outputs)
                how = "decoded by Arrow in a worker of Spark"
                return (outputs, deleted, _sort_order_id(table)), how
        if engine == Engine.ARROW:
            raise LakeError(f"{name}: Arrow cannot decode {len(group.files)} files: {reason}")
    try:
        require_supported(table.schema(), name)
    except UnsupportedTable as error:
        # Of these files: Arrow decodes others.
        raise UnsupportedFile(f"{error}; and Arrow cannot decode the files: {reason}") from None
    written, missing = _decoded_by_spark(spark, table, group, directory, target_bytes)
    through = f"; files pass through Arrow, as {missing}" if missing else ""
    return written, f"decoded by Spark: {reason}{through}"


def _decoded_by_spark(
    spark: SparkSession, table: Table, group: FileGroup, directory: str, target_bytes: int
) -> tuple[_Outputs, str | None]:
    """Returns the outputs, and why the files passed through Arrow."""
    sorts = is_sorted(table)
    size = sum(file.size for file in group.files)
    count = outputs_wanted(size, target_bytes, files=len(group.files))
    with merging_session(spark) as session:
        live = live_rows(spark, session, table, group, in_order=not sorts and count > 1)
        rows = sorted_rows(live.rows, table, live.rows_in) if sorts else live.rows
        left = live.rows_in - live.deleted_by_position
        paths = _written(spark, rows, table, directory, max(1, math.ceil(left / count)))
        deleted = live.deleted_by_position + live.deleted_by_equality()
    outputs = _finished(table, paths)
    _require_all(table, group, deleted, outputs)
    return (outputs, deleted, _sort_order_id(table)), live.through_arrow


def _sort_order_id(table: Table) -> int | None:
    # The table's order is not kept where a property has another one.
    by_order = is_sorted(table) and clustering_of(table) is None
    return table.sort_order().order_id if by_order else None


def _remove_others(table: Table, directory: str, paths: list[str]) -> None:
    """Removes the outputs of a lost and repeated attempt of the task."""
    for path in set(files_below(table, directory)) - set(paths):
        table.io.delete(plain_path(path))


def _written(
    spark: SparkSession, rows: DataFrame, table: Table, directory: str, rows_per_file: int
) -> list[str]:
    """Writes the rows; returns the paths of the files, which have all field ids."""
    access = file_access(spark, table.io, [directory])
    if not access.by_spark:
        schema = table.schema()
        if table.format_version >= FIRST_VERSION:
            schema = with_lineage(schema)
        writing = writing_of(table, rows_per_file, schema=schema)
        paths = write_arrow_rows(rows, table.io, directory, writing)
        _remove_others(table, directory, paths)
        return paths
    writer = (
        rows.write.options(**access.options)
        .option("compression", "zstd")
        .option("maxRecordsPerFile", str(rows_per_file))
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    )
    if size := row_group_bytes(table):
        writer = writer.option("parquet.block.size", str(size))
    if level := zstd_level(table):
        writer = writer.option("parquet.compression.codec.zstd.level", str(level))
    writer.parquet(access.path(directory))
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        return list(pool.map(partial(with_all_ids, table), sorted(files_below(table, directory))))


def _finished(table: Table, paths: list[str]) -> tuple[OutputFile, ...]:
    """Describes the outputs by their footers; removes those without rows."""
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


def _clean_up(table: Table, directory: str, error: BaseException) -> None:
    try:
        remove_directory(table, directory)
    except Exception as failure:
        error.add_note(f"{directory} could not be removed: {failure}")
