"""The row lineage of a table of format 3 in the files of a merge.

The outputs have both columns of the lineage. Where an input has no value of its own, the row's
inherited value is written. A row of an upgraded table without a row id stays without one, and gets
it with the commit of the merge.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.merging.row_groups import Footer
from arctic_orchestration.lake.row_lineage import (
    FIRST_VERSION,
    LAST_UPDATED,
    LINEAGE,
    ROW_ID,
    Inherited,
    with_lineage,
)


def lineage_of(table: Table, group: FileGroup) -> tuple[Inherited, ...] | None:
    """Returns what the rows of each file inherit; None: the table has no row lineage."""
    if table.format_version < FIRST_VERSION:
        return None
    return tuple(
        Inherited(first_row_id=file.first_row_id, sequence_number=file.sequence_number)
        for file in group.files
    )


def with_own_lineage(footer: Footer, schema: Schema) -> Schema:
    """Returns the schema with the columns of the lineage that a file has."""
    names = {footer.metadata.schema.column(n).path for n in range(len(footer.metadata.schema))}
    return with_lineage(schema, {field.field_id for field in LINEAGE if field.name in names})


def why_lineage_is_lost(footers: list[Footer]) -> str | None:
    """Returns why copied row groups would lose the lineage: a value in them is inherited."""
    for footer in footers:
        for field in LINEAGE:
            if _may_be_null(footer, field.name):
                return f"{footer.path} does not hold {field.name} of every row"
    return None


def with_values(rows: pa.Table, inherited: Inherited, position: int) -> pa.Table:
    """Returns rows of a file with the columns of the lineage, complete.

    Args:
        position: of the first of the rows in the file.
    """
    first = inherited.first_row_id
    ids: pa.Array = pa.nulls(len(rows), pa.int64())
    if first is not None:
        ids = pa.array(np.arange(first + position, first + position + len(rows), dtype=np.int64))
    numbers = pa.repeat(pa.scalar(inherited.sequence_number, pa.int64()), len(rows))
    for field, values in ((ROW_ID, ids), (LAST_UPDATED, numbers)):
        place = rows.schema.get_field_index(field.name)
        if place < 0:
            rows = rows.append_column(field.name, values)
        else:
            rows = rows.set_column(place, field.name, pc.coalesce(rows.column(place), values))
    return rows


def _may_be_null(footer: Footer, name: str) -> bool:
    metadata = footer.metadata
    schema = metadata.schema
    place = next((n for n in range(len(schema)) if schema.column(n).path == name), None)
    if place is None:
        return bool(metadata.num_rows)
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(place).statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count:
            return True
    return False
