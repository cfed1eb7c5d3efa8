"""What it costs to sort merged files, and how much less is read of them then.

A reader with a filter on one value of the first column opens the files whose bounds contain the
value. The estimate takes its values from the bounds that files have, and merged files as disjoint
and of equal size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from arctic_orchestration.lake.scan_sizes import scanned_files
from arctic_orchestration.lake.sort_columns import Clustering

#: CPU time of a merge that only decodes is 1: BENCHMARKS.md
_ONE_COLUMN, _MORE_COLUMNS, _CURVE = 1.9, 2.1, 2.2
_MOST_VALUES = 64


@dataclass(frozen=True, kw_only=True)
class SortedTask:
    """A planned merge: its inputs, their bytes, and the number of its outputs."""

    paths: frozenset[str]
    bytes: int
    outputs: int


@dataclass(frozen=True, kw_only=True)
class SortGain:
    """The effect of sorting planned merges; sizes in bytes."""

    #: of the filter
    column: str
    #: of a merge that only decodes
    cpu: float
    #: what a filter on one value reads, on average, now and after the merges
    reads_now: int
    reads_then: int


def sort_gain(
    table: Table, clustering: Clustering, snapshot: Snapshot, tasks: Sequence[SortedTask]
) -> SortGain | None:
    """Estimates the effect of sorting; None: no file has bounds of the first column.

    Errors:
        LakeError: a manifest cannot be read.
    """
    files = scanned_files(table, AlwaysTrue(), snapshot)
    first, count = clustering.columns[0], len(clustering.columns)
    column = table.schema().find_field(first.name)
    ranges = {one.file_path: _range(one, column.field_id, column.field_type) for one in files}
    lowest = sorted(found[0] for found in ranges.values() if found is not None)
    if not lowest:
        return None
    values = lowest[:: -(-len(lowest) // _MOST_VALUES)]
    merged = frozenset().union(*(task.paths for task in tasks))

    def read(files: Sequence[DataFile]) -> float:
        """The bytes of the files that are read for a value, on average."""
        found = 0
        for one in files:
            bounds = ranges[one.file_path]
            hits = values if bounds is None else [v for v in values if bounds[0] <= v <= bounds[1]]
            found += one.file_size_in_bytes * len(hits)
        return found / len(values)

    # Along a curve, outputs are the cells of a grid with as many dimensions as columns.
    dimensions = count if clustering.z_order else 1
    sorted_bytes = sum(task.bytes * task.outputs ** (-1 / dimensions) for task in tasks)
    left = [one for one in files if one.file_path not in merged]
    cpu = _CURVE if clustering.z_order else _ONE_COLUMN if count == 1 else _MORE_COLUMNS
    return SortGain(
        column=first.name,
        cpu=cpu,
        reads_now=round(read(files)),
        reads_then=round(read(left) + sorted_bytes),
    )


def _range(file: DataFile, field_id: int, kind: Any) -> tuple[Any, Any] | None:
    lower = (file.lower_bounds or {}).get(field_id)
    upper = (file.upper_bounds or {}).get(field_id)
    if lower is None or upper is None:
        return None
    return from_bytes(kind, lower), from_bytes(kind, upper)
