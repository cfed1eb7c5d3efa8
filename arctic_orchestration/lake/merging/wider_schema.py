"""A table's schema extended by dropped fields, and parts of a schema.

An equality delete still compares a column that was dropped after it was written.
"""

from collections.abc import Collection

import pyiceberg.types as iceberg
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from arctic_orchestration.errors import LakeError, UnsupportedTable


def with_dropped(table: Table, field_ids: Collection[int]) -> Schema:
    """Returns the current schema, with missing fields appended to it or to its structs.

    A dropped field has its last type, its default value for older files, and an unused name.

    Errors:
        LakeError: no schema of the table has such a field.
        UnsupportedTable: it is not a primitive value, or inside a list or a map.
    """
    wide = table.schema().as_struct()
    name = ".".join(table.name())
    # Types only ever widen, and a later schema has a greater id.
    history = sorted(table.schemas().values(), key=lambda schema: schema.schema_id, reverse=True)
    for field_id in sorted(field_ids):
        way = _way(wide, field_id)
        for schema in history:
            if way:
                break
            way = _way(schema.as_struct(), field_id)
            if way:
                wide = _with(wide, way)
        if not way:
            if any(field_id in schema._lazy_id_to_field for schema in history):
                raise UnsupportedTable(
                    f"{name}: equality deletes compare field {field_id}, inside a list or a map"
                )
            raise LakeError(
                f"{name}: equality deletes compare field {field_id}, which no schema has"
            )
        if not way[-1].field_type.is_primitive:
            raise UnsupportedTable(
                f"{name}: equality deletes compare field {field_id}, a {way[-1].field_type}"
            )
    return Schema(*wide.fields)


def only(schema: Schema, field_ids: Collection[int]) -> Schema:
    """Returns the fields with these ids, and the structs around them."""
    return Schema(*_only(schema.as_struct(), field_ids).fields)


def _way(struct: iceberg.StructType, field_id: int) -> list[iceberg.NestedField]:
    """Returns the fields that lead through structs to a field, with itself at the end; or none."""
    for field in struct.fields:
        if field.field_id == field_id:
            return [field]
        if isinstance(field.field_type, iceberg.StructType):
            below = _way(field.field_type, field_id)
            if below:
                return [field, *below]
    return []


def _with(struct: iceberg.StructType, way: list[iceberg.NestedField]) -> iceberg.StructType:
    first, *rest = way
    fields = list(struct.fields)
    for place, field in enumerate(fields):
        if field.field_id == first.field_id and isinstance(field.field_type, iceberg.StructType):
            fields[place] = _field(field, field.name, _with(field.field_type, rest))
            return iceberg.StructType(*fields)
    taken = {field.name.lower() for field in fields}
    name = f"dropped {first.field_id}"
    while name in taken:
        name += " "
    kind = _with(iceberg.StructType(), rest) if rest else first.field_type
    return iceberg.StructType(*fields, _field(first, name, kind))


def _only(struct: iceberg.StructType, field_ids: Collection[int]) -> iceberg.StructType:
    kept = []
    for field in struct.fields:
        if field.field_id in field_ids:
            kept.append(field)
        elif isinstance(field.field_type, iceberg.StructType):
            below = _only(field.field_type, field_ids)
            if below.fields:
                kept.append(_field(field, field.name, below))
    return iceberg.StructType(*kept)


def _field(field: iceberg.NestedField, name: str, kind: iceberg.IcebergType) -> iceberg.NestedField:
    return iceberg.NestedField(
        field_id=field.field_id,
        name=name,
        field_type=kind,
        initial_default=field.initial_default,
    )
