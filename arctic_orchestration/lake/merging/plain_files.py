"""Groups of files that Arrow may decode, and what it needs to read them.

Spark reads the others, with values of other types than the table's, or very many equality deletes.
It also refuses unreadable files, so nothing is refused here that Spark would read: anything unusual
about a file is a reason to use Spark.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyiceberg.types as iceberg
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark import cloudpickle

from arctic_orchestration.lake.arrow_files import (
    MOST_ROW_GROUP_BYTES,
    ROW_GROUP_BYTES,
    ZSTD_LEVEL,
    Writing,
    schema_as_read,
    small_texts,
    why_misread,
)
from arctic_orchestration.lake.arrow_rows import arrow_type
from arctic_orchestration.lake.file_access import sendable_io
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.file_metrics import is_bounded
from arctic_orchestration.lake.merging.deletes import (
    DeletedPositions,
    EqualityChain,
    equality_chains,
    plain_path,
)
from arctic_orchestration.lake.merging.input_files import Readable, require_readable
from arctic_orchestration.lake.merging.lineage import lineage_of
from arctic_orchestration.lake.merging.parquet_properties import row_group_bytes, zstd_level
from arctic_orchestration.lake.merging.partition_values import UNKNOWN, partition_values
from arctic_orchestration.lake.merging.row_groups import Footer, FooterUnreadable, read_footers
from arctic_orchestration.lake.merging.sort_keys import Order, order_of, why_not_sorted
from arctic_orchestration.lake.merging.value_deletes import MOST_HASHED, MOST_HASHED_BYTES
from arctic_orchestration.lake.merging.wider_schema import only, with_dropped
from arctic_orchestration.lake.name_mapping import Names, below, fields_of, has_ids, id_of, names_of
from arctic_orchestration.lake.row_lineage import Inherited, with_lineage
from arctic_orchestration.lake.schema import without_unknown
from arctic_orchestration.lake.shapes import SHAPES, ShapeType, is_annotated


@dataclass(frozen=True, kw_only=True)
class PlainFile:
    """A file that Arrow reads."""

    path: str
    #: the values of columns that the file lacks, by name; other missing columns are null
    lacking: Mapping[str, pa.Array] = field(default_factory=dict)
    #: format 3: what its rows inherit
    inherited: Inherited | None = None
    #: the positions of rows that are left out
    deleted: DeletedPositions | None = None


@dataclass(frozen=True, kw_only=True)
class PlainFiles:
    """Files whose columns are found by field id, and whose values stay as they are."""

    files: tuple[PlainFile, ...]
    #: the columns of the outputs; in format 3, those of the lineage are the last ones
    schema: Schema
    #: the columns of files without field ids
    names: Names | None = None
    #: the paths of the leaf columns with statistics, or whether all have them
    statistics: bool | list[str] = True
    #: None: the rows stay in their order
    order: Order | None = None
    #: the deletes by value, with the columns that each chain compares
    chains: tuple[tuple[EqualityChain, Schema], ...] = ()
    #: the field ids of texts that stay dictionaries
    texts: frozenset[int] = frozenset()


def plain_files(table: Table, group: FileGroup) -> PlainFiles | str:
    """Returns the group for Arrow, or the reason to use Spark. Reads the footers once.

    Float columns get statistics only if every input has them: bounds do not cover NaN, and where a
    writer therefore omitted them, a filter that NaN passes would lose rows.

    Errors:
        InvalidInput: the table's name mapping is invalid.
        UnsupportedFile, LakeError: neither Arrow nor Spark can read a file.
    """
    hindrance = _known_hindrance(table, group)
    if hindrance is not None:
        return hindrance
    chains = [chain for chain in equality_chains(group.files) if chain.rows]
    deletes = {delete.path: chain for chain in chains for delete in chain.deletes}
    paths = [*(file.path for file in group.files), *deletes]
    try:
        # As plain paths: pyiceberg cuts a URL at a `?` or a `#`.
        read = read_footers(table.io, map(plain_path, paths))
    except FooterUnreadable as error:
        return str(error)
    footers = dict(zip(paths, read, strict=True))
    data = [footers[file.path] for file in group.files]
    names = names_of(table)
    wide = with_dropped(table, {number for chain in chains for number in chain.field_ids})
    hindrances = itertools.chain(
        _hindrances(data, with_lineage(wide), names),
        *(
            _hindrances([footers[path]], only(wide, chain.field_ids), None)
            for path, chain in deletes.items()
        ),
        _too_many(sum(chain.rows for chain in chains), [footers[path] for path in deletes]),
    )
    hindrance = next(hindrances, None)
    if hindrance is not None:
        return hindrance
    lacking = _lacking(group, require_readable(table, group, chains, footers))
    if isinstance(lacking, str):
        return lacking
    values = partition_values(table, group)
    constant = {
        one.name
        for one in table.schema().fields
        if values.get(one.field_id, UNKNOWN) is not UNKNOWN
    }
    order = order_of(table, constant)
    if order is not None and (hindrance := why_not_sorted(order)):
        return hindrance
    lineage = lineage_of(table, group)
    schema = without_unknown(table.schema())
    schema = schema if lineage is None else with_lineage(schema)
    files = [
        PlainFile(path=file.path, lacking=known, inherited=lineage[number] if lineage else None)
        for number, (file, known) in enumerate(zip(group.files, lacking, strict=True))
    ]
    return PlainFiles(
        files=tuple(files),
        schema=schema,
        names=names,
        statistics=_with_statistics(data, schema, names),
        order=order,
        chains=tuple((chain, only(wide, chain.field_ids)) for chain in chains),
        # What is sorted, or compared with deletes, is a column of plain values.
        texts=frozenset() if order or chains else _small_texts(data, schema, names),
    )


def _small_texts(footers: Sequence[Footer], schema: Schema, names: Names | None) -> frozenset[int]:
    def ids(found: pa.Schema) -> Mapping[str, int | None]:
        mapped = None if has_ids(found) else names
        return {one.name: id_of(one, mapped) for one in found}

    texts = [one.field_id for one in schema.fields if one.field_type == iceberg.StringType()]
    files = ((one.metadata, ids(one.metadata.schema.to_arrow_schema())) for one in footers)
    return small_texts(files, texts)


def writing_of(table: Table, rows_per_file: int, *, schema: Schema | None = None) -> Writing:
    """Returns how Arrow writes rows of Spark into files of the table.

    Args:
        schema: of the rows; None: that of the table.

    Float columns get no statistics: Arrow's bounds do not cover NaN, and readers would skip a file
    for rows that it contains.

    Errors:
        InvalidInput: a property of the table is invalid.
    """
    schema = schema or table.schema()
    columns = _columns(schema)
    leaves, floats = _leaves_and_floats(schema)
    return Writing(
        columns=columns,
        statistics=_all_but(floats, leaves),
        rows_per_file=rows_per_file,
        row_group_bytes=min(row_group_bytes(table) or ROW_GROUP_BYTES, MOST_ROW_GROUP_BYTES),
        zstd_level=zstd_level(table) or ZSTD_LEVEL,
    )


def _known_hindrance(table: Table, group: FileGroup) -> str | None:
    if any(file.file_format.lower() != "parquet" for file in group.files):
        return "not all files are Parquet"
    paths = {plain_path(file.path) for file in group.files}
    if not paths or len(paths) < len(group.files):
        return "a file is named twice, or none is"
    try:
        cloudpickle.dumps(sendable_io(table.io))  # type: ignore[no-untyped-call]
    except Exception as error:
        return f"the table's {type(table.io).__name__} cannot be sent to a worker: {error}"
    return None


def _hindrances(footers: Sequence[Footer], schema: Schema, names: Names | None) -> Iterator[str]:
    for footer in footers:
        if footer.is_encrypted:
            yield f"{footer.path} is encrypted"
        why = why_misread(footer.metadata)
        if why is not None:
            yield f"{footer.path} {why}"
    schemas = {
        (footer.schema, footer.key_values.get(b"ARROW:schema")): footer for footer in footers
    }
    for footer in schemas.values():
        found = schema_as_read(footer.metadata)
        mapped = None if has_ids(found) else names
        ids = [number for _, number in fields_of(found, mapped) if number is not None]
        if len(set(ids)) < len(ids) or len(set(found.names)) < len(found):
            yield f"{footer.path} has two columns of one name or field id"
            continue
        for path, kind, wanted in _unlike(schema.as_struct(), found, mapped):
            yield f"{footer.path}: column {path} is read as {kind}, expected {wanted}"


def _too_many(rows: int, footers: Sequence[Footer]) -> Iterator[str]:
    """Yields why deletes by value do not fit into the memory of a worker."""
    size = sum(size for footer in footers for _, size in footer.row_groups)
    if rows > MOST_HASHED or size > MOST_HASHED_BYTES:
        yield (
            f"{rows} rows of {size} bytes are deleted by their values, expected at most "
            f"{MOST_HASHED} of {MOST_HASHED_BYTES}"
        )


def _unlike(
    struct: iceberg.StructType, found: pa.Schema | pa.StructType, names: Names | None
) -> Iterator[tuple[str, pa.DataType, iceberg.IcebergType]]:
    """Yields the columns of a file whose values are not those of the table's type."""
    kinds = {known.field_id: known for known in struct.fields}
    for one in found:
        field_id = id_of(one, names)
        wanted = None if field_id is None else kinds.get(field_id)
        if wanted is not None:
            inside = _unlike_values(wanted.field_type, one.type, below(names, one.name))
            for path, kind, expected in inside:
                yield f"{one.name}{path}", kind, expected


def _unlike_values(
    wanted: iceberg.IcebergType, found: pa.DataType, names: Names | None
) -> Iterator[tuple[str, pa.DataType, iceberg.IcebergType]]:
    # Arrow follows written hints when it reads: a string may be a dictionary's.
    if pa.types.is_dictionary(found):
        found = found.value_type
    match wanted:
        case iceberg.StructType() if pa.types.is_struct(found):
            for path, kind, expected in _unlike(wanted, found, names):
                yield f".{path}", kind, expected
        case iceberg.ListType() if (
            pa.types.is_list(found)
            or pa.types.is_large_list(found)
            or pa.types.is_fixed_size_list(found)
        ):
            yield from _unlike_values(
                wanted.element_type, found.value_type, below(names, "element")
            )
        case iceberg.MapType() if pa.types.is_map(found):
            yield from _unlike_values(wanted.key_type, found.key_type, below(names, "key"))
            yield from _unlike_values(wanted.value_type, found.item_type, below(names, "value"))
        case _ if not wanted.is_primitive or not _becomes(found, arrow_type(wanted)):
            yield "", found, wanted


def _becomes(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether all values of one type are values of another, and are written as such."""
    if isinstance(wanted, pa.BaseExtensionType) and not is_annotated(wanted):
        return False
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if pa.types.is_binary(wanted) or isinstance(wanted, ShapeType):
        return bool(pa.types.is_binary(found) or pa.types.is_large_binary(found))
    if pa.types.is_timestamp(wanted):
        return bool(
            pa.types.is_timestamp(found)
            and found.unit == wanted.unit
            and (found.tz is None) == (wanted.tz is None)
        )
    if pa.types.is_decimal(wanted):
        return bool(
            pa.types.is_decimal128(found)
            and found.scale == wanted.scale
            and found.precision <= wanted.precision
        )
    wider = {pa.int64(): pa.int32(), pa.float64(): pa.float32(), pa.uuid(): pa.binary(16)}
    return bool(found in (wanted, wider.get(wanted)))


def _lacking(group: FileGroup, readable: Readable) -> list[Mapping[str, pa.Array]] | str:
    """Returns the values of columns that each file lacks; or why Arrow has none of them.

    As arrays of one value: scalars are sent to workers as Python's, which has no day after 9999.
    """
    columns = {
        one.field_id: one for one in readable.schema.fields if one.field_id in readable.values
    }
    values: dict[int, Any] = {}
    for field_id in frozenset[int]().union(*readable.lacking.values()):
        column = columns[field_id]
        try:
            values[field_id] = pa.array([readable.values[field_id]], arrow_type(column.field_type))
        except (pa.ArrowException, TypeError, ValueError) as error:
            return f"the value of {column.name} in files without it: {error}"
    return [
        {columns[field_id].name: values[field_id] for field_id in readable.lacking[file.path]}
        for file in group.files
    ]


def _columns(schema: Schema) -> pa.Schema:
    columns = schema_to_pyarrow(schema)
    for place, one in enumerate(schema.fields):
        if isinstance(one.field_type, SHAPES):
            columns = columns.set(place, columns[place].with_type(arrow_type(one.field_type)))
    return pa.schema([_relaxed(field) for field in columns])


def _relaxed(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _narrow(field.type), True, field.metadata)


def _narrow(kind: pa.DataType) -> pa.DataType:
    """Returns the type with all parts optional, and with offsets of 32 bits."""
    if pa.types.is_struct(kind):
        return pa.struct([_relaxed(field) for field in kind])
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_relaxed(kind.value_field))
    if pa.types.is_map(kind):
        key = pa.field("key", _narrow(kind.key_type), False, kind.key_field.metadata)
        return pa.map_(key, _relaxed(kind.item_field))
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    return kind


def _with_statistics(
    footers: Sequence[Footer], schema: Schema, names: Names | None
) -> bool | list[str]:
    leaves, floats = _leaves_and_floats(schema)
    unbounded: set[int] = set()
    ids: dict[str, Mapping[str, set[int]]] = {}
    for footer in footers if floats else ():
        if footer.schema not in ids:
            ids[footer.schema] = _ids_by_path(footer.metadata.schema.to_arrow_schema(), names)
        for path in _unbounded(footer):
            # The values of lists and maps need no ids.
            unbounded |= ids[footer.schema].get(path, floats)
    return _all_but(unbounded & floats, leaves)


def _leaves_and_floats(schema: Schema) -> tuple[Mapping[str, int], set[int]]:
    """Returns the field ids of the leaf columns by their paths, and those of floats."""
    leaves = parquet_path_to_id_mapping(schema)
    kinds = iceberg.FloatType | iceberg.DoubleType
    return leaves, {one for one in leaves.values() if isinstance(schema.find_type(one), kinds)}


def _all_but(field_ids: set[int], leaves: Mapping[str, int]) -> bool | list[str]:
    if not field_ids:
        return True
    return [path for path, field_id in leaves.items() if field_id not in field_ids]


def _ids_by_path(found: pa.Schema, names: Names | None) -> Mapping[str, set[int]]:
    ids: dict[str, set[int]] = {}
    for path, field_id in fields_of(found, None if has_ids(found) else names):
        if field_id is not None:
            ids.setdefault(path, set()).add(field_id)
    return ids


def _unbounded(footer: Footer) -> Iterator[str]:
    """Yields the paths of float columns with a row group whose values have no known bounds."""
    metadata = footer.metadata
    places = [
        number
        for number in range(len(metadata.schema))
        if metadata.schema.column(number).physical_type in ("FLOAT", "DOUBLE")
    ]
    for group in range(metadata.num_row_groups if places else 0):
        for place in places:
            chunk = metadata.row_group(group).column(place)
            if not is_bounded(chunk):
                yield chunk.path_in_schema
