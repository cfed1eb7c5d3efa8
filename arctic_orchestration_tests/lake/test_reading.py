"""Reading a table that changed since its files were written; refusing what would be wrong."""

import datetime as dt
import decimal
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSchemasUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import SparkSession

from arctic_orchestration.errors import NotFound, UnsupportedTable
from arctic_orchestration.lake import append, ensure_table, read
from arctic_orchestration.lake.file_metrics import describe
from arctic_orchestration.lake.schema import spark_schema
from arctic_orchestration.lake.spark_versions import READS_OLDER_SCHEMAS
from arctic_orchestration.lake.table_reader import literal_path
from arctic_orchestration_tests.lake.row_filters import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNaN,
    IsNull,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)


@pytest.mark.skipif(not READS_OLDER_SCHEMAS, reason="PySpark 3.5 reads no widened columns")
def test_renamed_added_moved_and_widened_columns_come_out_right(
    spark: SparkSession, catalog: Catalog
) -> None:
    """A file from before the changes and one from after; the old name is now a new column."""
    leg = StructType(NestedField(5, "miles", IntegerType()), NestedField(6, "to", StringType()))
    schema = Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "name", StringType()),
        NestedField(3, "ratio", FloatType()),
        NestedField(4, "legs", ListType(7, leg)),
        NestedField(8, "price", DecimalType(5, 2)),
        NestedField(9, "numbers", ListType(10, IntegerType())),
    )
    table = ensure_table(catalog, "lake.evolving", schema)
    old = (1, "old", 0.5, [(7, "LAX")], decimal.Decimal("1.25"), [1])
    append(spark, spark.createDataFrame([old], spark_schema(schema)), table)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("name", "title")
        update.update_column("id", LongType())
        update.update_column("ratio", DoubleType())
        update.update_column("price", DecimalType(20, 2))
        update.update_column("numbers.element", LongType())
        update.update_column("legs.element.miles", LongType())
        update.rename_column("legs.element.to", "airport")
        update.add_column(("legs", "gate"), StringType())
    with table.update_schema() as update:
        update.add_column("name", StringType())
        update.move_first("title")
    new = ("new", 2**40, 1.5, [(2**41, "SEA", "B2")], decimal.Decimal("3"), [2**42], "other")
    append(spark, spark.createDataFrame([new], spark_schema(table.schema())), table)

    expected = [
        {
            "title": "old",
            "id": 1,
            "ratio": 0.5,
            "legs": [{"miles": 7, "airport": "LAX", "gate": None}],
            "price": decimal.Decimal("1.25"),
            "numbers": [1],
            "name": None,
        },
        {
            "title": "new",
            "id": 2**40,
            "ratio": 1.5,
            "legs": [{"miles": 2**41, "airport": "SEA", "gate": "B2"}],
            "price": decimal.Decimal("3.00"),
            "numbers": [2**42],
            "name": "other",
        },
    ]
    found = read(spark, table).orderBy("id").collect()
    assert [row.asDict(recursive=True) for row in found] == expected
    scanned = table.scan().to_arrow().sort_by("id").to_pylist()
    assert scanned == expected


def test_fields_of_renamed_structs_are_read_alone(spark: SparkSession, catalog: Catalog) -> None:
    """A query of one field, in which the struct or the field has another name than in the file."""
    inside = StructType(NestedField(2, "a", LongType()), NestedField(3, "b", LongType()))
    table = ensure_table(catalog, "lake.structs", Schema(NestedField(1, "s", inside)))
    append(spark, spark.sql("select named_struct('a', 5L, 'b', 6L) as s"), table)
    with table.update_schema() as update:
        update.rename_column("s", "t")
        update.rename_column("s.a", "x")
    found = read(spark, table)
    assert [row.x for row in found.select("t.x").collect()] == [5]
    assert [row.b for row in found.where("t.x = 5").select("t.b").collect()] == [6]


@pytest.mark.parametrize("are_forgotten", [False, True])
def test_a_name_that_was_another_columns_is_filtered_by_the_new_one(
    spark: SparkSession, catalog: Catalog, are_forgotten: bool
) -> None:
    """With another type, with the same, in a struct; also without the schemas of then."""
    inside = StructType(NestedField(4, "x", LongType()))
    schema = Schema(
        NestedField(1, "a", LongType()),
        NestedField(2, "b", LongType()),
        NestedField(3, "s", inside),
    )
    table = ensure_table(catalog, f"lake.reused_{are_forgotten}", schema)
    rows = spark.range(10).selectExpr("id as a", "id as b", "named_struct('x', id) as s")
    append(spark, rows, table)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("a").rename_column("b", "c").rename_column("s.x", "y")
    with table.update_schema() as update:
        update.add_column("A", StringType()).add_column("b", LongType())
        update.add_column(("s", "x"), StringType())
    if are_forgotten:
        removed = RemoveSchemasUpdate(schema_ids=[0, 1])
        catalog.commit_table(table, (), (removed,))
        assert set(table.refresh().schemas()) == {2}
    expected = table.scan().to_arrow().to_pylist()
    assert [row["A"] or row["b"] or row["s"]["x"] for row in expected] == 10 * [None]
    found = read(spark, table).orderBy("c").collect()
    assert [row.asDict(recursive=True) for row in found] == expected
    for name in ("A", "b", "s.x"):
        assert read(spark, table).where(f"{name} is null").count() == 10
        assert read(spark, table).where(f"{name} is not null").count() == 0
        assert read(spark, table, row_filter=IsNull(name)).count() == 10


def test_a_snapshot_is_read_with_the_columns_it_had(spark: SparkSession, catalog: Catalog) -> None:
    """Before the second append and the new column; a snapshot that never was is refused."""
    schema = Schema(NestedField(1, "id", LongType()))
    table = ensure_table(catalog, "lake.travel", schema)
    first = append(spark, spark.range(2), table)
    with table.update_schema() as update:
        update.add_column("name", StringType())
    append(spark, spark.range(5), table)
    past = read(spark, table, snapshot_id=first.snapshot_id)
    assert (past.columns, past.count()) == (["id"], 2)
    now = read(spark, table)
    assert (now.columns, now.count()) == (["id", "name"], 7)
    with pytest.raises(NotFound, match="lake.travel has no snapshot 5"):
        read(spark, table, snapshot_id=5)


def test_a_filter_at_a_snapshot_is_about_the_columns_of_then(
    spark: SparkSession, catalog: Catalog
) -> None:
    """Also of a name that has become another column's, with values that match nothing."""
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))
    table = ensure_table(catalog, "lake.renamed", schema)
    rows = spark.range(10).selectExpr("id as a", "id + 100 as b")
    then = append(spark, rows, table).snapshot_id
    for name, new in (("a", "old"), ("b", "a")):
        with table.update_schema() as update:
            update.rename_column(name, new)
    for value, now, before in ((5, 0, 1), (105, 1, 0)):
        wanted = EqualTo("a", value)
        assert read(spark, table, row_filter=wanted).count() == now
        assert read(spark, table, row_filter=wanted, snapshot_id=then).count() == before
    (row,) = read(spark, table, row_filter=EqualTo("b", 107), snapshot_id=then).collect()
    assert row.asDict() == {"a": 7, "b": 107}


FILTERED = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "text", StringType()),
    NestedField(3, "ratio", DoubleType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "wall", TimestampType()),
    NestedField(6, "moment", TimestamptzType()),
    NestedField(7, "price", DecimalType(9, 2)),
    NestedField(8, "raw", BinaryType()),
    NestedField(9, "float", FloatType()),
)
MOMENT = dt.datetime(2013, 1, 1, 5, 15, 0, 7)


@pytest.fixture(scope="module")
def filtered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    from arctic_orchestration.lake import open_catalog
    from arctic_orchestration_tests.lake.conftest import settings_for

    catalog = open_catalog(settings_for(tmp_path_factory.mktemp("filtered")))
    table = ensure_table(catalog, "lake.filtered", FILTERED)
    utc = MOMENT.replace(tzinfo=dt.UTC)
    price = decimal.Decimal
    rows: list[tuple[Any, ...]] = [
        (1, "a", 1.0, dt.date(2013, 1, 1), MOMENT, utc, price("1.10"), b"\x01", 0.1),
        (2, "ab%", float("nan"), dt.date(1950, 6, 1), MOMENT, utc, price("-5"), b"", 2.5),
        (3, None, None, None, None, None, None, None, None),
        (4, "b", -1.0, dt.date(2013, 1, 2), None, utc, price("9.99"), b"\xff", float("nan")),
    ]
    append(spark, spark.createDataFrame(rows, spark_schema(FILTERED)), table)
    return table


@pytest.mark.parametrize(
    ("row_filter", "ids"),
    [
        (EqualTo("text", "a"), [1]),
        (NotEqualTo("text", "a"), [2, 4]),
        (StartsWith("text", "a"), [1, 2]),
        (NotStartsWith("text", "a"), [4]),
        (StartsWith("text", "ab%"), [2]),
        (In("id", [1, 4, 9]), [1, 4]),
        (NotIn("text", ["a", "b"]), [2]),
        (IsNull("ratio"), [3]),
        (NotNull("wall"), [1, 2]),
        (IsNaN("ratio"), [2]),
        (GreaterThan("ratio", 0.0), [1]),
        (Not(GreaterThan("ratio", 0.0)), [4]),
        (LessThanOrEqual("day", dt.date(2013, 1, 1)), [1, 2]),
        (EqualTo("wall", MOMENT), [1, 2]),
        (GreaterThan("moment", "2013-01-01T05:15:00.000006+00:00"), [1, 2, 4]),
        (GreaterThan("price", decimal.Decimal("1.09")), [1, 4]),
        (EqualTo("raw", b""), [2]),
        (EqualTo("float", 2.5), [2]),
        (GreaterThan("float", 0.0), [1, 2]),
        (And(GreaterThan("id", 1), Or(EqualTo("text", "b"), IsNull("text"))), [3, 4]),
    ],
    ids=str,
)
def test_a_filter_gives_the_rows_that_match(
    spark: SparkSession, filtered: Table, row_filter: BooleanExpression, ids: list[int]
) -> None:
    """Computed manually from the four rows above; a null matches no comparison."""
    assert sorted(row.id for row in read(spark, filtered, row_filter=row_filter).collect()) == ids


def test_a_filter_may_have_thousands_of_values(spark: SparkSession, filtered: Table) -> None:
    """Such as the keys of rows that are to be replaced; comparisons one in another are too deep."""
    many = set(range(2, 3000))
    found = read(spark, filtered, row_filter=In("id", many)).collect()
    assert sorted(row.id for row in found) == [2, 3, 4]
    assert [row.id for row in read(spark, filtered, row_filter=NotIn("id", many)).collect()] == [1]


def test_a_table_with_position_deletes_is_refused(spark: SparkSession, catalog: Catalog) -> None:
    """Reading past a delete would bring deleted rows back, and replacing would write them down."""
    schema = Schema(NestedField(1, "id", LongType()))
    table = ensure_table(catalog, "lake.deleted", schema)
    append(spark, spark.range(10).coalesce(1), table)
    (task,) = table.scan().plan_files()
    _delete_rows(table, task.file.file_path, [3])
    assert table.refresh().scan().to_arrow().num_rows == 9
    with pytest.raises(UnsupportedTable, match="1 delete files, which are not applied"):
        read(spark, table)
    with pytest.raises(UnsupportedTable, match="which are not applied"):
        append(spark, spark.range(1), table, replacing=EqualTo("id", 5))
    append(spark, spark.range(20, 22), table)
    assert table.scan().to_arrow().num_rows == 11


@pytest.mark.parametrize("setting", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_a_session_that_skips_files_loses_no_rows(
    spark: SparkSession, catalog: Catalog, setting: str
) -> None:
    """Rows of a file that cannot be read are neither left out nor replaced by nothing."""
    schema = Schema(NestedField(1, "id", LongType()))
    table = ensure_table(catalog, "lake.damaged", schema)
    append(spark, spark.range(10).coalesce(1), table)
    (task,) = table.scan().plan_files()
    path = Path(task.file.file_path)
    whole = path.read_bytes()
    spark.conf.set(f"spark.sql.files.{setting}", "true")
    try:
        found = read(spark, table)
        if setting == "ignoreMissingFiles":
            path.unlink()
        else:
            path.write_bytes(b"PAR1" + bytes(len(whole) - 4))
        with pytest.raises(Exception, match="reading file|does not exist"):
            found.collect()
        with pytest.raises(Exception, match="reading file|does not exist"):
            append(spark, spark.range(1), table, replacing=EqualTo("id", 5))
    finally:
        spark.conf.unset(f"spark.sql.files.{setting}")
    path.write_bytes(whole)
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == list(range(10))


@pytest.mark.parametrize("name", ["_a.parquet", ".a.parquet", "a.parquet._COPYING_"])
def test_files_that_spark_takes_for_temporary_ones_are_read(
    spark: SparkSession, catalog: Catalog, name: str
) -> None:
    """Other writers may choose any name. Rows of such a file that are not replaced stay."""
    schema = Schema(NestedField(1, "id", LongType()))
    table = ensure_table(catalog, "lake.hidden", schema)
    append(spark, spark.range(10, 12), table)
    path = Path(table.location()) / "data" / name
    pq.write_table(pa.table({"id": [1, 2, 3]}, schema=schema_to_pyarrow(schema)), path)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as files:
        files.append_data_file(describe(table, str(path), spec_id=0, partition=()))
    assert sorted(row.id for row in read(spark, table).collect()) == [1, 2, 3, 10, 11]
    append(spark, spark.range(20, 21), table, replacing=EqualTo("id", 2))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3, 10, 11, 20]


def test_a_path_is_not_a_pattern() -> None:
    """Each sign that Hadoop takes for a pattern gets a backslash, and no other."""
    assert literal_path("/a b/{c}[d]*?\\%#") == "/a b/\\{c\\}\\[d\\]\\*\\?\\\\%#"


def _delete_rows(table: Table, path: str, positions: list[int]) -> None:
    """Commits a position delete as another engine would."""
    target = Path(table.location()) / "data" / f"deletes-{uuid.uuid4()}.parquet"
    columns = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
        ]
    )
    content = {"file_path": [path] * len(positions), "pos": positions}
    pq.write_table(pa.table(content, columns), target)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=str(target),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(positions),
        file_size_in_bytes=target.stat().st_size,
        spec_id=0,
    )
    file.spec_id = 0
    transaction = table.transaction()
    producer = transaction.update_snapshot().fast_append()
    _as_delete_manifest(producer)
    producer.append_data_file(file)
    producer.commit()
    transaction.commit_transaction()


def _as_delete_manifest(producer: Any) -> None:
    """pyiceberg writes data manifests only; this one is marked as one of deletes."""
    from pyiceberg.manifest import ManifestContent

    writer_of = producer.new_manifest_writer

    def delete_writer(spec: Any) -> Any:
        writer = writer_of(spec)
        writer.content = lambda: ManifestContent.DELETES
        return writer

    producer.new_manifest_writer = delete_writer
