"""The values of partition columns, which the files of a table from Hive leave out."""

from collections.abc import Mapping
from typing import Any, Final

import pyiceberg.types as iceberg
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.utils.datetime import days_to_date, micros_to_timestamp, micros_to_timestamptz

from arctic_orchestration.lake.file_groups import FileGroup

#: the group does not contain its partition
UNKNOWN: Final = object()


def partition_values(table: Table, group: FileGroup) -> Mapping[int, Any]:
    """Returns the values of the columns by which the group is partitioned as they are, by id.

    Dates and timestamps are Python's.
    """
    fields = table.specs()[group.spec_id].fields
    partition = group.partition or (UNKNOWN,) * len(fields)
    return {
        field.source_id: _value(table, field.source_id, value)
        for field, value in zip(fields, partition, strict=True)
        if isinstance(field.transform, IdentityTransform)
    }


def _value(table: Table, field_id: int, value: Any) -> Any:
    found = table.schema()._lazy_id_to_field.get(field_id)
    if found is None or not isinstance(value, int):
        return value
    match found.field_type:
        case iceberg.DateType():
            return days_to_date(value)
        case iceberg.TimestampType():
            return micros_to_timestamp(value)
        case iceberg.TimestamptzType():
            return micros_to_timestamptz(value)
    return value
