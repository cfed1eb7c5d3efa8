"""Which groups Arrow decodes, with the columns and statistics of the table."""

import datetime as dt
import decimal
import math
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
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

from arctic_orchestration.errors import InvalidInput, LakeError
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.arrow_files import why_misread
from arctic_orchestration.lake.arrow_rows import rows_of
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration.lake.merging.plain_files import PlainFiles, plain_files
from arctic_orchestration.lake.name_mapping import names_of
from arctic_orchestration.lake.spark_versions import READS_OLDER_SCHEMAS
from arctic_orchestration_tests.lake.merged_files import (
    equality_delete,
    fill,
    group_of,
    merged,
    position_delete,
    with_deletes,
)

ID = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
NAN = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", DoubleType()))


def test_rows_of_no_number_are_found_by_filters(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """NaN is above all numbers: where no bounds were given for it, none are made up."""
    table = ensure_table(catalog, "lake.nan", NAN)
    fill(table, [{"id": 1, "x": 1.0}], [{"id": 2, "x": math.nan}, {"id": 3, "x": 2.0}])
    group = group_of(table)
    rows = pq.read_table(group.files[1].path)
    spark.read.parquet(group.files[1].path).coalesce(1).write.parquet(str(tmp_path / "spark"))
    (by_spark,) = (tmp_path / "spark").glob("*.parquet")
    assert len(rows) == 2
    without = pq.ParquetFile(by_spark).read().cast(rows.schema)
    pq.write_table(without, group.files[1].path, write_statistics=["id"])
    (output,) = merged(spark, table, group_of(table), engine=Engine.ARROW).outputs
    chunks = pq.read_metadata(output.path).row_group(0)
    assert [chunks.column(n).is_stats_set for n in (0, 1)] == [True, False]
    found = spark.read.parquet(output.path).where("x > 5").collect()
    assert [row["id"] for row in found] == [2]
    query = "select id from read_parquet(?) where x > 5"
    assert duckdb.execute(query, [output.path]).fetchall() == [(2,)]


_TAG = StructType(NestedField(6, "key", StringType()), NestedField(7, "n", IntegerType()))
_ID_1 = {"PARQUET:field_id": "1"}
OLD = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "x", FloatType()),
    NestedField(3, "price", DecimalType(5, 2)),
    NestedField(4, "tags", ListType(5, _TAG, element_required=False)),
    NestedField(8, "gone", StringType()),
)


def test_columns_of_earlier_schemas(spark: SparkSession, catalog: Catalog) -> None:
    """Renamed, widened, moved, dropped and added since, and within the structs of a list."""
    table = ensure_table(catalog, "lake.earlier", OLD)
    old = {"id": -1, "x": 0.1, "price": decimal.Decimal("-1.25"), "gone": "gone"}
    fill(table, [old | {"tags": [{"key": "a", "n": 2}, None]}, dict.fromkeys(OLD.column_names[:3])])
    with table.update_schema() as update:
        update.delete_column("gone")
        update.rename_column("id", "number")
        update.update_column("id", LongType())
        update.update_column("x", DoubleType())
        update.update_column("price", DecimalType(20, 2))
        update.rename_column("tags.key", "name")
        update.update_column("tags.n", LongType())
        update.add_column(("tags", "added"), StringType())
        update.add_column("gone", LongType())
    with table.update_schema() as update:
        update.move_first("gone")
    new = {"gone": 2**40, "number": 2**40, "x": 0.1, "price": decimal.Decimal("1234567890.25")}
    fill(table, [new | {"tags": [{"name": "b", "n": 2**40, "added": "c"}]}])
    done = merged(spark, table, group_of(table), engine=Engine.ARROW)
    (output,) = done.outputs
    file = pq.ParquetFile(output.path)
    assert file.schema_arrow.names == ["gone", "number", "x", "price", "tags"]
    assert file.read().to_pylist() == [
        # The float that is nearest to 0.1.
        {"gone": None, "number": -1, "x": 0.10000000149011612, "price": decimal.Decimal("-1.25"),
         "tags": [{"name": "a", "n": 2, "added": None}, None]},
        dict.fromkeys(("gone", "number", "x", "price", "tags")),
        new | {"tags": [{"name": "b", "n": 2**40, "added": "c"}]},
    ]  # fmt: skip
    assert pyarrow_to_schema(file.schema_arrow) == table.schema()


@pytest.mark.parametrize("engine", Engine)
def test_the_level_of_compression_is_the_tables(
    spark: SparkSession, catalog: Catalog, engine: Engine
) -> None:
    """More of it, a smaller file; one of another codec is not zstd's; a bad one is named."""
    if engine is Engine.SPARK and not READS_OLDER_SCHEMAS:
        pytest.skip("PySpark 3.5: a JVM keeps its first level, see docs/installation.md")
    key = "write.parquet.compression-level"
    table = ensure_table(catalog, "lake.levels", ID)
    fill(table, [{"id": n, "text": f"{n * 7919 % 10007} {n % 97}"} for n in range(20_000)])

    def size(**properties: str) -> int:
        with table.transaction() as transaction:
            transaction.set_properties(properties)
        (output,) = merged(spark, table, group_of(table), engine=engine).outputs
        return output.size

    usual = size()
    assert size(**{key: "3"}) == usual
    assert size(**{key: "19"}) < usual
    assert size(**{"write.parquet.compression-codec": "gzip"}) == usual
    with pytest.raises(InvalidInput, match=f"{key}: got '99', expected a level of zstd"):
        size(**{key: "99", "write.parquet.compression-codec": "zstd"})


def test_why_spark_reads_a_group(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Very many deletes by value, other types, days of another calendar; each is named."""
    table = ensure_table(catalog, "lake.reasons", ID)
    fill(table, [{"id": 1, "text": "a"}], [{"id": 2, "text": "b"}])
    group = group_of(table)
    assert isinstance(plain_files(table, group), PlainFiles)
    place = position_delete(tmp_path / "p.parquet", [(group.files[0].path, 0)])
    assert isinstance(plain_files(table, with_deletes(group, {0: [place]})), PlainFiles)
    value = equality_delete(tmp_path / "v.parquet", table, ["id"], [(1,), (3,)])
    deleted = with_deletes(group, {0: [value, place], 1: [place]})
    assert isinstance(plain_files(table, deleted), PlainFiles)
    monkeypatch.setattr("arctic_orchestration.lake.merging.plain_files.MOST_HASHED", 1)
    reason = plain_files(table, deleted)
    assert isinstance(reason, str)
    assert re.fullmatch(
        r"2 rows of \d+ bytes are deleted by their values, expected .* 1 of \d+", reason
    )
    monkeypatch.undo()
    monkeypatch.setattr("arctic_orchestration.lake.merging.plain_files.MOST_HASHED_BYTES", 10)
    assert str(plain_files(table, deleted)).endswith("expected at most 1000000 of 10")
    monkeypatch.undo()
    assert isinstance(plain_files(table, deleted), PlainFiles)
    # Of a delete, an integer is no text, whatever it could be cast to.
    text = pa.table({"id": ["1", "3"]}, pa.schema([pa.field("id", pa.string(), True, _ID_1)]))
    pq.write_table(text, value.path)
    reason = plain_files(table, deleted)
    assert reason == f"{value.path}: column id is read as string, expected long"
    path = group.files[1].path

    def found(columns: list[pa.Field], values: list[Any], **more: Any) -> PlainFiles | str:
        arrays = [pa.array([value], kind.type) for value, kind in zip(values, columns, strict=True)]
        schema = pa.schema(columns, more)
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
        return plain_files(table, group)

    first, second = schema_to_pyarrow(ID)
    narrow = pa.field("id", pa.int32(), True, first.metadata)
    for columns, values in (
        ([second, first], ["x", 2]),
        ([first, second.with_name("title")], [1, "x"]),
        ([narrow], [1]),
    ):
        assert isinstance(found(columns, values), PlainFiles)
    for kind, other_value, name in (
        (pa.string(), "1", "string"),
        (pa.uint32(), 1, "uint32"),
        # Arrow follows the hint beside the schema.
        (pa.duration("us"), 1, "duration[us]"),
        (pa.list_(pa.int64()), [1], "list<element: int64>"),
    ):
        other = pa.field("id", kind, True, first.metadata)
        reason = found([other, second], [other_value, "x"])
        assert reason == f"{path}: column id is read as {name}, expected long"
    for columns in ([first, first], [first, second.with_metadata(first.metadata)]):
        reason = found(columns, [1, 1 if columns[1].name == "id" else "x"])
        assert reason == f"{path} has two columns of one name or field id"
    moved = found([first, second], [1, "x"], **{"org.apache.spark.legacyDateTime": ""})
    assert moved == f"{path} was written by a Spark that counted old dates otherwise"


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


#: before the first year of nanoseconds, before Gregory's calendar, and the last microsecond
MOMENTS = [
    _moment("2026-03-29 01:30:00.000001"),
    _moment("1500-02-28 23:59:59.999999"),
    None,
    _moment("1969-12-31 23:59:59.999999"),
    _moment("9999-12-31 23:59:59.999999"),
]


def _imported(spark: SparkSession, table: Table, place: Path) -> None:
    """Replaces the table's files by what Spark writes for Hive: INT96, and no field ids."""
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    session.conf.set("spark.sql.parquet.int96RebaseModeInWrite", "CORRECTED")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    for number, file in enumerate(group_of(table).files):
        rows = pq.read_table(file.path).to_pylist()
        frame = session.createDataFrame(rows, "id long, at timestamp").coalesce(1)
        frame.write.parquet(str(place / f"{number}"))
        (written,) = (place / f"{number}").glob("*.parquet")
        written.rename(file.path)
        column = pq.read_metadata(file.path).schema.column(1)
        assert (column.path, column.physical_type) == ("at", "INT96")
    names = create_mapping_from_schema(table.schema())
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": names.model_dump_json()})


@pytest.mark.parametrize("engine", Engine)
def test_timestamps_of_96_bits_are_moments_in_utc(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, engine: Engine
) -> None:
    """As in files that were imported from Hive: by either engine, deleted by value, and sorted."""
    at = NestedField(2, "at", TimestamptzType())
    table = ensure_table(catalog, "lake.imported", Schema(NestedField(1, "id", LongType()), at))
    rows = [{"id": number, "at": at} for number, at in enumerate(MOMENTS)]
    fill(table, rows[:3], rows[3:])
    _imported(spark, table, tmp_path)
    group = group_of(table)
    assert isinstance(plain_files(table, group), PlainFiles)

    def result(found: FileGroup) -> list[tuple[int, dt.datetime | None]]:
        (output,) = merged(spark, table, found, engine=engine).outputs
        assert pq.read_metadata(output.path).schema.column(1).physical_type == "INT64"
        return [(row["id"], row["at"]) for row in pq.read_table(output.path).to_pylist()]

    assert sorted(result(group)) == list(enumerate(MOMENTS))
    gone = [(MOMENTS[1],), (MOMENTS[2],), (_moment("2026-01-01"),)]
    value = equality_delete(tmp_path / "v.parquet", table, ["at"], gone)
    left = result(with_deletes(group, {0: [value], 1: [value]}))
    assert sorted(number for number, _ in left) == [0, 3, 4]
    with table.update_sort_order() as update:
        update.desc("at", IdentityTransform(), NullOrder.NULLS_LAST)
    table.refresh()
    assert [number for number, _ in result(group)] == [4, 0, 3, 1, 2]


def test_files_whose_old_dates_arrow_misreads_are_left_to_spark(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """Where Spark does not read a store itself, they are refused: nothing else reads them rightly.

    Spark 3.0 has Julian days in INT96, without a note in the file; Arrow 22 a time of day below 0.
    """
    at = NestedField(2, "at", TimestamptzType())
    table = ensure_table(catalog, "lake.imported", Schema(NestedField(1, "id", LongType()), at))
    fill(table, [{"id": 1, "at": MOMENTS[0]}], [{"id": 2, "at": MOMENTS[0]}])
    _imported(spark, table, tmp_path)
    group = group_of(table)
    path = Path(group.files[0].path)
    by_spark = path.read_bytes()
    pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    by_arrow = path.read_bytes()
    spark_version = pyspark.__version__.encode()
    arrow_version = re.findall(rb"parquet-cpp-arrow version (\d\d)", by_arrow)[0]
    for written, found, version, why in (
        (by_spark, spark_version, b"3.1.0", None),
        (by_spark, spark_version, b"3.0.3", "was written by a Spark that counted old dates"),
        (by_arrow, b"version " + arrow_version, b"version 23", None),
        (
            by_arrow,
            b"version " + arrow_version,
            b"version 22",
            "has INT96 by Arrow 22, which wrote",
        ),
    ):
        path.write_bytes(written.replace(found, version))
        assert isinstance(plain_files(table, group), PlainFiles) == (why is None)
        read = rows_of(table.io, str(path), (table.schema(),), names_of(table), 1 << 20)
        if why is None:
            assert [row["at"] for rows in read for row in rows.to_pylist()] == [MOMENTS[0]]
        else:
            assert str(plain_files(table, group)).startswith(f"{path} {why}")
            with pytest.raises(LakeError, match=f"it {why}"):
                next(read)


@pytest.mark.parametrize(
    ("key", "value", "is_misread"),
    [
        ("version", "1.6.3", True),
        ("version", "2.4.8", True),
        ("version", "3.0.3", False),
        ("legacyDateTime", "", True),
        ("legacyINT96", "", True),
    ],
)
def test_dates_of_an_old_spark_are_not_read_by_arrow(
    tmp_path: Path, key: str, value: str, is_misread: bool
) -> None:
    """Before 3.0 it counted days before 1582 otherwise, as a later one does where it notes it."""
    file = tmp_path / "a.parquet"
    noted = {f"org.apache.spark.{key}": value}
    pq.write_table(pa.table({"day": [dt.date(1500, 2, 28)]}).replace_schema_metadata(noted), file)
    assert (why_misread(pq.read_metadata(file)) is not None) == is_misread


def test_timestamps_of_96_bits_without_a_zone_are_left_to_spark(catalog: Catalog) -> None:
    """So are those inside of others: Arrow would read both as nanoseconds."""
    inside = StructType(NestedField(3, "at", TimestamptzType()))
    local = Schema(NestedField(1, "at", TimestampType()))
    for schema, at, name in (
        (local, dt.datetime(2026, 1, 1), "at is read as timestamp[us, tz=UTC], expected timestamp"),
        (
            Schema(NestedField(1, "of", inside)),
            {"at": _moment("2026-01-01")},
            "of.at is read as timestamp",
        ),
    ):
        column = schema.fields[0].name
        table = ensure_table(catalog, f"lake.{column}", schema)
        fill(table, [{column: at}], [{column: at}])
        for file in group_of(table).files:
            rows = pq.read_table(file.path)
            pq.write_table(rows, file.path, use_deprecated_int96_timestamps=True)
        assert f"column {name}" in str(plain_files(table, group_of(table)))
