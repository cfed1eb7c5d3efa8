"""What the rows of merged files are sorted by, and its values in Arrow."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    IcebergType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from arctic_orchestration.lake.clustering import clustering_of
from arctic_orchestration.lake.schema import path_of

_NANOS = (TimestampNanoType, TimestamptzNanoType)


@dataclass(frozen=True, kw_only=True)
class Key:
    """What rows are sorted by: a column, or a field of structs."""

    path: tuple[str, ...]
    kind: IcebergType
    #: None: the value itself
    transform: Transform[Any, Any] | None = None
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, kw_only=True)
class Order:
    """By one key after the other, or along a curve over all of them."""

    keys: tuple[Key, ...]
    curve: bool = False


def order_of(table: Table, constant: Collection[str]) -> Order | None:
    """Returns the order of merged rows: by the property, else by the table's sort order.

    Args:
        constant: the columns that have one value in all rows.

    Errors:
        InvalidInput: the property is invalid.
        UnsupportedTable: the table is sorted by a column inside a list or a map.
    """
    schema = table.schema()
    clustering = clustering_of(table)
    if clustering is not None:
        fields = [schema.find_field(one.name) for one in clustering.columns]
        keys = [
            Key(
                path=path_of(schema, field.field_id),
                kind=field.field_type,
                descending=one.descending,
                nulls_first=not one.descending,
            )
            for one, field in zip(clustering.columns, fields, strict=True)
        ]
    else:
        keys = [
            Key(
                path=path_of(schema, one.source_id),
                kind=schema.find_type(one.source_id),
                transform=None if isinstance(one.transform, IdentityTransform) else one.transform,
                descending=one.direction == SortDirection.DESC,
                nulls_first=one.null_order == NullOrder.NULLS_FIRST,
            )
            for one in table.sort_order().fields
            if not isinstance(one.transform, VoidTransform)
        ]
    keys = [key for key in keys if key.path[0] not in constant]
    curve = clustering is not None and clustering.z_order
    return Order(keys=tuple(keys), curve=curve) if keys else None


def why_not_sorted(order: Order) -> str | None:
    """Returns why Arrow cannot sort; None: it can.

    pyiceberg computes no years and months of far dates, and no parts of texts that are no UTF-8.
    """
    for key in order.keys:
        is_text = isinstance(key.transform, TruncateTransform) and isinstance(key.kind, StringType)
        # No time in nanoseconds is far.
        known = isinstance(key.kind, _NANOS) or isinstance(
            key.transform, (BucketTransform, TruncateTransform, DayTransform, HourTransform)
        )
        if key.transform is not None and (is_text or not known):
            return f"rows are sorted by {key.transform} of {'.'.join(key.path)}"
    return None


def key_values(table: pa.Table, key: Key) -> pa.Array:
    """Returns the key of each row, in a type whose order is that of Iceberg."""
    values = field_values(table, key.path)
    if key.transform is not None:
        kind = key.kind
        if isinstance(kind, _NANOS):
            # pyiceberg has no hours of nanoseconds, and other buckets than Iceberg before 1970.
            kind = TimestampType() if values.type.tz is None else TimestamptzType()
            micros = pa.timestamp("us", values.type.tz)
            values = pc.floor_temporal(values, unit="microsecond").cast(micros, safe=False)
        values = one_array(key.transform.pyarrow_transform(kind)(values))
    kind = values.type
    if pa.types.is_floating(kind):
        return _whole(values)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_date32(kind):
        return values.view(pa.int32()).cast(pa.int64())
    if pa.types.is_temporal(kind):
        return values.view(pa.int64())
    return values


def field_values(table: pa.Table, path: Sequence[str]) -> pa.Array:
    """Returns a column, or a field of structs, in a type of Arrow itself."""
    values = one_array(table.column(path[0]))
    for name in path[1:]:
        values = pc.struct_field(values, [name])
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def float_bits(values: pa.Array) -> pa.Array:
    """Returns the bits of floats of 64 bits as whole numbers; all NaN are one."""
    floats = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(floats), np.nan, floats).view(np.int64)
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(bits, mask=mask)


def _whole(values: pa.Array) -> pa.Array:
    """Returns whole numbers with the order of floats: infinities, and NaN above all.

    The bits of positive floats have their order; those of negative ones have the reverse.
    """
    bits = float_bits(pc.add(values, pa.scalar(0, values.type)))  # minus zero becomes zero
    return pc.if_else(pc.less(bits, 0), pc.bit_wise_xor(bits, 2**63 - 1), bits)


def one_array(values: Any) -> pa.Array:
    """Returns the chunks as one array."""
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)
    return values
