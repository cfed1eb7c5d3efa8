"""The order of the rows in merged files: a property of the table, else its sort order."""

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from arctic_orchestration.errors import naming
from arctic_orchestration.lake.sort_columns import Clustering, parse_clustering

PROPERTY = "arctic.compaction.sort"
#: what a z-order can be computed of
CURVED = (
    IntegerType, LongType, FloatType, DoubleType, DecimalType, DateType, TimestampType,
    TimestamptzType, StringType,
)  # fmt: skip
SORTED = (*CURVED, BinaryType, FixedType)


def clustering_of(table: Table) -> Clustering | None:
    """Returns what the table's property names; None: nothing, so that its sort order applies.

    Errors:
        InvalidInput: the property is invalid, or names a column that the table lacks or whose
            type cannot be sorted by.
    """
    text = table.properties.get(PROPERTY)
    if text is None:
        return None
    with naming(f"{PROPERTY} of {'.'.join(table.name())}", text):
        found = parse_clustering(text)
        if found is not None:
            _require_columns(found, table.schema())
    return found


def is_sorted(table: Table) -> bool:
    """Returns whether merged files are sorted, by the property or by the table's sort order.

    Errors:
        InvalidInput: the property is invalid.
    """
    return clustering_of(table) is not None or not table.sort_order().is_unsorted


def _require_columns(clustering: Clustering, schema: Schema) -> None:
    kinds = CURVED if clustering.z_order else SORTED
    for column in clustering.columns:
        kind = type_of(schema, column.name)
        if kind is None:
            known = ", ".join(field.name for field in schema.fields)
            raise ValueError(f"columns of the table: {known}")
        if not isinstance(kind, kinds):
            raise ValueError(f"columns that have an order, which {column.name} ({kind}) has not")
        if not _is_single(schema, column.name):
            raise ValueError(
                f"columns, or fields of structs, which {column.name} inside of a list or map is not"
            )


def _is_single(schema: Schema, name: str) -> bool:
    """Returns whether each row has one value of it: pyiceberg has accessors of these alone."""
    try:
        schema.accessor_for_field(schema.find_field(name).field_id)
    except ValueError:
        return False
    return True


def type_of(schema: Schema, name: str) -> IcebergType | None:
    """Returns the type of a column by its name; None: there is none."""
    try:
        return schema.find_field(name).field_type
    except ValueError:
        return None
