"""Parquet files that Spark writes for an Iceberg table, described for a commit."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.parquet as pq
import pyiceberg.types as iceberg
import pyspark.sql.functions as F
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from arctic_orchestration.errors import SchemaMismatch
from arctic_orchestration.lake.footers import MAGIC, TAIL_BYTES, needs_ids, with_ids
from arctic_orchestration.lake.partitioning import partition_group, partition_of
from arctic_orchestration.lake.schema import column_at, spark_schema

_FOOTERS_AT_ONCE = 8
_COPY_BYTES = 4 * 1024 * 1024
_REQUIRED = "a required column holds a null:"


def write_files(
    spark: SparkSession, dataframe: DataFrame, table: Table, directory: str
) -> list[DataFile]:
    """Writes the rows as Parquet files into a new directory; commits nothing.

    One Spark job. Rows of a partitioned table are brought together by partition first, so that a
    partition gets few files. Files without rows are removed again.

    Args:
        dataframe: its columns fit the table's, in any order.
        directory: in the form that the table's own file paths have.

    Errors:
        SchemaMismatch: a column that the table requires holds a null.
    """
    schema = table.schema()
    rows = _guarded(dataframe.to(spark_schema(schema)), schema.as_struct())
    group = partition_group(table.spec(), schema)
    columns: tuple[str, ...] = ()
    if group is not None:
        columns = (_free_name(rows.columns),)
        rows = rows.withColumn(columns[0], group).hint("rebalance", F.col(columns[0]))
    writer = (
        rows.write.option("compression", "zstd")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .partitionBy(*columns)
    )
    try:
        writer.parquet(directory)
    except PySparkException as error:
        if _REQUIRED in str(error):
            where = str(error).split(_REQUIRED, 1)[1].split(";", 1)[0].strip()
            raise SchemaMismatch(
                f"{'.'.join(table.name())}: column {where}: got a null, expected a value (required)"
            ) from error
        raise
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        described = pool.map(
            lambda path: _described(table, path), sorted(_files_below(spark, directory))
        )
        return [file for file in described if file is not None]


def remove_directory(spark: SparkSession, directory: str) -> None:
    """Removes a directory with all that is in it; one that is not there is no error."""
    path, files = _hadoop(spark, directory)
    files.delete(path, True)


def _guarded(rows: DataFrame, schema: iceberg.StructType) -> DataFrame:
    """The rows, or a failing job where a required column holds a null."""
    guarded: dict[str, Column] = {}
    for field in schema.fields:
        column = column_at((field.name,))
        for path, broken in _nulls(column, field, field.name):
            failure = F.raise_error(F.lit(f"{_REQUIRED} {path};"))
            kind = rows.schema[field.name].dataType
            column = F.when(broken, failure.cast(kind)).otherwise(column)
            guarded[field.name] = column
    return rows.select(
        *(
            guarded.get(field.name, column_at((field.name,))).alias(
                field.name, metadata=field.metadata
            )
            for field in rows.schema.fields
        )
    )


def _nulls(
    column: Column, field: iceberg.NestedField, path: str
) -> Iterator[tuple[str, Column]]:
    """The paths that may not be null at or below a field, each with the condition that one is."""
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
    # The conditions are built on a variable of the lambda, one lambda for each.
    paths = [where for where, _ in _nulls(F.lit(None), field, path)]
    for number, where in enumerate(paths):

        def broken(value: Column, number: int = number) -> Column:
            return list(_nulls(value, field, path))[number][1]

        yield where, F.coalesce(F.exists(values, lambda value: broken(value)), F.lit(False))


def _free_name(taken: list[str]) -> str:
    lower = {name.lower() for name in taken}
    name = "group"
    while name in lower:
        name += "_"
    return name


def _described(table: Table, path: str) -> DataFile | None:
    """A finished file as Iceberg keeps it, or None for one without rows."""
    with table.io.new_input(path).open() as stream:
        if pq.read_metadata(stream).num_rows == 0:
            return None
    schema, spec = table.schema(), table.spec()
    if needs_ids(schema):
        path = _with_all_ids(table, path)
    source = table.io.new_input(path)
    with source.open() as stream:
        file = pq.ParquetFile(stream)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=file.metadata,
            stats_columns=compute_statistics_plan(schema, table.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        for field_id in _unbounded(file.metadata, parquet_path_to_id_mapping(schema)):
            statistics.column_aggregates.pop(field_id, None)
        partition = partition_of(file, spec, schema)
    described = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=len(source),
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    described.spec_id = spec.spec_id
    return described


def _unbounded(metadata: Any, ids: dict[str, int]) -> set[int]:
    """Columns of which some row group holds values but no smallest and greatest one.

    Parquet leaves the bounds out when a value is very long, and gives NaN for the greatest when a
    value is NaN. Bounds of the other values alone would make readers skip the file for rows that
    it has.
    """
    found = set()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for position in range(metadata.num_columns):
            chunk = group.column(position)
            if not _is_bounded(chunk):
                found.add(ids[chunk.path_in_schema])
    return found


def _is_bounded(chunk: Any) -> bool:
    statistics = chunk.statistics
    if statistics is None:
        return False
    if not statistics.has_min_max:
        return bool(statistics.has_null_count and statistics.null_count == chunk.num_values)
    if chunk.physical_type in ("FLOAT", "DOUBLE"):
        return not (math.isnan(statistics.min) or math.isnan(statistics.max))
    return True


def _with_all_ids(table: Table, path: str) -> str:
    """Copies a file to one whose footer has the ids that Spark leaves out; returns its path."""
    whole = path.removesuffix(".parquet") + "-ids.parquet"
    source = table.io.new_input(path)
    size = len(source)
    with source.open() as stream:
        stream.seek(size - TAIL_BYTES)
        footer_size = int.from_bytes(stream.read(TAIL_BYTES)[:4], "little")
        data_size = size - TAIL_BYTES - footer_size
        stream.seek(data_size)
        footer = with_ids(stream.read(footer_size), table.schema())
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


def _files_below(spark: SparkSession, directory: str) -> Iterator[str]:
    """The Parquet files below a directory, named as the directory is.

    Hadoop names a file in its own way (`file:/a b` for `/a b`); only what follows the directory
    is taken from it.
    """
    path, files = _hadoop(spark, directory)
    root = files.makeQualified(path).toString()
    listing = files.listFiles(path, True)
    while listing.hasNext():
        found = listing.next().getPath().toString()
        if found.endswith(".parquet"):
            yield directory + found[len(root) :]


def _hadoop(spark: SparkSession, directory: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    java_session: Any = spark._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(directory)
    return path, path.getFileSystem(java_session.sessionState().newHadoopConf())
