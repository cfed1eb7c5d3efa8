"""A finished Parquet file, described for Iceberg: sizes, counts, bounds, and column ids."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.exceptions import ResolveError
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    StatsAggregator,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    match_metrics_mode,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, IcebergType, TimestampNanoType, TimestamptzNanoType

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.row_lineage import FIRST_VERSION
from arctic_orchestration.lake.shapes import SHAPES

#: They get no bounds: Python's moments, of which pyiceberg makes them, cut nanoseconds off, and
#: the order of bytes is not that of shapes.
_COUNTED = (TimestampNanoType, TimestamptzNanoType, *SHAPES)

_log = logging.getLogger("arctic_orchestration.lake")


@dataclass(frozen=True, kw_only=True)
class Described:
    """A file for a commit, with its leaf columns."""

    file: DataFile
    #: id and type of each leaf in the file
    columns: Mapping[int, IcebergType]


def describe(
    table: Table,
    path: str,
    *,
    spec_id: int,
    partition: Record | Sequence[Any],
) -> DataFile:
    """Describes a file for a commit, with statistics from one read of its footer; reads no rows.

    The field ids in the file identify its columns, so that a file from before a column was renamed
    is described as well as a newer one. Dropped columns are omitted. A column with values that
    pyiceberg cannot make bounds of has counts alone.

    Args:
        partition: the values of the spec's fields, in their order.

    Errors:
        LakeError: a column of the file has no field id, or a type that the table cannot read.
    """
    return described(table, path, spec_id=spec_id, partition=partition).file


def described(
    table: Table,
    path: str,
    *,
    spec_id: int,
    partition: Record | Sequence[Any],
    sort_order_id: int | None = None,
) -> Described:
    """Returns the result of :func:`describe`, with the columns of the file."""
    source = table.io.new_input(path)
    with source.open() as stream:
        file = pq.ParquetFile(stream)
        metadata = file.metadata
        columns = _schema_of(file, path, table)
    ids = parquet_path_to_id_mapping(columns)
    kinds = table.schema()._lazy_id_to_field
    counted = {number for number, one in kinds.items() if isinstance(one.field_type, _COUNTED)}
    unbounded = _unbounded(metadata, ids) | counted
    try:
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata,
            stats_columns=_plan(table, columns, ids, unbounded),
            parquet_column_mapping=ids,
        )
    except (KeyError, ValueError) as error:
        raise LakeError(f"{path}: the table cannot have such a column: {error}") from error
    for field_id, bounds in list(statistics.column_aggregates.items()):
        if not _is_serialized(bounds):
            del statistics.column_aggregates[field_id]
    known = set(parquet_path_to_id_mapping(table.schema()).values())
    for field_id in set(ids.values()) - known:
        statistics.column_sizes.pop(field_id, None)
    described = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition if isinstance(partition, Record) else Record(*partition),
        file_size_in_bytes=len(source),
        sort_order_id=sort_order_id,
        spec_id=spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    described.spec_id = spec_id
    leaves = {field_id: columns.find_type(field_id) for field_id in ids.values()}
    return Described(file=described, columns=leaves)


def columns_of(table: Table, path: str) -> frozenset[int]:
    """Returns the ids of the leaf columns of a Parquet file.

    Errors:
        LakeError: a column of the file has no field id.
    """
    with table.io.new_input(path).open() as stream:
        columns = _schema_of(pq.ParquetFile(stream), path, table)
    return frozenset(parquet_path_to_id_mapping(columns).values())


def unreadable(columns: Mapping[int, IcebergType], schema: Schema) -> str | None:
    """Returns the columns that a reader with this schema would refuse; None: none of them."""
    for field_id, found in columns.items():
        wanted = schema._lazy_id_to_field.get(field_id)
        if wanted is None or wanted.field_type == found:
            continue
        if isinstance(wanted.field_type, SHAPES) and isinstance(found, BinaryType):
            continue
        try:
            promote(found, wanted.field_type)
        except ResolveError:
            name = schema.find_column_name(field_id)
            return f"column {name}: {found} in the file, {wanted.field_type} in the table"
    return None


def _schema_of(file: pq.ParquetFile, path: str, table: Table) -> Schema:
    version = table.format_version
    try:
        return pyarrow_to_schema(
            file.schema_arrow,
            downcast_ns_timestamp_to_us=version < FIRST_VERSION,
            format_version=version,
        )
    except ValueError as error:
        raise LakeError(f"{path}: a column has no field id: {error}") from error


def _plan(
    table: Table, columns: Schema, ids: Mapping[str, int], unbounded: set[int]
) -> dict[int, StatisticsCollector]:
    """Plans the statistics of each of the file's leaves; none for dropped ones."""
    plan = compute_statistics_plan(table.schema(), _with_valid_modes(table.properties))
    for field_id in unbounded & plan.keys():
        if plan[field_id].mode.type != MetricModeTypes.NONE:
            counts = MetricsMode(MetricModeTypes.COUNTS)
            plan[field_id] = replace(plan[field_id], mode=counts)
    nothing = MetricsMode(MetricModeTypes.NONE)
    for path, field_id in ids.items():
        if field_id not in plan:
            kind: Any = columns.find_type(field_id)
            plan[field_id] = StatisticsCollector(field_id, kind, nothing, path)
    return plan


def _with_valid_modes(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties without invalid metrics modes.

    As in Iceberg, the table's mode replaces that of a column, and Iceberg's default the table's.
    """
    return {
        key: value
        for key, value in properties.items()
        if not _names_mode(key) or _is_mode(key, value)
    }


def _names_mode(key: str) -> bool:
    return key == TableProperties.DEFAULT_WRITE_METRICS_MODE or key.startswith(
        f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}."
    )


def _is_mode(key: str, value: str) -> bool:
    try:
        match_metrics_mode(value)
    except ValueError as error:
        _log.warning("the property %s is ignored: %s", key, error)
        return False
    return True


def _unbounded(metadata: Any, ids: Mapping[str, int]) -> set[int]:
    """Returns columns with values but without bounds in some row group, or with unreadable ones.

    Parquet omits the bounds of very long values, and its greatest value is NaN if any value is NaN.
    Bounds of the other values alone would make readers skip the file for rows that it contains.
    Python has no dates before year 1 and after 9999, and no text that is not UTF-8.
    """
    found = set()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for position in range(metadata.num_columns):
            chunk = group.column(position)
            if not (is_bounded(chunk) and _is_readable(chunk.statistics)):
                found.add(ids[chunk.path_in_schema])
    return found


def _is_readable(statistics: Any) -> bool:
    try:
        _ = statistics.min, statistics.max
    except (OverflowError, ValueError):
        return False
    return True


def _is_serialized(bounds: StatsAggregator) -> bool:
    """Returns whether pyiceberg can write the bounds.

    It truncates text at code points that UTF-8 lacks: the one after U+D7FF is a surrogate.
    """
    try:
        bounds.min_as_bytes()
        bounds.max_as_bytes()
    except (OverflowError, ValueError):
        return False
    return True


def is_bounded(chunk: Any) -> bool:
    """Returns whether a column chunk has a smallest and a greatest value, or only nulls."""
    statistics = chunk.statistics
    if statistics is None:
        return False
    if not statistics.has_min_max:
        return bool(statistics.has_null_count and statistics.null_count == chunk.num_values)
    if chunk.physical_type in ("FLOAT", "DOUBLE"):
        return not (math.isnan(statistics.min) or math.isnan(statistics.max))
    return True
