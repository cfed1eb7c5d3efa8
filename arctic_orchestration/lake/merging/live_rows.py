"""The live rows of a group of data files, as a Spark DataFrame.

Everything is read by field id with the table's current schema. Dropped columns that equality
deletes still need are read in addition and removed at the end.

There is no shuffle: the files are one partition of one task. The facts of each file (its place in
the order, its deleted positions, the reach of its equality deletes) are a small table that is
joined by the file's path, and equality deletes are joined as a hash table or, when there are very
many, by merging.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyiceberg.types as iceberg
import pyspark.sql.functions as F
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, Observation, SparkSession

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.arrow_rows import FILE, POSITION, arrow_rows
from arctic_orchestration.lake.connect import is_over_connect
from arctic_orchestration.lake.file_access import FileAccess, file_access
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.merging.deletes import (
    DeletedPositions,
    EqualityChain,
    deleted_positions,
    equality_chains,
    plain_path,
)
from arctic_orchestration.lake.merging.input_files import require_readable
from arctic_orchestration.lake.merging.lineage import lineage_of
from arctic_orchestration.lake.merging.sessions import facts_frame
from arctic_orchestration.lake.merging.strategy import require_current_schema
from arctic_orchestration.lake.merging.value_deletes import MOST_HASHED
from arctic_orchestration.lake.merging.wider_schema import only
from arctic_orchestration.lake.name_mapping import Names
from arctic_orchestration.lake.row_lineage import LAST_UPDATED, ROW_ID, with_lineage
from arctic_orchestration.lake.row_schema import literal_of, ordered
from arctic_orchestration.lake.schema import (
    column_at,
    name_of_id,
    named_by_id,
    path_of,
    spark_schema,
)
from arctic_orchestration.lake.spark_versions import READS_OLDER_SCHEMAS, file_metadata
from arctic_orchestration.lake.table_reader import parquet_rows

#: Hadoop uses one slash for several, except after a scheme.
_SLASHES = re.compile(r"(?<!:)(?<!:/)/+")


@dataclass(frozen=True, kw_only=True)
class LiveRows:
    """The live rows; so far only footers and position deletes were read."""

    #: the table's columns, one partition
    rows: DataFrame
    rows_in: int
    #: the number of different deleted positions of the files
    deleted_by_position: int
    #: why the files pass through Arrow; None: Spark reads them
    through_arrow: str | None
    _counted: Observation | None

    def deleted_by_equality(self) -> int:
        """Returns how many rows equality deletes removed, after the position deletes.

        Counted while the rows are computed; waits until then.

        Errors:
            LakeError: position deletes removed another number of rows than there are positions.
        """
        if self._counted is None:
            return 0
        found = self._counted.get
        if found["seen"] != self.rows_in - self.deleted_by_position:
            raise LakeError(
                f"of {self.rows_in} rows with {self.deleted_by_position} deleted positions "
                f"{found['seen']} were left"
            )
        return int(found["gone"] or 0)


def live_rows(
    spark: SparkSession,
    session: SparkSession,
    table: Table,
    group: FileGroup,
    *,
    in_order: bool,
) -> LiveRows:
    """Returns the rows of the group's files, with all listed deletes applied.

    Rows of one file stay together and in their order. Files are ordered by size, greatest first,
    since Spark reads them so; ``in_order`` uses the order of the group, which costs a sort if it
    differs. Through Arrow, files have the order of the group.

    Equality is that of the specification: nulls are equal, a NaN equals a NaN, zero and minus zero
    differ.

    Args:
        session: from :func:`~arctic_orchestration.lake.merging.sessions.merging_session`.

    Errors:
        UnsupportedTable: a file is not Parquet, or lacks field ids and names that stand for them.
        LakeError: a file is missing, broken, or differs from the table's record of it.
    """
    chains = equality_chains(group.files)
    readable = require_readable(table, group, chains)
    schema = readable.schema
    filled = frozenset[int]().union(*readable.lacking.values())
    positions = deleted_positions(table.io, group.files)
    lineage = lineage_of(table, group)
    target = table.schema()
    if lineage is not None:
        schema, target = with_lineage(schema), with_lineage(target)
    columns = named_by_id(schema)
    deletes = [delete.path for chain in chains for delete in chain.deletes]
    access = file_access(spark, table.io, [*(file.path for file in group.files), *deletes])
    if readable.nameless:
        missing = f"{readable.nameless} of {len(group.files)} files have no field ids"
        access = FileAccess(missing=f"{missing}, and names stand for them")
    if access.by_spark and not READS_OLDER_SCHEMAS:
        require_current_schema(table, group)
    rows, urls = _read(
        session, table.io, access, columns, [file.path for file in group.files], readable.names
    )
    many = [chain for chain in chains if chain.rows > MOST_HASHED]
    sizes = [file.size for file in group.files]
    by_size = access.by_spark and in_order and sizes != sorted(sizes, reverse=True)
    sorting = bool(many) or by_size
    counted = Observation() if chains else None
    if positions or chains or sorting or filled or lineage is not None:
        rows = _with_file_facts(spark, rows, group, urls, positions, chains, readable.lacking)
    for field_id in filled:
        rows = _filled(rows, readable.schema, field_id, readable.values[field_id])
    if positions:
        word = F.get("deleted", F.shiftright(POSITION, 6).cast("int"))
        bit = F.getbit(word, F.col(POSITION).bitwiseAND(F.lit(63)).cast("int"))
        rows = rows.where(F.col("deleted").isNull() | (bit == 0))
    if counted is not None:
        for number, chain in enumerate(chains):
            rows = _joined(spark, rows, table.io, access, columns, chain, number)
        gone = reduce(
            lambda one, other: one | other,
            (
                F.coalesce(F.col(f"reach_{number}") >= F.col(f"need_{number}"), F.lit(False))
                for number in range(len(chains))
            ),
        )
        rows = rows.withColumn("gone", gone).observe(
            counted, F.count(F.lit(1)).alias("seen"), F.count_if("gone").alias("gone")
        )
        rows = rows.where(~F.col("gone"))
    if sorting:
        rows = rows.sortWithinPartitions("number", POSITION)
    if lineage is not None:
        rows = _with_lineage(rows)
    return LiveRows(
        rows=_as_the_table_has_it(rows, target, columns),
        rows_in=group.rows,
        deleted_by_position=sum(len(found) for found in positions.values()),
        through_arrow=access.missing,
        _counted=counted,
    )


def _read(
    session: SparkSession,
    io: FileIO,
    access: FileAccess,
    schema: Schema,
    paths: Sequence[str],
    names: Names | None = None,
) -> tuple[DataFrame, Mapping[str, str]]:
    """Returns the rows of exactly these files, in one partition; and the URLs by path.

    A URL is that in ``_metadata.file_path``; through Arrow, it is the path.

    Errors:
        LakeError: Spark would read other files: it skips names that begin with an underscore or a
            dot.
    """
    if not access.by_spark:
        rows = arrow_rows(session, io, schema, paths, tasks=1, with_places=True, names=names)
        return rows, {path: path for path in paths}
    reader = session.read.schema(spark_schema(schema)).options(**access.options)
    rows = parquet_rows(reader, map(access.path, paths), over_connect=is_over_connect(session))
    taken = {unquote(plain_path(url)): _as_metadata_has_it(url) for url in rows.inputFiles()}
    wanted = {_SLASHES.sub("/", plain_path(access.path(path))): path for path in paths}
    if taken.keys() != wanted.keys():
        left_out = sorted(path for plain, path in wanted.items() if plain not in taken)
        raise LakeError(f"Spark does not read {left_out or sorted(taken.keys() - wanted.keys())}")
    return rows.coalesce(1), {path: taken[plain] for plain, path in wanted.items()}


def _as_metadata_has_it(url: str) -> str:
    """Returns an input file's URL as in ``_metadata.file_path``: local ones with one slash."""
    local = plain_path(url)
    return url if local == url else f"file:{local}"


def _with_file_facts(
    spark: SparkSession,
    rows: DataFrame,
    group: FileGroup,
    urls: Mapping[str, str],
    positions: Mapping[str, DeletedPositions],
    chains: Sequence[EqualityChain],
    lacking: Mapping[str, frozenset[int]],
) -> DataFrame:
    """Adds the facts about the row's file, and the row's position in it.

    The join is an inner one: for an unmatched path, rows are missing, and the count of rows detects
    it.
    """
    paths = [file.path for file in group.files]
    facts = {
        "path": pa.array([urls[path] for path in paths], pa.string()),
        "number": pa.array(range(len(paths)), pa.int64()),
        "first_row_id": pa.array([file.first_row_id for file in group.files], pa.int64()),
        "sequence_number": pa.array([file.sequence_number for file in group.files], pa.int64()),
        "deleted": pa.array(
            [positions[path].words.view("int64") if path in positions else None for path in paths],
            pa.list_(pa.int64()),
        ),
    }
    for number, chain in enumerate(chains):
        facts[f"need_{number}"] = pa.array([chain.need.get(path) for path in paths], pa.int64())
    for field_id in frozenset[int]().union(*lacking.values()):
        lacks = [int(field_id in lacking[path]) for path in paths]
        facts[f"lacks_{field_id}"] = pa.array(lacks, pa.int64())
    placed = rows
    if FILE not in rows.columns:
        metadata = file_metadata(rows)
        places = metadata.file_path.alias(FILE), metadata.row_index.alias(POSITION)
        placed = rows.select("*", *places)
    found = F.broadcast(facts_frame(spark, rows, pa.table(facts)))
    return placed.join(found, F.col(FILE) == F.col("path"))


def _filled(rows: DataFrame, schema: Schema, field_id: int, value: Any) -> DataFrame:
    """Gives the rows of files without a column the column's value."""
    field = schema.find_field(field_id)
    name = name_of_id(field_id)
    known = literal_of(field.field_type, value)
    filled = F.when(F.col(f"lacks_{field_id}") == 1, known).otherwise(F.col(name))
    return rows.withColumn(name, filled)


def _with_lineage(rows: DataFrame) -> DataFrame:
    """Completes the columns of the lineage by what the row's file passes on."""
    row_id, last_updated = (name_of_id(field.field_id) for field in (ROW_ID, LAST_UPDATED))
    return rows.withColumns(
        {
            row_id: F.coalesce(row_id, F.col("first_row_id") + F.col(POSITION)),
            last_updated: F.coalesce(last_updated, "sequence_number"),
        }
    )


def _joined(
    spark: SparkSession,
    rows: DataFrame,
    io: FileIO,
    access: FileAccess,
    columns: Schema,
    chain: EqualityChain,
    number: int,
) -> DataFrame:
    """Adds the reach of the farthest delete with the row's values, or null."""
    narrow = only(columns, set(chain.field_ids))
    paths = [delete.path for delete in chain.deletes]
    deletes, urls = _read(rows.sparkSession, io, access, narrow, paths)
    reach = pa.table(
        {
            "path": pa.array([urls[path] for path in paths], pa.string()),
            "reach": pa.array([chain.reach[path] for path in paths], pa.int64()),
        }
    )
    keys = [
        _key(narrow, field_id).alias(f"key_{number}_{field_id}") for field_id in chain.field_ids
    ]
    names = [f"key_{number}_{field_id}" for field_id in chain.field_ids]
    values = (
        deletes.select(*keys, _file_of(deletes).alias(FILE))
        .join(F.broadcast(facts_frame(spark, rows, reach)), F.col(FILE) == F.col("path"))
        .groupBy(*names)
        .agg(F.max("reach").alias(f"reach_{number}"))
    )
    values = values.hint("merge" if chain.rows > MOST_HASHED else "broadcast")
    equal = reduce(
        lambda one, other: one & other,
        (
            _key(columns, field_id).eqNullSafe(F.col(name))
            for field_id, name in zip(chain.field_ids, names, strict=True)
        ),
    )
    # Spark forgets that the rows are one partition, and would shuffle them for the next join.
    return rows.join(values, equal, "left").coalesce(1)


def _file_of(rows: DataFrame) -> Column:
    return F.col(FILE) if FILE in rows.columns else file_metadata(rows).file_path


def _key(schema: Schema, field_id: int) -> Column:
    column = column_at(path_of(schema, field_id))
    if isinstance(schema.find_type(field_id), iceberg.FloatType | iceberg.DoubleType):
        # Spark's equality treats minus zero as zero.
        return column.cast("string")
    return column


def _as_the_table_has_it(rows: DataFrame, schema: Schema, read: Schema) -> DataFrame:
    found, target = spark_schema(read), spark_schema(schema)
    columns = []
    for field, to in zip(named_by_id(schema).fields, target.fields, strict=True):
        column = F.col(field.name)
        if read.find_field(field.field_id).field_type != field.field_type:
            # A struct that contains a dropped field.
            column = ordered(column, found[field.name].dataType, field.field_type)
        # The cast gives back the names inside of structs.
        columns.append(column.cast(to.dataType).alias(to.name, metadata=to.metadata))
    return rows.select(*columns)
