"""Merged files are sorted as a property of the table says; pyiceberg then skips files."""

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import SparkSession

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.table_plan import PlanState
from arctic_orchestration.compaction.planning.table_planner import plan_loaded
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.clustering import PROPERTY, clustering_of
from arctic_orchestration.lake.merging.merge import Engine, Merged, merge
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration.lake.sort_columns import parse_clustering
from arctic_orchestration_tests.lake.delete_writer import (
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.stored_tables import group_of, merged, replaced

SIDE, FILES = 64, 16


def grid_schema(last: str = "a.b") -> Schema:
    """With a column whose name is that of a field of a struct, too; Arrow reads no such files."""
    return Schema(
        NestedField(1, "a", LongType()),
        NestedField(2, "b", StringType()),
        NestedField(3, "s", StructType(NestedField(4, "x", DoubleType()))),
        NestedField(5, last, LongType()),
    )


def last_of(engine: Engine) -> str:
    return "a.b" if engine is Engine.SPARK else "c"


def grid(catalog: Catalog, rule: str, last: str) -> Table:
    """Each pair of two numbers once, in any order, in two files."""
    properties = {PROPERTY: rule}
    table = ensure_table(catalog, "lake.grid", grid_schema(last), properties=properties)
    rows = [
        {"a": a, "b": f"text {b:03}", "s": {"x": float(b)}, last: a + b}
        for a in range(SIDE)
        for b in range(SIDE)
    ]
    random.Random(1).shuffle(rows)
    for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        table.append(pa.Table.from_pylist(half, schema=table.schema().as_arrow()))
    return table


def clustered(spark: SparkSession, table: Table, engine: Engine) -> Table:
    """Merges into many files, and commits."""
    group = group_of(table)
    directory = table.location_provider().new_data_location("compaction-attempt-1")
    target = math.ceil(sum(file.size for file in group.files) / FILES)
    done = merge(spark, table, group, directory, target_bytes=target, engine=engine)
    replaced(table, group, done)
    return table.refresh()


def files(table: Table, condition: str) -> int:
    """How many files pyiceberg would read."""
    return len(list(table.scan(row_filter=condition).plan_files()))


@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize(
    ("rule", "most"),
    [("b, a", (16, 1)), ("zorder(a, b)", (4, 4))],
)
def test_readers_skip_files(
    spark: SparkSession, catalog: Catalog, rule: str, most: tuple[int, int], engine: Engine
) -> None:
    """By one column only, or by both: 16 files of a curve are squares, 4 in each row and column."""
    table = grid(catalog, rule, last_of(engine))
    before = sorted(table.scan().to_arrow().to_pylist(), key=repr)
    assert files(table, "a = 20") == 2
    clustered(spark, table, engine)
    written = len(list(table.scan().plan_files()))
    assert written == FILES
    by_a = max(files(table, f"a = {n}") for n in range(SIDE))
    by_b = max(files(table, f"b = 'text {n:03}'") for n in range(SIDE))
    assert (by_a, by_b) == most
    assert files(table, "a = 20 and b = 'text 020'") == 1
    assert sorted(table.scan().to_arrow().to_pylist(), key=repr) == before


@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize("rule", ["a", "s.x desc", "a.b, a desc"])
def test_rows_are_in_the_order_of_the_columns(
    spark: SparkSession, catalog: Catalog, rule: str, engine: Engine
) -> None:
    """Ascending with nulls first, descending with nulls last; a dot may be part of a name."""
    last = last_of(engine)
    properties = {PROPERTY: rule.replace("a.b", last)}
    table = ensure_table(catalog, "lake.rows", grid_schema(last), properties=properties)
    numbers = [3, None, 1, 2, 5, 4]
    rows = [
        {"a": n, "b": None, "s": None if n is None else {"x": float(n)}, last: n and n % 2}
        for n in numbers
    ]
    for some in (rows[:3], rows[3:]):
        table.append(pa.Table.from_pylist(some, schema=table.schema().as_arrow()))
    expected = {
        "a": [None, 1, 2, 3, 4, 5], "s.x desc": [5, 4, 3, 2, 1, None],
        "a.b, a desc": [None, 4, 2, 5, 3, 1],
    }[rule]  # fmt: skip
    done = merged(spark, table, group_of(table), engine=engine)
    assert [row["a"] for row in read(done)] == expected
    assert done.way is Way.DECODE
    assert done.sort_order_id is None


def read(done: Merged) -> list[dict[str, Any]]:
    return [row for one in done.outputs for row in pq.ParquetFile(one.path).read().to_pylist()]


@pytest.mark.parametrize("engine", Engine)
def test_a_curve_takes_all_values_of_its_types(
    spark: SparkSession, catalog: Catalog, engine: Engine
) -> None:
    """Nulls, what is not a number, texts of any bytes, the first and the last moments."""
    schema = Schema(
        NestedField(1, "f", DoubleType()),
        NestedField(2, "t", StringType()),
        NestedField(3, "m", DecimalType(38, 2)),
        NestedField(4, "d", DateType()),
        NestedField(5, "z", TimestamptzType()),
        NestedField(6, "n", TimestampType()),
    )
    low, high = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)
    rows = [
        {"f": float("nan"), "t": "", "m": Decimal("-1e35"), "d": low.date(),
         "z": low.replace(tzinfo=dt.UTC), "n": low},
        {"f": float("-inf"), "t": "\U0010ffff\x00", "m": Decimal("1e35"), "d": high.date(),
         "z": high.replace(tzinfo=dt.UTC), "n": high},
        dict.fromkeys(("f", "t", "m", "d", "z", "n")),
        {"f": -0.0, "t": "a" * 99, "m": Decimal(0), "d": dt.date(1970, 1, 1),
         "z": dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "n": dt.datetime(1970, 1, 1)},
    ]  # fmt: skip
    for number, columns in enumerate(("f, t, m", "d, z, n")):
        properties = {PROPERTY: f"zorder({columns})"}
        table = ensure_table(catalog, f"lake.odd{number}", schema, properties=properties)
        for some in (rows[:2], rows[2:]):
            table.append(pa.Table.from_pylist(some, schema=table.schema().as_arrow()))
        before = table.refresh().scan().to_arrow().to_pylist()
        done = merged(spark, table, group_of(table), engine=engine)
        replaced(table, group_of(table), done)
        found = table.refresh().scan().to_arrow().to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, before))
        assert len(found) == len(rows)


def test_deleted_rows_are_counted_once(spark: SparkSession, catalog: Catalog) -> None:
    """Although the rows of a curve are read twice: by position and by value."""
    table = ensure_table(catalog, "lake.less", grid_schema(), properties={PROPERTY: "zorder(a, b)"})
    rows = [{"a": n, "b": str(n % 7), "s": None, "a.b": n % 3} for n in range(60)]
    for some in (rows[:30], rows[30:]):
        table.append(pa.Table.from_pylist(some, schema=table.schema().as_arrow()))
    path = group_of(table).files[0].path
    add_position_deletes(table, {path: [0, 5]})
    add_equality_deletes(table, pa.table({"a.b": [1]}), ["a.b"])
    gone = {pq.ParquetFile(path).read()["a"].to_pylist()[place] for place in (0, 5)}
    expected = [row["a"] for row in rows if row["a.b"] != 1 and row["a"] not in gone]
    done = merged(spark, table, group_of(table))
    assert sorted(row["a"] for row in read(done)) == expected
    assert done.rows_deleted == 60 - len(expected)


@pytest.mark.parametrize("engine", Engine)
def test_without_rows_there_is_nothing_to_rank(
    spark: SparkSession, catalog: Catalog, engine: Engine
) -> None:
    """Files of nulls alone, and files without rows."""
    schema = grid_schema(last_of(engine))
    table = ensure_table(catalog, "lake.none", schema, properties={PROPERTY: "zorder(a, b)"})
    nothing = dict.fromkeys(schema.column_names[:3])
    for some in ([nothing], [nothing, nothing]):
        table.append(pa.Table.from_pylist(some, schema=table.schema().as_arrow()))
    assert len(read(merged(spark, table, group_of(table), engine=engine))) == 3


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("", "columns such as: origin, delay desc"),
        ("a,,b", "columns such as: origin, delay desc"),
        ("a, a", "columns such as: origin, delay desc"),
        ("a upwards", "columns such as: origin, delay desc"),
        ("zorder(a)", "a z-order of 2 to 4 columns"),
        ("zorder(a, b, c, d, e)", "a z-order of 2 to 4 columns"),
        ("zorder(a desc, b)", "a z-order without asc or desc"),
    ],
)
def test_what_is_no_rule_is_refused(rule: str, expected: str) -> None:
    """With what was expected."""
    with pytest.raises(ValueError, match="^" + expected.replace("(", r"\(")):
        parse_clustering(rule)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("gone", "expected columns of the table: a, flag, s, l, m, p"),
        ("A", "expected columns of the table: a, flag, s, l, m, p"),
        ("s", "expected columns that have an order, which s (struct<5: x: optional long>) has not"),
        ("zorder(a, flag)", "expected columns that have an order, which flag (boolean) has not"),
        *(
            (name, f"expected columns, or fields of structs, which {name} inside of a list or map")
            for name in ("l.element", "m.key", "m.value", "p.element.y")
        ),
    ],
)
def test_columns_that_cannot_be_sorted_by_are_refused(
    catalog: Catalog, rule: str, expected: str
) -> None:
    """By the property, its value and the table."""
    inside = StructType(NestedField(5, "x", LongType()))
    schema = Schema(
        NestedField(1, "a", LongType()),
        NestedField(2, "flag", BooleanType()),
        NestedField(3, "s", inside),
        NestedField(6, "l", ListType(7, StringType())),
        NestedField(8, "m", MapType(9, StringType(), 10, LongType())),
        NestedField(11, "p", ListType(12, StructType(NestedField(13, "y", LongType())))),
    )
    table = ensure_table(catalog, "lake.few", schema, properties={PROPERTY: rule})
    with pytest.raises(InvalidInput) as refused:
        clustering_of(table)
    text = str(refused.value)
    assert text.startswith(f"{PROPERTY} of lake.few: got {rule!r}, ")
    assert expected.partition(" (struct")[0] in text
    # A plan refuses the table before any of its files is merged.
    policy = Policy.of(table.properties, "lake.few")
    assert plan_loaded(table, policy, PlanState(), utc_now()).refused == text
