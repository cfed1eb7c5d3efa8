"""Parquet files that Spark writes for an Iceberg table, described for a commit."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from arctic_orchestration.errors import SchemaMismatch
from arctic_orchestration.lake.arrow_rows import write_arrow_rows
from arctic_orchestration.lake.file_access import file_access
from arctic_orchestration.lake.file_metrics import describe
from arctic_orchestration.lake.merging.deletes import plain_path
from arctic_orchestration.lake.merging.plain_files import writing_of
from arctic_orchestration.lake.parquet_footers import MAGIC, TAIL_BYTES, with_ids
from arctic_orchestration.lake.partitioning import partition_group, partition_of
from arctic_orchestration.lake.row_schema import fitted, null_found
from arctic_orchestration.lake.s3_retries import open_input
from arctic_orchestration.lake.spark_versions import JOB_FAILED, rebalanced
from arctic_orchestration.lake.upkeep.listing import Store

_FOOTERS_AT_ONCE = 8
_COPY_BYTES = 4 * 1024 * 1024
#: more rows than a task has
_ONE_FILE = 1 << 40


def write_files(dataframe: DataFrame, table: Table, directory: str) -> list[DataFile]:
    """Writes the rows as Parquet files into a new directory; commits nothing.

    One Spark job. It first groups the rows of a partitioned table by partition, so that a partition
    gets few files. Files without rows are removed again.

    Args:
        dataframe: its columns match the table's, in any order.
        directory: in the form of the table's own file paths.

    Errors:
        SchemaMismatch: a required column contains a null.
    """
    schema = table.schema()
    rows = fitted(dataframe, schema)
    group = partition_group(table.spec(), schema)
    column = None
    if group is not None:
        column = _free_name(rows.columns)
        rows = rebalanced(rows.withColumn(column, group), column)
    try:
        paths = _written(rows, table, directory, column)
    except JOB_FAILED as error:
        if path := null_found(error):
            raise SchemaMismatch(
                f"{'.'.join(table.name())}: column {path}: got a null, expected a value (required)"
            ) from error
        raise
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        described = pool.map(lambda path: _described(table, path), paths)
        return [file for file in described if file is not None]


def _written(rows: DataFrame, table: Table, directory: str, group: str | None) -> list[str]:
    """Writes files with rows of one group each; returns their paths."""
    access = file_access(rows.sparkSession, table.io, [directory])
    if not access.by_spark:
        if group is not None:
            rows = rows.sortWithinPartitions(group)
        writing = writing_of(table, _ONE_FILE)
        return write_arrow_rows(rows, table.io, directory, writing, group=group)
    writer = (
        rows.write.options(**access.options)
        .option("compression", "zstd")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .partitionBy(*[] if group is None else [group])
    )
    writer.parquet(access.path(directory))
    return sorted(files_below(table, directory))


def remove_directory(table: Table, directory: str) -> None:
    """Removes a directory with its contents; a missing one is no error.

    Errors:
        LakeError: it cannot be removed.
    """
    _store(table, directory).remove_all()


def _free_name(taken: list[str]) -> str:
    lower = {name.lower() for name in taken}
    name = "group"
    while name in lower:
        name += "_"
    return name


def _described(table: Table, path: str) -> DataFile | None:
    """Describes a finished file for Iceberg; None if it has no rows."""
    with table.io.new_input(path).open() as stream:
        if pq.read_metadata(stream).num_rows == 0:
            return None
    path = with_all_ids(table, path)
    with table.io.new_input(path).open() as stream:
        partition = partition_of(pq.ParquetFile(stream), table.spec(), table.schema())
    return describe(table, path, spec_id=table.spec().spec_id, partition=partition)


def with_all_ids(table: Table, path: str) -> str:
    """Replaces a file by one with the field ids that Spark left out; returns its path.

    A file with all ids is left unchanged.
    """
    with open_input(table.io, path) as stream:
        data_end = stream.seek(0, 2) - TAIL_BYTES
        stream.seek(data_end)
        footer_size = int.from_bytes(stream.read(TAIL_BYTES)[:4], "little")
        data_size = data_end - footer_size
        stream.seek(data_size)
        written = stream.read(footer_size)
        footer = with_ids(written, table.schema())
        if footer == written:
            return path
        whole = path.removesuffix(".parquet") + "-ids.parquet"
        stream.seek(0)
        with table.io.new_output(whole).create() as out:
            left = data_size
            while left:
                part = stream.read(min(left, _COPY_BYTES))
                out.write(part)
                left -= len(part)
            out.write(footer + len(footer).to_bytes(4, "little") + MAGIC)
    table.io.delete(path)
    return whole


def files_below(table: Table, directory: str) -> Iterator[str]:
    """Yields the Parquet files below a directory, in the form of the directory's path.

    Errors:
        LakeError: the table's file IO cannot list, or its store does not answer.
    """
    for file in _store(table, directory).list():
        if file.path.endswith(".parquet"):
            yield f"{directory.rstrip('/')}/{file.below}"


def _store(table: Table, directory: str) -> Store:
    # As a plain path: pyiceberg cuts a URL at a `?` or a `#`.
    return Store(table.io, plain_path(directory))
