"""Rows that Python workers of Spark read and write with Arrow, through pyiceberg's ``FileIO``.

For stores that Spark has no file system for. Executors need this package, pyarrow and pyiceberg, as
for :mod:`~arctic_orchestration.lake.merging.arrow_rewrite`, which says what memory a worker needs.

Columns are found by field id, as Spark's own reader does with the lake's settings. pyiceberg's
projection is not used: it makes a null list of structs an empty one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyiceberg.types as iceberg
import pyspark.sql.types as spark_types
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.arrow_files import (
    MIB,
    Observed,
    OutputFiles,
    Writing,
    pieces,
    why_misread,
)
from arctic_orchestration.lake.file_access import sendable_io
from arctic_orchestration.lake.name_mapping import Names, below, has_ids, id_of
from arctic_orchestration.lake.schema import spark_schema
from arctic_orchestration.lake.shapes import shape_type
from arctic_orchestration.lake.spark_versions import complete

#: The columns that contain the path of a row's file, as given, and the row's position in it.
FILE, POSITION = "file", "position"

#: Decoded bytes that are handed to Spark at a time.
_PIECE_BYTES = 8 * MIB


def arrow_rows(
    spark: SparkSession,
    io: FileIO,
    schema: Schema,
    paths: Sequence[str],
    *,
    tasks: int,
    with_places: bool = False,
    names: Names | None = None,
) -> DataFrame:
    """Returns the rows of Parquet files, in the order of the paths and, within one, their own.

    Args:
        schema: the columns; those that a file lacks are null.
        tasks: the number of Spark's tasks; each reads files that follow each other.
        with_places: adds the columns :data:`FILE` and :data:`POSITION`.
        names: of the columns of files without field ids.

    Errors:
        UnsupportedTable: a type has no equivalent in Spark.
        PySparkException, Py4JError: while the rows are computed: a file cannot be read, or has no
            field ids.
    """
    columns = spark_schema(schema)
    if with_places:
        columns = spark_types.StructType(
            [
                *columns.fields,
                spark_types.StructField(FILE, spark_types.StringType()),
                spark_types.StructField(POSITION, spark_types.LongType()),
            ]
        )
    work = partial(_read, sendable_io(io), tuple(paths), schema, with_places, names)
    return spark.range(0, len(paths), 1, max(1, tasks)).mapInArrow(work, columns)


def write_arrow_rows(
    rows: DataFrame, io: FileIO, directory: str, writing: Writing, *, group: str | None = None
) -> list[str]:
    """Writes the rows into Parquet files below a directory; returns their paths.

    One Spark job. Each task writes its rows in their order. The caller removes what killed tasks
    left in the directory.

    Args:
        group: a column of texts that is not written; a file has rows of one text only. A task's
            rows are sorted by it.

    Errors:
        LakeError: a worker cannot write, or cannot run this package.
        PySparkException, Py4JError: Spark failed.
    """
    work = partial(_write, sendable_io(io), directory.rstrip("/"), writing, group)
    paths = []
    for answer in rows.mapInArrow(work, "path string, problem string").collect():
        if answer.problem is not None:
            raise LakeError(f"{directory} cannot be written: {answer.problem}")
        paths.append(str(answer.path))
    return sorted(paths)


class _Projection:
    """Finds the columns of a schema in tables."""

    def __init__(self, schema: Schema) -> None:
        self._fields = [(field, arrow_type(field.field_type)) for field in schema.fields]
        self._names = [field.name for field in schema.fields]

    def of(
        self, rows: pa.Table, mapped: Names | None, dictionaries: Collection[int] = ()
    ) -> pa.Table:
        """Returns the columns, found by their field ids; missing ones are null.

        Args:
            mapped: the field ids by name, for a file without them.
            dictionaries: the field ids of columns that stay dictionaries, if they are.

        Errors:
            ArrowException: a value does not fit the column's type.
        """
        places = {id_of(field, mapped): number for number, field in enumerate(rows.schema)}
        columns = []
        for field, kind in self._fields:
            place = places.get(field.field_id)
            if place is None:
                columns.append(pa.nulls(len(rows), kind))
                continue
            column = rows.column(place)
            if field.field_id in dictionaries and pa.types.is_dictionary(column.type):
                columns.append(column)
                continue
            if not field.field_type.is_primitive:
                inside = below(mapped, rows.schema.field(place).name)
                chunks = [_value(field.field_type, chunk, inside) for chunk in column.chunks]
                column = pa.chunked_array(chunks, kind)
            columns.append(column if column.type == kind else column.cast(kind))
        return pa.Table.from_arrays(columns, self._names)


def _columns(
    struct: iceberg.StructType, rows: pa.StructArray, mapped: Names | None
) -> list[pa.Array]:
    places = {id_of(field, mapped): number for number, field in enumerate(rows.type)}
    found = []
    for field in struct.fields:
        place = places.get(field.field_id)
        if place is None:
            found.append(pa.nulls(len(rows), arrow_type(field.field_type)))
        else:
            inside = below(mapped, rows.type[place].name)
            found.append(_value(field.field_type, rows.field(place), inside))
    return found


def _value(kind: iceberg.IcebergType, array: pa.Array, mapped: Names | None) -> pa.Array:
    match kind:
        case iceberg.StructType():
            fields = [pa.field(field.name, arrow_type(field.field_type)) for field in kind.fields]
            return pa.StructArray.from_arrays(
                _columns(kind, array, mapped), fields=fields, mask=array.is_null()
            )
        case iceberg.ListType():
            if pa.types.is_fixed_size_list(array.type):
                # It has no offsets.
                array = array.cast(pa.list_(array.type.value_field))
            values = _value(kind.element_type, array.values, below(mapped, "element"))
            return pa.ListArray.from_arrays(
                _offsets(array), values, arrow_type(kind), mask=array.is_null()
            )
        case iceberg.MapType():
            keys = _value(kind.key_type, array.keys, below(mapped, "key"))
            items = _value(kind.value_type, array.items, below(mapped, "value"))
            return pa.MapArray.from_arrays(
                _offsets(array), keys, items, arrow_type(kind), mask=array.is_null()
            )
        case _:
            wanted = arrow_type(kind)
            return array if array.type == wanted else array.cast(wanted)


def _offsets(array: pa.Array) -> pa.Array:
    # A copy: Arrow takes no mask beside offsets that are a slice.
    return pc.add(array.offsets.cast(pa.int32()), 0)


def arrow_type(kind: iceberg.IcebergType) -> pa.DataType:
    """Returns Arrow's type for one of Iceberg, without field ids, and with offsets of 32 bits."""
    match kind:
        case iceberg.StructType():
            return pa.struct([(field.name, arrow_type(field.field_type)) for field in kind.fields])
        case iceberg.ListType():
            return pa.list_(arrow_type(kind.element_type))
        case iceberg.MapType():
            return pa.map_(arrow_type(kind.key_type), arrow_type(kind.value_type))
        case iceberg.StringType():
            return pa.string()
        case iceberg.BinaryType():
            return pa.binary()
        case iceberg.GeometryType() | iceberg.GeographyType():
            return shape_type(kind)
        case _:
            return schema_to_pyarrow(kind)


def _read(
    io: FileIO,
    paths: Sequence[str],
    schema: Schema,
    with_places: bool,
    names: Names | None,
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            path, position = paths[number], 0
            try:
                for piece in rows_of(io, path, (schema,), names, _PIECE_BYTES):
                    if with_places:
                        piece = _with_places(piece, path, position)
                    position += len(piece)
                    yield from piece.combine_chunks().to_batches()
            except Exception as error:
                # Any other error, too: Spark would hide of which file it is in a stack of Java's.
                first = (str(error).splitlines() or [""])[0]
                if not isinstance(error, (OSError, pa.ArrowException, LakeError)):
                    first = f"{type(error).__name__}: {first}"
                raise LakeError(f"{path} cannot be read: {first}") from error


def rows_of(
    io: FileIO,
    path: str,
    schemas: Sequence[Schema],
    names: Names | None,
    most_bytes: int,
    convert: Callable[..., pa.Table] = lambda rows: rows,
    observed: Observed | None = None,
) -> Iterator[pa.Table]:
    """Yields the columns of a Parquet file, found by field id, in pieces, and converted.

    Args:
        schemas: what is converted is a table for each of them.
        names: of the columns of files without field ids.
        observed: of the files before; this one is added.

    Errors:
        LakeError: the file has no field ids, two columns of one name, or old dates that Arrow would
            misread.
        OSError, ArrowException: it cannot be read.
    """
    wanted = {field.field_id for schema in schemas for field in schema.fields}
    mapped: Names | None = None

    def columns(metadata: pq.FileMetaData) -> list[str]:
        nonlocal mapped
        schema = metadata.schema.to_arrow_schema()
        mapped = None if has_ids(schema) else names
        why = why_misread(metadata)
        if why is not None:
            raise LakeError(f"it {why}")
        ids = {field.name: id_of(field, mapped) for field in schema}
        if all(number is None for number in ids.values()):
            raise LakeError("it has no field ids")
        if len(ids) < len(schema):
            raise LakeError("it has two columns of one name")
        if observed is not None:
            observed.add(metadata, ids)
        found = [name for name, number in ids.items() if number in wanted]
        # Of a file without any of the columns, one counts the rows.
        return found or [next(iter(ids))]

    projections = [_Projection(schema) for schema in schemas]

    def converted(rows: pa.Table) -> pa.Table:
        dictionaries = observed.texts if observed is not None else ()
        return convert(*(one.of(rows, mapped, dictionaries) for one in projections))

    yield from pieces(io, path, most_bytes, converted, columns, observed)


def _with_places(rows: pa.Table, path: str, position: int) -> pa.Table:
    files = pa.repeat(pa.scalar(path, pa.string()), len(rows))
    positions = pa.array(range(position, position + len(rows)), pa.int64())
    return rows.append_column(FILE, files).append_column(POSITION, positions)


def _write(
    io: FileIO,
    directory: str,
    writing: Writing,
    group: str | None,
    rows: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yields the paths of the files, or the error, which Spark would hide in a stack of Java's."""
    context: Any = TaskContext.get()
    attempt = context.taskAttemptId() if context is not None else 0
    outputs = OutputFiles(io, f"{directory}/arrow-{attempt:05}", writing)
    last: str | None = None
    # What computes the rows may fail, too: that is no problem of writing.
    try:
        for batch in rows:
            for text, some in _by_group(complete(pa.Table.from_batches([batch])), group):
                if text != last:
                    outputs.finish()
                    last = text
                outputs.add(some.cast(writing.columns))
        outputs.finish()
    except (OSError, pa.ArrowException) as error:
        outputs.abandon()
        first = (str(error).splitlines() or [""])[0]
        yield _answer([None], [f"{type(error).__name__}: {first}"])
        return
    except BaseException:
        outputs.abandon()
        raise
    yield _answer(outputs.paths, [None] * len(outputs.paths))


def _answer(paths: Sequence[str | None], problems: Sequence[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(paths, pa.string()), pa.array(problems, pa.string())], ["path", "problem"]
    )


def _by_group(rows: pa.Table, group: str | None) -> Iterator[tuple[str | None, pa.Table]]:
    """Yields runs of rows with one text, without its column."""
    if group is None:
        yield None, rows
        return
    texts = rows.column(group).combine_chunks()
    rows, start = rows.drop_columns([group]), 0
    runs = pc.run_end_encode(texts)
    for text, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield text, rows.slice(start, end - start)
        start = end
