"""Iceberg's types as Spark's, with the field ids that keep a renamed column the same column."""

from collections.abc import Iterator
from typing import Any

import pyiceberg.types as iceberg
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import Column

from arctic_orchestration.errors import SchemaMismatch, UnsupportedTable
from arctic_orchestration.lake.shapes import SHAPES
from arctic_orchestration.lake.supported_formats import require_supported_metadata

#: The key under which Spark stores a column's field id, and writes it to Parquet files.
FIELD_ID = "parquet.field.id"

_SAME: dict[type[iceberg.IcebergType], spark.DataType] = {
    iceberg.BooleanType: spark.BooleanType(),
    iceberg.IntegerType: spark.IntegerType(),
    iceberg.LongType: spark.LongType(),
    iceberg.FloatType: spark.FloatType(),
    iceberg.DoubleType: spark.DoubleType(),
    iceberg.DateType: spark.DateType(),
    iceberg.TimestampType: spark.TimestampNTZType(),
    iceberg.TimestamptzType: spark.TimestampType(),
    iceberg.StringType: spark.StringType(),
    iceberg.BinaryType: spark.BinaryType(),
}

#: Types without an equivalent in Spark that merges carry from file to file, without Spark's rows.
_CARRIED = (
    iceberg.UUIDType,
    iceberg.FixedType,
    iceberg.TimeType,
    iceberg.TimestampNanoType,
    iceberg.TimestamptzNanoType,
)

#: Those that they carry as columns, and not within other columns.
_AT_THE_TOP = (iceberg.UnknownType, *SHAPES)

#: The types of rows that fit a column without loss.
_WIDENINGS: dict[type[spark.DataType], tuple[type[spark.DataType], ...]] = {
    spark.IntegerType: (spark.ByteType, spark.ShortType),
    spark.LongType: (spark.ByteType, spark.ShortType, spark.IntegerType),
    spark.DoubleType: (spark.FloatType,),
}


def require_supported_table(table: Table) -> None:
    """Refuses a table that merges would damage, before anything is read or written.

    Errors:
        UnsupportedTable: names the column and its type, or what is unsupported in its metadata.
        LakeError: the metadata of a table of format 3 cannot be read.
    """
    require_supported_metadata(table)
    columns = [one for one in table.schema().fields if not isinstance(one.field_type, _AT_THE_TOP)]
    problems = _unsupported(iceberg.StructType(*columns), "", _CARRIED)
    _require_none(problems, ".".join(table.name()))


def require_supported(schema: Schema, table: str) -> None:
    """Refuses a schema with a type that Spark cannot represent.

    Errors:
        UnsupportedTable: names the path and the type of every such column.
    """
    _require_none(_unsupported(schema.as_struct(), ""), table)


def without_unknown(schema: Schema) -> Schema:
    """Returns the schema without columns of type ``unknown``, which no file contains."""
    return Schema(
        *(one for one in schema.fields if not isinstance(one.field_type, iceberg.UnknownType))
    )


def _require_none(problems: Iterator[str], table: str) -> None:
    if found := "; ".join(problems):
        raise UnsupportedTable(f"{table}: {found}")


def spark_schema(schema: Schema) -> spark.StructType:
    """Returns the schema in Spark's types; every field, including nested ones, has its id.

    All fields are nullable: Spark trusts the declaration, and files of other writers need not
    satisfy the table's requirements.

    Errors:
        UnsupportedTable: a type has no equivalent in Spark.
    """
    require_supported(schema, "schema")
    return _struct(schema.as_struct())


def require_fitting(found: spark.StructType, expected: Schema, table: str) -> None:
    """Refuses rows whose columns do not match the table's; smaller numbers fit larger ones.

    Errors:
        SchemaMismatch: names each column, what was found and what was expected.
    """
    problems = list(_misfits(found, _struct(expected.as_struct()), expected.as_struct(), ""))
    if problems:
        raise SchemaMismatch(f"{table}: " + "; ".join(problems))


def _unsupported(
    kind: iceberg.IcebergType, path: str, others: tuple[type[iceberg.IcebergType], ...] = ()
) -> Iterator[str]:
    """Yields the columns that Spark cannot represent, without those of other allowed types."""
    match kind:
        case iceberg.StructType():
            seen: dict[str, str] = {}
            for field in kind.fields:
                here = f"{path}.{field.name}" if path else field.name
                twin = seen.setdefault(field.name.lower(), field.name)
                if twin != field.name:
                    yield f"column {here}: Spark does not distinguish it from {twin}"
                yield from _unsupported(field.field_type, here, others)
        case iceberg.ListType():
            yield from _unsupported(kind.element_type, f"{path}.element", others)
        case iceberg.MapType():
            yield from _unsupported(kind.key_type, f"{path}.key", others)
            yield from _unsupported(kind.value_type, f"{path}.value", others)
        case iceberg.DecimalType():
            pass
        case _:
            if type(kind) not in _SAME and not isinstance(kind, others):
                yield f"column {path}: type {kind} does not survive Spark"


def _struct(kind: iceberg.StructType) -> spark.StructType:
    return spark.StructType(
        [
            spark.StructField(field.name, _type(field.field_type), True, {FIELD_ID: field.field_id})
            for field in kind.fields
        ]
    )


def _type(kind: iceberg.IcebergType) -> spark.DataType:
    match kind:
        case iceberg.StructType():
            return _struct(kind)
        case iceberg.ListType():
            return spark.ArrayType(_type(kind.element_type), True)
        case iceberg.MapType():
            return spark.MapType(_type(kind.key_type), _type(kind.value_type), True)
        case iceberg.DecimalType():
            return spark.DecimalType(kind.precision, kind.scale)
        case _:
            return _SAME[type(kind)]


def _misfits(
    found: spark.DataType, expected: spark.DataType, kind: iceberg.IcebergType, path: str
) -> Iterator[str]:
    match found, expected, kind:
        case spark.StructType(), spark.StructType(), iceberg.StructType():
            yield from _struct_misfits(found, expected, kind, path)
        case spark.ArrayType(), spark.ArrayType(), iceberg.ListType():
            yield from _misfits(
                found.elementType, expected.elementType, kind.element_type, f"{path}.element"
            )
        case spark.MapType(), spark.MapType(), iceberg.MapType():
            yield from _misfits(found.keyType, expected.keyType, kind.key_type, f"{path}.key")
            yield from _misfits(
                found.valueType, expected.valueType, kind.value_type, f"{path}.value"
            )
        case _:
            if not _fits(found, expected):
                yield f"column {path}: got {found.simpleString()}, expected {kind}"


def _struct_misfits(
    found: spark.StructType, expected: spark.StructType, kind: iceberg.StructType, path: str
) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    wanted = {field.name: field for field in kind.fields}
    names = [field.name for field in found.fields]
    for field in found.fields:
        here = prefix + field.name
        if field.name not in wanted:
            yield f"column {here}: got {field.dataType.simpleString()}, expected no such column"
        elif names.count(field.name) > 1:
            yield f"column {here}: got it {names.count(field.name)} times, expected it once"
        else:
            yield from _misfits(
                field.dataType,
                expected[field.name].dataType,
                wanted[field.name].field_type,
                here,
            )
    for lacking in kind.fields:
        if lacking.required and lacking.name not in names and lacking.write_default is None:
            here = prefix + lacking.name
            yield f"column {here}: got nothing, expected {lacking.field_type} (required)"


def _fits(found: spark.DataType, expected: spark.DataType) -> bool:
    if found == expected or isinstance(found, spark.NullType):
        return True
    if isinstance(found, spark.DecimalType) and isinstance(expected, spark.DecimalType):
        return found.scale == expected.scale and found.precision <= expected.precision
    return isinstance(found, _WIDENINGS.get(type(expected), ()))


def path_of(schema: Schema, field_id: int) -> tuple[str, ...]:
    """Returns the names that lead through structs to a field; a name may contain dots.

    Errors:
        UnsupportedTable: no field of the structs has that id.
    """

    def look(kind: iceberg.StructType) -> tuple[str, ...] | None:
        for field in kind.fields:
            if field.field_id == field_id:
                return (field.name,)
            if isinstance(field.field_type, iceberg.StructType):
                below = look(field.field_type)
                if below is not None:
                    return (field.name, *below)
        return None

    path = look(schema.as_struct())
    if path is None:
        raise UnsupportedTable(f"field {field_id} is not a column, nor inside structs only")
    return path


def column_at(path: tuple[str, ...]) -> Column:
    """Returns Spark's column for a path of names."""
    first, *rest = path
    column = F.col("`" + first.replace("`", "``") + "`")
    for name in rest:
        column = column.getField(name)
    return column


def name_of_id(field_id: int) -> str:
    """Returns a name for a field that no file has."""
    return f"arctic-field-{field_id}"


def named_by_id(schema: Schema) -> Schema:
    """Returns the schema with such names for all fields, also those in structs.

    Spark finds a column in a file by its id, but its type, and the row groups that a filter
    excludes, by its name: those of another column, if one has the name in the file.
    """
    return Schema(*_named_by_id(schema.as_struct()).fields)


def _named_by_id(kind: Any) -> Any:
    match kind:
        case iceberg.StructType():
            return iceberg.StructType(
                *(
                    iceberg.NestedField(
                        one.field_id, name_of_id(one.field_id), _named_by_id(one.field_type)
                    )
                    for one in kind.fields
                )
            )
        case iceberg.ListType():
            return iceberg.ListType(kind.element_id, _named_by_id(kind.element_type))
        case iceberg.MapType():
            key, value = _named_by_id(kind.key_type), _named_by_id(kind.value_type)
            return iceberg.MapType(kind.key_id, key, kind.value_id, value)
    return kind
