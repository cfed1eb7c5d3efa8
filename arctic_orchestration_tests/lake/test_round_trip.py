"""What is appended through Spark is what pyiceberg's own scan reads, and what `read` reads."""

import datetime as dt
import decimal
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import DataFrame, SparkSession

from arctic_orchestration.errors import SchemaMismatch
from arctic_orchestration.lake import append, ensure_table, open_catalog, read
from arctic_orchestration.lake.connect import is_over_connect
from arctic_orchestration.lake.schema import spark_schema
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.row_filters import EqualTo, GreaterThan

UTC = dt.UTC

ALL_TYPES = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "flag", BooleanType()),
    NestedField(3, "big", LongType()),
    NestedField(4, "ratio", FloatType()),
    NestedField(5, "exact ratio", DoubleType()),
    NestedField(6, "price", DecimalType(9, 2)),
    NestedField(7, "huge", DecimalType(38, 10)),
    NestedField(8, "day", DateType()),
    NestedField(9, "wall", TimestampType()),
    NestedField(10, "moment", TimestamptzType()),
    NestedField(11, "text.dotted", StringType()),
    NestedField(12, "raw", BinaryType()),
    NestedField(13, "list", ListType(130, StringType(), element_required=False)),
    NestedField(14, "map", MapType(140, StringType(), 141, LongType(), value_required=False)),
    NestedField(
        15,
        "struct",
        StructType(
            NestedField(150, "a", IntegerType()),
            NestedField(151, "deep", ListType(152, ListType(153, DateType()))),
        ),
    ),
)

#: A full row, a row of extremes, a row of nulls.
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        True,
        2**40,
        0.5,
        0.1,
        decimal.Decimal("1234567.89"),
        decimal.Decimal("-1234567890123456789012345678.0123456789"),
        dt.date(2013, 1, 1),
        dt.datetime(2013, 1, 1, 5, 15, 0, 1),
        dt.datetime(2013, 1, 1, 10, 15, tzinfo=UTC),
        "JFK",
        b"\x00\xff",
        ["a", None, ""],
        {"k": 1, "n": None},
        (7, [[dt.date(2013, 1, 1)], []]),
    ),
    (
        2,
        False,
        -(2**63),
        math.inf,
        -0.0,
        decimal.Decimal("-9999999.90"),
        decimal.Decimal(0),
        dt.date(1, 1, 1),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        "\U0001f6eb " * 3000,
        b"",
        [],
        {},
        (None, None),
    ),
    (3, *([None] * 14)),
]


def frame(spark: SparkSession, schema: Schema, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, spark_schema(schema))


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In order, and maps as mappings: a map has no order."""
    for row in rows:
        if isinstance(row["map"], list):
            row["map"] = dict(row["map"])
    return sorted(rows, key=lambda row: row["id"])


def plain(schema: Schema, row: tuple[Any, ...]) -> dict[str, Any]:
    """The row by names, as pyiceberg's scan gives it."""
    values = dict(zip((field.name for field in schema.fields), row, strict=True))
    if values["struct"] is not None:
        values["struct"] = dict(zip(("a", "deep"), values["struct"], strict=True))
    return values


def test_all_types_come_back_equal(spark: SparkSession, catalog: Catalog) -> None:
    """A full row, extremes and nulls, through pyiceberg's scan and through Spark."""
    table = ensure_table(catalog, "lake.types", ALL_TYPES)
    written = frame(spark, ALL_TYPES, ROWS)
    appended = append(spark, written, table)
    assert (appended.rows, appended.written) == (3, True)
    assert by_id(table.scan().to_arrow().to_pylist()) == [plain(ALL_TYPES, row) for row in ROWS]
    assert sorted(read(spark, table).collect(), key=lambda row: row["id"]) == sorted(
        written.collect(), key=lambda row: row["id"]
    )


def test_every_field_id_is_in_the_files(spark: SparkSession, catalog: Catalog) -> None:
    """Elements of lists, keys and values of maps included, as the table numbered them."""
    table = ensure_table(catalog, "lake.ids", ALL_TYPES)
    append(spark, frame(spark, ALL_TYPES, ROWS), table)
    for task in table.scan().plan_files():
        found = str(pq.ParquetFile(task.file.file_path).schema)
        for field_id in table.schema()._lazy_id_to_field:
            assert f"field_id={field_id} " in found
        assert pq.read_metadata(task.file.file_path).row_group(0).column(0).compression == "ZSTD"


def test_rows_from_anywhere_get_their_ids(spark: SparkSession, catalog: Catalog) -> None:
    """Rows that Spark made itself, without any id: flat ones need no second copy of the file."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(
            2, "s", StructType(NestedField(3, "b", LongType()), NestedField(4, "a", LongType()))
        ),
    )
    table = ensure_table(catalog, "lake.anywhere", schema)
    append(spark, spark.range(1), table)
    other_order = "id + 1 as id, named_struct('a', int(5), 'b', id) as s"
    append(spark, spark.range(1).selectExpr(*other_order.split(", ", 1)), table)
    append(spark, spark.range(1).selectExpr("id + 2 as id", "named_struct('a', 7L) as s"), table)
    expected = [
        {"id": 0, "s": None},
        {"id": 1, "s": {"b": 0, "a": 5}},
        {"id": 2, "s": {"b": None, "a": 7}},
    ]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    found = read(spark, table).orderBy("id").collect()
    assert [row.asDict(recursive=True) for row in found] == expected
    assert not [
        t.file for t in table.scan().plan_files() if t.file.file_path.endswith("-ids.parquet")
    ]


def test_files_are_described_by_what_is_in_them(spark: SparkSession, catalog: Catalog) -> None:
    """Counts and bounds of a file of four rows, computed manually."""
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "ratio", DoubleType()))
    table = ensure_table(catalog, "lake.described", schema)
    rows = [(5, 1.0), (-2, math.nan), (None, None), (9, 3.0)]
    append(spark, frame(spark, schema, rows).coalesce(1), table)
    (task,) = table.scan().plan_files()
    file = task.file
    assert file.record_count == 4
    assert file.file_size_in_bytes == Path(file.file_path).stat().st_size
    assert file.value_counts == {1: 4, 2: 4}
    assert file.null_value_counts == {1: 1, 2: 1}
    # -2 and 9 as four bytes, the lowest first; a column with a NaN has no bounds.
    assert file.lower_bounds == {1: b"\xfe\xff\xff\xff"}
    assert file.upper_bounds == {1: b"\x09\x00\x00\x00"}


def test_bounds_of_some_row_groups_do_not_stand_for_all(
    spark: SparkSession, catalog: Catalog
) -> None:
    """A NaN leaves the first row group without bounds; the row 50.0 in it must still be found."""
    schema = Schema(NestedField(1, "ratio", DoubleType()), NestedField(2, "fill", StringType()))
    table = ensure_table(catalog, "lake.row_groups", schema)
    ordered = spark.range(0, 200_000, 1, 1).selectExpr(
        "case when id = 0 then double('NaN') when id = 1 then 50d else 1d end as ratio",
        "sha2(string(id), 512) as fill",
    )
    spark.conf.set("parquet.block.size", str(1024 * 1024))
    try:
        append(spark, ordered, table)
    finally:
        spark.conf.unset("parquet.block.size")
    (task,) = table.scan().plan_files()
    groups = pq.read_metadata(task.file.file_path).num_row_groups
    assert groups > 1
    assert table.scan(row_filter=EqualTo("ratio", 50.0)).to_arrow().num_rows == 1
    assert read(spark, table, row_filter=EqualTo("ratio", 50.0)).count() == 1


IDENTITY: Transform[Any, Any] = IdentityTransform()


@pytest.mark.parametrize(
    "fields",
    [
        [(name, IdentityTransform()) for name in ("text.dotted", "raw", "flag", "huge", "day")],
        [("moment", IDENTITY), ("day", MonthTransform())],
        [
            ("day", YearTransform()),
            ("moment", HourTransform()),
            ("wall", MonthTransform()),
        ],
        [(name, BucketTransform(5)) for name in ("id", "text.dotted", "moment", "huge", "raw")],
        [("day", DayTransform())],
        [
            ("wall", DayTransform()),
            ("id", TruncateTransform(2)),
            ("text.dotted", TruncateTransform(2)),
            ("raw", TruncateTransform(1)),
            ("price", TruncateTransform(10)),
            ("flag", VoidTransform()),
        ],
    ],
    ids=["identity", "moment", "times", "buckets", "day", "truncated"],
)
def test_partitions_are_those_that_pyiceberg_gives_the_rows(
    spark: SparkSession, catalog: Catalog, fields: list[tuple[str, Transform[Any, Any]]]
) -> None:
    """The partitions and their row counts are those of pyiceberg's own write of the same rows."""
    spec = PartitionSpec(
        *(
            PartitionField(
                ALL_TYPES.find_field(source).field_id, 1000 + number, transform, f"p{number}"
            )
            for number, (source, transform) in enumerate(fields)
        )
    )
    twins = [(row[0] + 10, *row[1:]) for row in ROWS]
    ours = ensure_table(catalog, "lake.ours", ALL_TYPES, partition_spec=spec)
    append(spark, frame(spark, ALL_TYPES, ROWS + twins), ours)
    rows = ours.scan().to_arrow()
    assert by_id(rows.to_pylist()) == [plain(ALL_TYPES, row) for row in ROWS + twins]
    # pyiceberg would name directories by the values, longer than a file system takes.
    short = {
        "write.object-storage.enabled": "true",
        "write.object-storage.partitioned-paths": "false",
    }
    reference = ensure_table(catalog, "lake.reference", ALL_TYPES, spec, short)
    reference.append(rows)

    def counts(table: Any) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for task in table.scan().plan_files():
            values = task.file.partition
            found[tuple(values[number] for number in range(len(fields)))] += task.file.record_count
        return found

    assert counts(ours) == counts(reference)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("date_from_unix_date(5000000)", "15659-07-15"),
        ("date_from_unix_date(-900000)", "-0495-11-20"),
        ("timestamp_seconds(300000000000)", "11476-08-15 05:20:00"),
    ],
)
def test_years_that_have_no_partition_are_refused(
    spark: SparkSession, catalog: Catalog, value: str, text: str
) -> None:
    """By column and value. Where the column beside it is that of the partition, they are rows."""
    kind = DateType() if "date" in value else TimestamptzType()
    inside = StructType(NestedField(2, "at", kind), NestedField(3, "id", IntegerType()))
    schema = Schema(NestedField(1, "s", inside))
    rows = spark.sql(f"select named_struct('at', {value}, 'id', 7) as s")
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "part"))
    table = ensure_table(catalog, "lake.refused", schema, partition_spec=spec)
    problem = rf"column s\.at: got {text}.*, expected a year from 1"
    with pytest.raises(SchemaMismatch, match=problem):
        append(spark, rows, table)
    assert table.refresh().current_snapshot() is None

    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part"))
    table = ensure_table(catalog, "lake.taken", schema, partition_spec=spec)
    assert append(spark, rows, table).rows == 1
    assert read(spark, table).where(f"s.at = {value}").count() == 1


def test_decimals_of_38_digits_are_in_their_partitions(
    spark: SparkSession, catalog: Catalog
) -> None:
    """Spark's difference of two of them has a digit less, and would round 5 and 6 to one number."""
    schema = Schema(NestedField(1, "d", DecimalType(38, 18)))
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(3), "part"))
    table = ensure_table(catalog, "lake.decimals", schema, partition_spec=spec)
    values = [decimal.Decimal(number).scaleb(-18) for number in (-1, 0, 2, 3, 5, 6)]
    append(spark, frame(spark, schema, [(value,) for value in values] + [(None,)]), table)
    found = {task.file.partition[0]: task.file.record_count for task in table.scan().plan_files()}
    first, second, third, fourth = (decimal.Decimal(one).scaleb(-18) for one in (-3, 0, 3, 6))
    assert found == {first: 1, second: 2, third: 2, fourth: 1, None: 1}
    for value in values:
        assert table.scan(row_filter=EqualTo("d", value)).to_arrow()["d"].to_pylist() == [value]


def test_an_empty_text_and_a_null_are_different_partitions(
    spark: SparkSession, catalog: Catalog
) -> None:
    """Spark's directories hold both under one name; the table must not."""
    schema = Schema(NestedField(1, "text", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "text"))
    table = ensure_table(catalog, "lake.empty", schema, partition_spec=spec)
    append(spark, frame(spark, schema, [("",), (None,), ("/=%",)]), table)
    found = {task.file.partition[0]: task.file.record_count for task in table.scan().plan_files()}
    assert found == {"": 1, None: 1, "/=%": 1}


def test_a_partition_inside_a_struct(spark: SparkSession, catalog: Catalog) -> None:
    """The source of a partition may be a field of a struct, and the struct may be null."""
    schema = Schema(NestedField(1, "where", StructType(NestedField(2, "origin", StringType()))))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "origin"))
    table = ensure_table(catalog, "lake.nested", schema, partition_spec=spec)
    append(spark, frame(spark, schema, [(("JFK",),), (("LGA",),), (None,)]), table)
    found = {task.file.partition[0] for task in table.scan().plan_files()}
    assert found == {"JFK", "LGA", None}
    assert table.scan(row_filter=EqualTo("where.origin", "JFK")).to_arrow().num_rows == 1
    assert read(spark, table, row_filter=EqualTo("where.origin", "JFK")).count() == 1


def test_paths_with_special_characters(spark: SparkSession, tmp_path: Path) -> None:
    """A lake below a directory with a space, patterns, a percent sign, a question mark, a colon."""
    # A Connect server does not read files of such a path with a colon.
    colon = "" if is_over_connect(spark) else ":"
    catalog = open_catalog(settings_for(tmp_path / f"a{colon} [b]{{c,d}} *?#%20é"))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "l", ListType(3, LongType())))
    table = ensure_table(catalog, "lake.odd", schema)
    append(spark, frame(spark, schema, [(1, [1]), (2, [])]), table)
    append(spark, frame(spark, schema, [(3, None)]), table)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert sorted(row.id for row in read(spark, table).collect()) == [1, 2, 3]


def test_an_empty_table_has_its_columns(spark: SparkSession, catalog: Catalog) -> None:
    """No snapshot yet: no rows, the right types."""
    table = ensure_table(catalog, "lake.none", ALL_TYPES)
    found = read(spark, table)
    assert found.count() == 0
    assert found.schema.simpleString() == spark_schema(ALL_TYPES).simpleString()
    assert read(spark, table, row_filter=GreaterThan("id", 0)).count() == 0


def test_no_rows_make_a_snapshot_without_files(spark: SparkSession, catalog: Catalog) -> None:
    """An empty DataFrame is an append like any other, and leaves no empty file."""
    table = ensure_table(catalog, "lake.empty_frame", ALL_TYPES)
    appended = append(spark, frame(spark, ALL_TYPES, []), table, once="nothing")
    assert (appended.files, appended.rows, appended.bytes) == (0, 0, 0)
    assert not append(spark, frame(spark, ALL_TYPES, ROWS), table, once="nothing").written
    assert read(spark, table).count() == 0
