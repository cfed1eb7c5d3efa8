"""Groups of files that Arrow may decode: their columns stay unchanged.

Spark reads the others: it deletes rows by their values, and matches renamed and widened columns by
their ids. It also refuses unreadable files, so nothing is refused here: anything unusual about a
file is a reason to use Spark.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, FloatType
from pyspark import cloudpickle

from arctic_orchestration.lake.arrow_files import (
    MOST_ROW_GROUP_BYTES,
    ROW_GROUP_BYTES,
    ZSTD_LEVEL,
    Writing,
)
from arctic_orchestration.lake.file_access import sendable_io
from arctic_orchestration.lake.file_groups import DeleteKind, FileGroup
from arctic_orchestration.lake.file_metrics import is_bounded
from arctic_orchestration.lake.merging.deletes import plain_path
from arctic_orchestration.lake.merging.lineage import lineage_of, with_own_lineage
from arctic_orchestration.lake.merging.parquet_properties import row_group_bytes, zstd_level
from arctic_orchestration.lake.merging.partition_values import UNKNOWN, partition_values
from arctic_orchestration.lake.merging.row_groups import Footer, FooterUnreadable, read_footers
from arctic_orchestration.lake.merging.sort_keys import Order, order_of
from arctic_orchestration.lake.merging.strategy import misfits
from arctic_orchestration.lake.name_mapping import names_of
from arctic_orchestration.lake.parquet_footers import counts_days_as_julian
from arctic_orchestration.lake.row_lineage import LINEAGE, Inherited, with_lineage


@dataclass(frozen=True, kw_only=True)
class PlainFiles:
    """Files whose columns are written unchanged."""

    #: the table's columns with their ids; only the keys of maps are required, since files of other
    #: writers need not satisfy the table's requirements
    columns: pa.Schema
    #: format 3: what the rows of each file inherit, in the order of the group; the columns of the
    #: lineage are then the last ones
    lineage: tuple[Inherited, ...] | None
    #: the partition's values of columns that a file leaves out, by name
    constants: Mapping[str, pa.Scalar]
    #: the paths of the leaf columns with statistics, or whether all have them
    statistics: bool | list[str]
    #: None: the rows stay in their order
    order: Order | None


def plain_files(table: Table, group: FileGroup) -> PlainFiles | str:
    """Returns the group for Arrow, or the reason to use Spark. Reads the footers once.

    Float columns get statistics only if every input has them: bounds do not cover NaN, and where a
    writer therefore omitted them, a filter that NaN passes would lose rows.

    Errors:
        InvalidInput: the table's name mapping is invalid.
        LakeError: a file cannot be read at all.
    """
    hindrance = _known_hindrance(table, group)
    if hindrance is not None:
        return hindrance
    try:
        footers = read_footers(table.io, (file.path for file in group.files))
    except FooterUnreadable as error:
        return str(error)
    columns = _columns(table.schema())
    constants = _constants(table, group, columns)
    hindrance = next(_hindrances(footers, group, table, columns, constants), None)
    if hindrance is not None:
        return hindrance
    lineage = lineage_of(table, group)
    statistics = _with_statistics(footers)
    if lineage is not None:
        columns = _columns(with_lineage(table.schema()))
        if not isinstance(statistics, bool):
            statistics += [field.name for field in LINEAGE if field.name not in statistics]
    if not isinstance(statistics, bool):
        statistics += [
            name
            for name, value in constants.items()
            if name not in statistics and not pa.types.is_floating(value.type)
        ]
    return PlainFiles(
        columns=columns,
        lineage=lineage,
        constants=constants,
        statistics=statistics,
        order=order_of(table, constants.keys()),
    )


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
    leaves = parquet_path_to_id_mapping(schema)
    floats = {
        path
        for path, field_id in leaves.items()
        if isinstance(schema.find_type(field_id), FloatType | DoubleType)
    }
    return Writing(
        columns=columns,
        statistics=[path for path in leaves if path not in floats] if floats else True,
        rows_per_file=rows_per_file,
        row_group_bytes=min(row_group_bytes(table) or ROW_GROUP_BYTES, MOST_ROW_GROUP_BYTES),
        zstd_level=zstd_level(table) or ZSTD_LEVEL,
    )


def _known_hindrance(table: Table, group: FileGroup) -> str | None:
    kinds = [{delete.kind for delete in file.deletes} for file in group.files]
    if by_value := sum(DeleteKind.EQUALITY in found for found in kinds):
        return f"rows are deleted by their values from {by_value} of {len(kinds)} files"
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


def _hindrances(
    footers: Sequence[Footer],
    group: FileGroup,
    table: Table,
    columns: pa.Schema,
    constants: Mapping[str, pa.Scalar],
) -> Iterator[str]:
    names = names_of(table)
    for footer, file in zip(footers, group.files, strict=True):
        if footer.is_encrypted:
            yield f"{footer.path} is encrypted"
        if counts_days_as_julian(footer.key_values):
            yield f"{footer.path} was written by a Spark that counted old dates otherwise"
        if footer.metadata.num_rows != file.rows:
            yield f"{footer.path} has not the rows that the table knows of"
    schemas = {
        (footer.schema, footer.key_values.get(b"ARROW:schema")): footer for footer in footers
    }
    for footer in schemas.values():
        found = footer.metadata.schema.to_arrow_schema()
        absent = constants.keys() - set(found.names)
        schema = Schema(*(one for one in table.schema().fields if one.name not in absent))
        for problem in misfits(footer, with_own_lineage(footer, schema), names):
            yield f"{footer.path} has not the table's schema: {problem}"
        for field in columns:
            if field.name in absent:
                continue
            if not _becomes(found.field(field.name).type, field.type):
                yield (
                    f"{footer.path} has not the table's schema: column {field.name} is read as "
                    f"{found.field(field.name).type}"
                )


def _constants(table: Table, group: FileGroup, columns: pa.Schema) -> Mapping[str, pa.Scalar]:
    """Returns the partition's known values, by the names of the columns."""
    values = partition_values(table, group)
    return {
        field.name: pa.scalar(values[field.field_id], columns.field(field.name).type)
        for field in table.schema().fields
        if values.get(field.field_id, UNKNOWN) is not UNKNOWN
    }


def _columns(schema: Schema) -> pa.Schema:
    return pa.schema([_relaxed(field) for field in schema_to_pyarrow(schema)])


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


def _becomes(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether values of one type equal those of another."""
    # Arrow follows written hints when it reads: a string may be a dictionary's.
    if pa.types.is_dictionary(found):
        return _becomes(found.value_type, wanted)
    if pa.types.is_struct(wanted):
        return (
            pa.types.is_struct(found)
            and [field.name for field in found] == [field.name for field in wanted]
            and all(
                _becomes(one.type, other.type) for one, other in zip(found, wanted, strict=True)
            )
        )
    if pa.types.is_map(wanted):
        return (
            pa.types.is_map(found)
            and _becomes(found.key_type, wanted.key_type)
            and _becomes(found.item_type, wanted.item_type)
        )
    if pa.types.is_list(wanted):
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and _becomes(
            found.value_type, wanted.value_type
        )
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if pa.types.is_binary(wanted):
        return bool(pa.types.is_binary(found) or pa.types.is_large_binary(found))
    if pa.types.is_timestamp(wanted):
        return (
            pa.types.is_timestamp(found)
            and found.unit == wanted.unit
            and (found.tz is None) == (wanted.tz is None)
        )
    return bool(found == wanted)


def _with_statistics(footers: Sequence[Footer]) -> bool | list[str]:
    first = footers[0].metadata.schema
    floats = [
        number
        for number in range(len(first))
        if first.column(number).physical_type in ("FLOAT", "DOUBLE")
    ]
    # Columns may have another order in the next file.
    names = {first.column(number).path for number in floats}
    unbounded = {name for footer in footers for name in _unbounded(footer, names)}
    if not unbounded:
        return True
    paths = [first.column(number).path for number in range(len(first))]
    return [path for path in paths if path not in unbounded]


def _unbounded(footer: Footer, names: set[str]) -> Iterator[str]:
    metadata = footer.metadata
    places = [
        number
        for number in range(len(metadata.schema))
        if metadata.schema.column(number).path in names
    ]
    for group in range(metadata.num_row_groups if places else 0):
        for place in places:
            chunk = metadata.row_group(group).column(place)
            if not is_bounded(chunk):
                yield chunk.path_in_schema
