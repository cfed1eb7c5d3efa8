"""Rows are sorted as Python sorts them, in memory and through local files."""

import datetime as dt
import functools
import itertools
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from arctic_orchestration.lake.merging import arrow_sorting
from arctic_orchestration.lake.merging.arrow_sorting import Source, sorted_rows
from arctic_orchestration.lake.merging.sort_keys import Key, Order, key_values, why_not_sorted

_NAIVE = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))
#: a type: in Arrow, and its values; the least numbers cannot be truncated
KINDS: dict[IcebergType, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    BooleanType(): (pa.bool_(), st.booleans()),
    IntegerType(): (pa.int32(), st.integers(9 - 2**31, 2**31 - 1)),
    LongType(): (pa.int64(), st.integers(9 - 2**63, 2**63 - 1)),
    FloatType(): (pa.float32(), st.floats(width=32)),
    DoubleType(): (pa.float64(), st.floats()),
    DecimalType(38, 2): (
        pa.decimal128(38, 2),
        st.decimals(Decimal("-1e35"), Decimal("1e35"), places=2),
    ),
    DateType(): (pa.date32(), st.dates()),
    TimeType(): (pa.time64("us"), st.times()),
    TimestampType(): (pa.timestamp("us"), _NAIVE),
    TimestamptzType(): (
        pa.timestamp("us", "UTC"),
        _NAIVE.map(lambda at: at.replace(tzinfo=dt.UTC)),
    ),
    StringType(): (pa.string(), st.text()),
    BinaryType(): (pa.binary(), st.binary()),
    FixedType(3): (pa.binary(3), st.binary(min_size=3, max_size=3)),
    UUIDType(): (pa.uuid(), st.uuids()),
}
#: transforms of a type that Arrow sorts by
TRANSFORMS: dict[type[IcebergType], list[Transform[Any, Any]]] = {
    IntegerType: [BucketTransform(4), TruncateTransform(10)],
    LongType: [BucketTransform(4), TruncateTransform(10)],
    DecimalType: [BucketTransform(4), TruncateTransform(10)],
    StringType: [BucketTransform(4)],
    BinaryType: [BucketTransform(4), TruncateTransform(2)],
    UUIDType: [BucketTransform(4)],
    DateType: [DayTransform(), BucketTransform(4)],
    TimestampType: [DayTransform(), HourTransform(), BucketTransform(4)],
    TimestamptzType: [HourTransform(), BucketTransform(4)],
}


def source(table: pa.Table, piece: int) -> Source:
    """Reads a table in pieces of so many rows."""

    def read(names: list[str] | None) -> Iterator[pa.Table]:
        for start in range(0, len(table), piece):
            part = table.slice(start, piece)
            yield part if names is None else part.select(names)

    return read


def compared(key: Key, one: Any, other: Any) -> int:
    """The order of two values by Iceberg's specification, by Python alone."""
    if key.transform is not None:
        transform = key.transform.transform(key.kind)
        one, other = (transform(_internal(value)) for value in (one, other))
    if one is None or other is None:
        order = (other is None) - (one is None)
        return order if key.nulls_first else -order
    first, second = _comparable(one), _comparable(other)
    order = int(first > second) - int(first < second)
    return -order if key.descending else order


def _internal(value: Any) -> Any:
    """As the transforms of pyiceberg take it: days and microseconds since 1970."""
    if isinstance(value, dt.datetime):
        zone = value.tzinfo
        return (value - dt.datetime(1970, 1, 1, tzinfo=zone)) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    return value


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Table, tuple[Key, ...]]:
    count = draw(st.integers(0, 60))
    columns = {"row": pa.array(range(count), pa.int64())}
    keys = []
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(list(KINDS)))
        arrow, values = KINDS[kind]
        # A few values come often.
        few = draw(st.lists(values, min_size=1, max_size=3))
        column = draw(
            st.lists(
                st.none() | values | st.sampled_from(few) | st.sampled_from(few),
                min_size=count, max_size=count,
            )
        )  # fmt: skip
        name = f"c{number}"
        columns[name] = pa.array(column, arrow)
        path: tuple[str, ...] = (name,)
        if draw(st.booleans()):
            columns[name] = pa.StructArray.from_arrays([columns[name]], names=["a.b"])
            path = (name, "a.b")
        transforms = [None, *TRANSFORMS.get(type(kind), [])]
        keys.append(
            Key(
                path=path,
                kind=kind,
                transform=draw(st.sampled_from(transforms)),
                descending=draw(st.booleans()),
                nulls_first=draw(st.booleans()),
            )
        )
    return pa.table(columns), tuple(keys)


@given(case=cases(), piece=st.integers(1, 20), most_bytes=st.sampled_from([1, 200, 1 << 20]))
def test_rows_come_in_order(
    case: tuple[pa.Table, tuple[Key, ...]], piece: int, most_bytes: int
) -> None:
    """Of all types, by several keys; each row once, and unchanged."""
    table, keys = case
    found = list(sorted_rows(source(table, piece), Order(keys=keys), most_bytes))
    result = pa.concat_tables(found) if found else table
    assert result.schema == table.schema
    assert sorted(result["row"].to_pylist()) == table["row"].to_pylist()
    by_row = {row["row"]: repr(row) for row in result.to_pylist()}
    assert by_row == {row["row"]: repr(row) for row in table.to_pylist()}
    for one, other in itertools.pairwise(_values(result, keys)):
        orders = map(compared, keys, one, other)
        assert next((order for order in orders if order), 0) <= 0


def _values(table: pa.Table, keys: tuple[Key, ...]) -> list[tuple[Any, ...]]:
    columns = [
        [functools.reduce(lambda value, name: value and value[name], key.path[1:], value)
         for value in table[key.path[0]].to_pylist()]
        for key in keys
    ]  # fmt: skip
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nanoseconds_have_the_buckets_of_microseconds(zone: str | None) -> None:
    """As the specification has it, also before 1970: of the microsecond that began before them."""
    numbers = pa.array([1_000_001, -1, -1_999, None, -(2**63)], pa.int64())
    kind = TimestampNanoType() if zone is None else TimestamptzNanoType()
    found = key_values(
        pa.table({"at": numbers.cast(pa.timestamp("ns", zone))}),
        Key(path=("at",), kind=kind, transform=BucketTransform(1000)),
    )
    bucket = BucketTransform(1000).transform(LongType())
    assert found.to_pylist()[:4] == [bucket(1_000), bucket(-1), bucket(-2), None]


def orders(distinct: int, rows: int) -> pa.Table:
    """Rows of which nine in ten have the same first key, and the rest many others."""
    random = np.random.default_rng(1)
    first = np.where(random.random(rows) < 0.9, 7, random.integers(0, distinct, rows))
    return pa.table(
        {
            "row": np.arange(rows),
            "first": first,
            "second": [f"key {number:06}" for number in random.integers(0, distinct, rows)],
        }
    )


FIRST = Key(path=("first",), kind=LongType())
SECOND = Key(path=("second",), kind=StringType(), descending=True)


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Spark lets its workers write; pieces are small."""
    folder = tmp_path / "local"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{folder},/nowhere")
    monkeypatch.setattr(arrow_sorting, "SLICE_BYTES", 10_000)
    return folder


#: Buffers may outlive the test, and need their pool.
_POOLS: list[pa.MemoryPool] = []


@pytest.mark.parametrize("distinct", [1, 3, 100_000])
@pytest.mark.parametrize("keys", [(FIRST,), (FIRST, SECOND)])
def test_memory_is_bounded(
    local: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[Key, ...], distinct: int
) -> None:
    """Also where most rows agree in the first key, or in all keys; local files are removed."""
    table = orders(distinct, 400_000)
    expected = table.sort_by(
        [(key.path[0], "descending" if key.descending else "ascending") for key in keys]
    ).select([key.path[0] for key in keys])
    most = 200_000
    assert table.nbytes == 60 * most
    monkeypatch.setattr(arrow_sorting, "SLICE_BYTES", most // 2)
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    rows = 0
    used = set()
    try:
        for piece in sorted_rows(source(table, 2000), Order(keys=keys), most):
            assert piece.select(expected.column_names) == expected.slice(rows, len(piece))
            rows += len(piece)
            used |= {file.name for file in local.glob("*/*")}
    finally:
        pa.set_memory_pool(default)
    assert rows == len(table)
    # Twice for a moment, with the keys, a slice, and the sample.
    assert pool.max_memory() < 8 * most
    assert used
    assert list(local.iterdir()) == []


def test_a_curve_is_the_same_through_files(local: Path) -> None:
    """The places of the rows do not depend on how they were sorted."""
    table = orders(100, 5000)
    order = Order(keys=(FIRST, SECOND), curve=True)
    whole, parted = (
        pa.concat_tables(sorted_rows(source(table, 500), order, most)) for most in (1 << 30, 20_000)
    )
    assert sorted(parted["row"].to_pylist()) == list(range(5000))
    places = [_places(table, one) for one in (whole, parted)]
    assert places[0] == places[1] == sorted(places[0])
    assert len(set(places[0])) > 100
    assert list(local.iterdir()) == []


def _places(table: pa.Table, found: pa.Table) -> list[int]:
    """The places on the curve: ranks among 64 shares of the rows, bit by bit."""
    places = [0] * len(found)
    for number, name in enumerate(("first", "second")):
        known = sorted(table[name].to_pylist())
        bounds = [known[math.ceil(share * len(known) / 64) - 1] for share in range(1, 64)]
        for row, value in enumerate(found[name].to_pylist()):
            rank = sum(bound < value for bound in bounds)
            for bit in range(6):
                places[row] |= (rank >> bit & 1) << (2 * bit + 1 - number)
    return places


def test_local_files_of_a_failure_are_removed(local: Path) -> None:
    """Whether the rows end in an error, or nobody wants the rest of them."""
    table = orders(100, 5000)

    def broken(names: list[str] | None) -> Iterator[pa.Table]:
        yield from source(table, 500)(names)
        if names is None:
            assert [file.name for file in local.glob("*/*")]
            raise OSError("the store is away")

    with pytest.raises(OSError, match="the store is away"):
        list(sorted_rows(broken, Order(keys=(FIRST,)), 20_000))
    assert list(local.iterdir()) == []
    rows = sorted_rows(source(table, 500), Order(keys=(FIRST,)), 20_000)
    next(rows)
    assert list(local.glob("*/*"))
    rows.close()
    assert list(local.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "transform"),
    [
        (TimestampType(), YearTransform()),
        (DateType(), MonthTransform()),
        (StringType(), TruncateTransform(2)),
        (LongType(), UnknownTransform("other")),
    ],
)
def test_some_transforms_are_left_to_spark(
    kind: IcebergType, transform: Transform[Any, Any]
) -> None:
    """Their values by pyiceberg are no order: none for far dates, and no text for odd bytes."""
    order = Order(keys=(FIRST, Key(path=("s", "x"), kind=kind, transform=transform)))
    assert why_not_sorted(order) == f"rows are sorted by {transform} of s.x"
    assert why_not_sorted(Order(keys=(FIRST, SECOND))) is None
