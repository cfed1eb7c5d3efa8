"""Field ids of files that have none, such as those of Hive: found by the names of their columns.

The property ``schema.name-mapping.default`` of a table maps names to field ids. As in Iceberg's own
readers, it counts for files without any field id, and columns that it does not name are left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import MappedField

from arctic_orchestration.errors import InvalidInput

PROPERTY = "schema.name-mapping.default"
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Mapped:
    """The field that a name stands for; without an id, it is left out."""

    field_id: int | None
    #: the fields of a struct, the ``element`` of a list, the ``key`` and ``value`` of a map
    below: "Names"


Names = Mapping[str, Mapped]


def names_of(table: Table) -> Names | None:
    """Returns the table's name mapping; None: it has none.

    Errors:
        InvalidInput: the property is no name mapping.
    """
    try:
        mapping = table.name_mapping()
    except ValueError as error:
        name = f"{PROPERTY} of {'.'.join(table.name())}"
        found = table.properties.get(PROPERTY)
        raise InvalidInput(name, found, "a name mapping of Iceberg in JSON") from error
    return None if mapping is None else _names(list(mapping.root))


def _names(fields: list[MappedField]) -> Names:
    return {
        name: Mapped(field.field_id, _names(list(field.fields)))
        for field in fields
        for name in field.names
    }


def id_of(field: pa.Field, names: Names | None = None) -> int | None:
    """Returns the field id that a file has for a column or a field of a struct.

    Args:
        names: maps the names to ids; None: the ids of the file.
    """
    if names is not None:
        return names[field.name].field_id if field.name in names else None
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)


def has_ids(schema: pa.Schema) -> bool:
    """Returns whether any column or field of a file has a field id."""
    return any(field_id is not None for _, field_id in fields_of(schema))


def fields_of(
    parent: pa.Schema | pa.StructType, names: Names | None = None, path: str = ""
) -> Iterator[tuple[str, int | None]]:
    """Yields the columns and the fields of structs, by path and id.

    Elements, keys and values need no ids.

    Args:
        names: maps the names to ids; None: the ids of the file.
    """
    for field in parent:
        here = f"{path}{field.name}"
        yield here, id_of(field, names)
        yield from _inside(field.type, below(names, field.name), here)


def below(names: Names | None, name: str) -> Names | None:
    """Returns the names below a name; None: the ids of the file count."""
    if names is None:
        return None
    return names[name].below if name in names else {}


def _inside(kind: pa.DataType, names: Names | None, path: str) -> Iterator[tuple[str, int | None]]:
    if pa.types.is_struct(kind):
        yield from fields_of(kind, names, f"{path}.")
    elif pa.types.is_map(kind):
        yield from _inside(kind.key_type, below(names, "key"), f"{path}.key")
        yield from _inside(kind.item_type, below(names, "value"), f"{path}.value")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _inside(kind.value_type, below(names, "element"), f"{path}.element")
