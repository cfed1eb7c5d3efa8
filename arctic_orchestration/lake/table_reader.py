"""An Iceberg table as a Spark DataFrame."""

import re
from collections.abc import Iterable, Iterator, Sequence

import pyspark.sql.functions as F
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

from arctic_orchestration.errors import NotFound, UnsupportedTable
from arctic_orchestration.lake.arrow_rows import arrow_rows
from arctic_orchestration.lake.avro_doubles import read_exactly
from arctic_orchestration.lake.connect import is_over_connect
from arctic_orchestration.lake.file_access import file_access
from arctic_orchestration.lake.filters import filter_column, null_matches_nothing
from arctic_orchestration.lake.null_partitions import compare_nulls
from arctic_orchestration.lake.schema import column_at, named_by_id, require_supported, spark_schema
from arctic_orchestration.lake.session import require_lake_session
from arctic_orchestration.lake.supported_formats import require_supported_format

read_exactly()
compare_nulls()

#: as Spark splits files, where it reads them itself
_BYTES_A_TASK = 128 * 1024 * 1024
_FEWEST_TASKS = 8


def read(
    spark: SparkSession,
    table: Table,
    *,
    row_filter: BooleanExpression | None = None,
    snapshot_id: int | None = None,
) -> DataFrame:
    """Returns the table's rows, now or at a snapshot; ``table`` is refreshed.

    Columns are found by field id, so a column that was renamed, moved, added or widened after a
    file was written has the table's present form; at a snapshot, the form that it had then, also in
    the filter. With a filter, files without a possible match are skipped.

    Errors:
        NotFound: the table has no such snapshot.
        UnsupportedTable: Spark cannot represent a column's type, a column has a default value for
            older files, or rows were deleted from files that still exist.
        ConfigurationError: the Spark session lacks a setting that the lake needs.
    """
    require_lake_session(spark)
    table.refresh()
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        raise NotFound(f"{'.'.join(table.name())} has no snapshot {snapshot_id}")
    schema = table.scan(snapshot_id=snapshot_id).projection()
    require_supported_format(table.format_version, ".".join(table.name()))
    require_supported(schema, ".".join(table.name()))
    _require_no_defaults(schema, ".".join(table.name()))
    if row_filter is None:
        return rows_of(spark, table, schema, plan(table, AlwaysTrue(), snapshot_id))
    wanted = null_matches_nothing(row_filter)
    tasks = plan(table, wanted, snapshot_id)
    return rows_of(spark, table, schema, tasks).where(filter_column(wanted, schema))


def _require_no_defaults(schema: Schema, table: str) -> None:
    for field in schema._lazy_id_to_field.values():
        if field.initial_default is not None:
            raise UnsupportedTable(
                f"{table}: column {schema.find_column_name(field.field_id)}: its default value for "
                "older files is not read"
            )


def plan(
    table: Table, row_filter: BooleanExpression, snapshot_id: int | None = None
) -> list[FileScanTask]:
    """Returns the files that may contain matching rows.

    Args:
        row_filter: names the columns as they were at the snapshot.

    Errors:
        UnsupportedTable: the snapshot has equality deletes.
    """
    scan = table.scan(row_filter=row_filter, snapshot_id=snapshot_id)
    # pyiceberg finds the columns of a filter by their present names, at any snapshot.
    as_it_was = {"current_schema_id": scan.projection().schema_id}
    scan = scan.update(table_metadata=table.metadata.model_copy(update=as_it_was))
    try:
        return list(scan.plan_files())
    except ValueError as error:
        if "equality delete" not in str(error):
            raise
        raise UnsupportedTable(
            f"{'.'.join(table.name())}: it has equality deletes, which are not applied"
        ) from error


def require_whole_files(table: Table, tasks: Sequence[FileScanTask]) -> None:
    """Refuses files that are not read as they are.

    Errors:
        UnsupportedTable: rows were deleted from one of the files, or it is not Parquet.
    """
    for task in tasks:
        if task.delete_files:
            raise UnsupportedTable(
                f"{'.'.join(table.name())}: rows are deleted from {task.file.file_path} by "
                f"{len(task.delete_files)} delete files, which are not applied"
            )
        if task.file.file_format != FileFormat.PARQUET:
            raise UnsupportedTable(
                f"{'.'.join(table.name())}: {task.file.file_path} is "
                f"{task.file.file_format}, expected Parquet"
            )


def rows_of(
    spark: SparkSession, table: Table, schema: Schema, tasks: Sequence[FileScanTask]
) -> DataFrame:
    """Returns all rows of the files, with the columns of the schema.

    Errors:
        UnsupportedTable: from :func:`require_whole_files`.
    """
    require_whole_files(table, tasks)
    columns = spark_schema(schema)
    if not tasks:
        return spark.range(0).select(
            *(F.lit(None).cast(field.dataType).alias(field.name) for field in columns.fields)
        )
    paths = [task.file.file_path for task in tasks]
    access = file_access(spark, table.io, paths)
    if not access.by_spark or any(map(_is_left_out, paths)):
        size = sum(task.file.file_size_in_bytes for task in tasks)
        count = min(len(paths), max(_FEWEST_TASKS, size // _BYTES_A_TASK))
        return arrow_rows(spark, table.io, schema, paths, tasks=count)
    renamed = _reused(table, schema)
    by_id = spark_schema(named_by_id(schema))
    asked = StructType(
        [
            safe if one.name in renamed else one
            for safe, one in zip(by_id.fields, columns.fields, strict=True)
        ]
    )
    reader = spark.read.schema(asked).options(**access.options)
    # The session may skip what it cannot read, and rows would be missing without an error.
    reader = reader.options(ignoreCorruptFiles="false", ignoreMissingFiles="false")
    rows = parquet_rows(reader, map(access.path, paths), over_connect=is_over_connect(spark))
    if not renamed:
        return rows
    return rows.select(
        *(
            # The cast gives back the names inside of structs.
            column_at((one.name,)).cast(to.dataType).alias(to.name, metadata=to.metadata)
            for one, to in zip(asked.fields, columns.fields, strict=True)
        )
    )


def _reused(table: Table, schema: Schema) -> set[str]:
    """Returns the columns of which a name, also of a field in it, may be another's in a file."""
    known = table.schemas()
    # One that was removed may have had any names.
    are_all_known = set(known) == set(range(len(known)))
    owners: dict[str, set[int]] = {}
    for each in (schema, *known.values()):
        for path, number in _ids_of(each):
            owners.setdefault(path, set()).add(number)
    return {
        field.name
        for field in schema.fields
        if not are_all_known or any(len(owners[path]) > 1 for path, _ in _ids_of(Schema(field)))
    }


def _ids_of(schema: Schema) -> Iterator[tuple[str, int]]:
    """Yields all fields by their names as Spark compares them."""
    for number in schema.field_ids:
        yield (schema.find_column_name(number) or "").lower(), number


def parquet_rows(reader: DataFrameReader, paths: Iterable[str], *, over_connect: bool) -> DataFrame:
    """Returns the rows of exactly these files, whatever characters their paths have."""
    reader = reader.option("recursiveFileLookup", "true")
    if over_connect:
        # The server confuses the option below with another one, as it lower-cases its name.
        return reader.parquet(*map(literal_path, paths))
    # Spark's own option: an escaped pattern cannot contain a colon.
    return reader.option("__globPaths__", "false").parquet(*paths)


def _is_left_out(path: str) -> bool:
    """Returns whether Spark takes a file for a temporary one by its name, and skips it."""
    name = path.rpartition("/")[2]
    is_hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return is_hidden or name.endswith("._COPYING_")


def literal_path(path: str) -> str:
    """Returns the path with a backslash before characters that are patterns to Spark."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)
