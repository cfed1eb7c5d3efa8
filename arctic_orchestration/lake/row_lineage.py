"""The identity of rows in tables of format 3, which a merge keeps.

Each row has a ``_row_id``, and the sequence number of the commit that last updated it. Both are
inherited from the row's file until the row is moved to another file, which then has them as
columns:

- ``_row_id``: the column's value, else the file's ``first_row_id`` and the position in it.
- ``_last_updated_sequence_number``: the column's value, else the file's data sequence number.

A file of a table that was upgraded to format 3 has no ``first_row_id`` until the next commit.
"""

from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

#: The ids and names that the specification reserves.
ROW_ID = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)
LINEAGE = (ROW_ID, LAST_UPDATED)
_IDS = frozenset(field.field_id for field in LINEAGE)

#: The first format version whose rows have an identity.
FIRST_VERSION = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Inherited:
    """What the rows of a file inherit, where its columns have no value."""

    first_row_id: int | None
    sequence_number: int


def with_lineage(schema: Schema, present: Collection[int] = _IDS) -> Schema:
    """Returns the schema with the columns of the lineage, or with those among ``present``."""
    added = [field for field in LINEAGE if field.field_id in present]
    return Schema(*schema.fields, *added) if added else schema


def lacks_lineage(present: Collection[int]) -> bool:
    """Returns whether one of the columns is not among the ids of a file's columns."""
    return not _IDS.issubset(present)


def reserved_names(schema: Schema) -> list[str]:
    """Returns the names of columns that Spark cannot distinguish from those of the lineage."""
    names = {field.name for field in LINEAGE}
    return [field.name for field in schema.fields if field.name.lower() in names]
