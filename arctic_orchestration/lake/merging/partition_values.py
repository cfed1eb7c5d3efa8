"""The values of partition columns, which the files of a table from Hive leave out."""

from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from arctic_orchestration.lake.file_groups import FileGroup

#: the group does not contain its partition
UNKNOWN: Final = object()


def partition_values(table: Table, group: FileGroup) -> Mapping[int, Any]:
    """Returns the values of the columns by which the group is partitioned as they are, by id.

    Dates and timestamps are integers, as in manifests: Python has none after 9999.
    """
    fields = table.specs()[group.spec_id].fields
    partition = group.partition or (UNKNOWN,) * len(fields)
    return {
        field.source_id: value
        for field, value in zip(fields, partition, strict=True)
        if isinstance(field.transform, IdentityTransform)
    }
