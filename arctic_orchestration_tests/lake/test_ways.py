"""Row groups are copied only where nothing is lost by it, and otherwise the reason is said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, FileGroup
from arctic_orchestration.lake.merging import strategy
from arctic_orchestration.lake.merging.strategy import Way, choose_way
from arctic_orchestration_tests.lake.parquet_inputs import (
    arrow_rows,
    encrypted,
    group,
    live,
    written,
)

MB = 1_000_000
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
NESTED = Schema(
    NestedField(1, "list", ListType(11, IntegerType(), False)),
    NestedField(2, "map", MapType(21, StringType(), 22, DoubleType(), False)),
    NestedField(3, "both", StructType(NestedField(31, "x", DateType()))),
)


def rows(first: int = 0, count: int = 3) -> pa.Table:
    found = [{"id": number, "name": str(number)} for number in range(first, first + count)]
    return arrow_rows(SCHEMA, found)


def new_table(catalog: Catalog, schema: Schema = SCHEMA, **more: Any) -> Table:
    catalog.create_namespace_if_not_exists("lake")
    return catalog.create_table("lake.table", schema, **more)


def two(tmp_path: Path, some: pa.Table, other: pa.Table | None = None, **options: Any) -> FileGroup:
    """Two files that the table takes for large ones."""
    files = [
        written(tmp_path / "0.parquet", some, **options),
        written(tmp_path / "1.parquet", some if other is None else other, **options),
    ]
    return group(*(replace(file, size=10 * MB) for file in files))


def reason(table: Table, files: FileGroup, spark: Any = None) -> str:
    """Why the files are decoded; fails if they are not."""
    way, because = choose_way(spark, table, files)
    assert way == Way.DECODE, because
    return because


def test_files_of_the_tables_schema_are_appended(catalog: Catalog, tmp_path: Path) -> None:
    """Two files of 10 MB, one with two row groups and one with one: 20 / 3."""
    table = new_table(catalog)
    files = two(tmp_path, rows(0, 3))
    written(tmp_path / "1.parquet", rows(3, 3), row_group_size=2)
    way, because = choose_way(None, table, files)
    assert way == Way.APPEND
    assert because == (
        "2 files of one schema, no deletes, row groups of 6.7 MB: copied without decoding"
    )


def test_lists_maps_and_structs_are_appended_when_all_ids_are_there(
    catalog: Catalog, tmp_path: Path
) -> None:
    """Spark leaves out the ids of elements, keys and values; such files are decoded."""
    table = new_table(catalog, NESTED)
    # pyiceberg gives fields new ids when it makes a table.
    some = arrow_rows(table.schema(), [{"list": [1], "map": {"k": 1.0}, "both": {"x": None}}])
    assert choose_way(None, table, two(tmp_path, some))[0] == Way.APPEND
    kind = pa.list_(pa.field("element", pa.int32()))
    field = some.schema.field(0).with_type(kind)
    without = some.cast(some.schema.set(0, field))
    assert "field ids are missing" in reason(table, two(tmp_path, without))


TYPES: list[tuple[IcebergType, pa.DataType, pa.DataType]] = [
    (BooleanType(), pa.bool_(), pa.int32()),
    (IntegerType(), pa.int32(), pa.uint32()),
    (IntegerType(), pa.int32(), pa.int16()),
    (LongType(), pa.int64(), pa.int32()),
    (LongType(), pa.int64(), pa.timestamp("us")),
    (FloatType(), pa.float32(), pa.float64()),
    (DoubleType(), pa.float64(), pa.float32()),
    (DecimalType(9, 2), pa.decimal128(9, 2), pa.decimal128(8, 2)),
    (DecimalType(30, 2), pa.decimal128(30, 2), pa.decimal128(30, 3)),
    (DateType(), pa.date32(), pa.int32()),
    (TimeType(), pa.time64("us"), pa.time64("ns")),
    (TimestampType(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (TimestamptzType(), pa.timestamp("us", "UTC"), pa.timestamp("us")),
    (TimestampType(), pa.timestamp("us"), pa.timestamp("ms")),
    (StringType(), pa.string(), pa.binary()),
    (BinaryType(), pa.binary(), pa.string()),
    (UUIDType(), pa.uuid(), pa.binary(15)),
    (FixedType(4), pa.binary(4), pa.binary(5)),
]


@pytest.mark.parametrize(("kind", "same", "other"), TYPES, ids=[str(one[:1]) for one in TYPES])
def test_types_are_compared_as_they_are_written(
    catalog: Catalog, tmp_path: Path, kind: IcebergType, same: pa.DataType, other: pa.DataType
) -> None:
    """A column of another physical or logical type is read otherwise; it must be decoded."""
    table = new_table(catalog, Schema(NestedField(1, "c", kind)))

    def files(found: pa.DataType) -> FileGroup:
        field = pa.field("c", found, True, {"PARQUET:field_id": "1"})
        return two(tmp_path, pa.table([pa.array([None], found)], pa.schema([field])))

    assert choose_way(None, table, files(same))[0] == Way.APPEND
    assert f"expected {kind}" in reason(table, files(other))


def test_timestamps_of_96_bits_are_decoded(catalog: Catalog, tmp_path: Path) -> None:
    """Iceberg reads them from imported files and writes none."""
    table = new_table(catalog, Schema(NestedField(1, "at", TimestamptzType())))
    files = two(
        tmp_path,
        arrow_rows(table.schema(), [{"at": None}]),
        use_deprecated_int96_timestamps=True,
    )
    assert "column at is INT96, expected timestamptz" in reason(table, files)


def test_what_the_plan_knows_needs_no_look_at_the_files(catalog: Catalog, tmp_path: Path) -> None:
    """One file; another format; deletes; a session without a JVM. None of the files exists."""
    table = new_table(catalog)
    (tmp_path / "none").touch()
    file = replace(live(tmp_path / "none", 1), path="/nowhere.parquet", size=10 * MB)
    delete = DeleteFile(path="d", kind=DeleteKind.POSITION, size=1, rows=1, sequence_number=2)
    assert "a file alone" in reason(table, group(file))
    other = replace(file, file_format="orc")
    assert reason(table, group(file, other)) == "/nowhere.parquet is orc, not Parquet"
    deleted = replace(file, deletes=(delete,))
    assert reason(table, group(file, deleted)) == "rows are deleted from 1 of 2 files"

    class Connected:
        def __getattr__(self, name: str) -> None:
            raise AttributeError(name)

    assert "Spark Connect" in reason(table, group(file, file), Connected())
    with pytest.raises(LakeError, match="cannot be read"):
        choose_way(None, table, group(file, file))


def test_a_table_with_a_sort_order_is_decoded(catalog: Catalog, tmp_path: Path) -> None:
    """Row groups one after another are not sorted."""
    order = SortOrder(SortField(1, IdentityTransform()))
    table = new_table(catalog, sort_order=order)
    assert "merged files are sorted" in reason(table, two(tmp_path, rows()))


def test_files_that_differ_from_each_other_or_from_the_table_are_decoded(
    catalog: Catalog, tmp_path: Path
) -> None:
    """A column more, one less, another name, another id, another order, another place."""
    table = new_table(catalog)
    assert reason(table, two(tmp_path, rows(), rows().select(["name", "id"]))) == (
        "the 2 files have 2 physical schemas"
    )
    # The order of all files alike is no matter: readers go by ids.
    assert choose_way(None, table, two(tmp_path, rows().select(["name", "id"])))[0] == Way.APPEND
    less = reason(table, two(tmp_path, rows().select(["id"])))
    assert "has no fields" in less
    assert "name" in less
    named = rows().rename_columns(["id", "title"])
    assert "has no fields" in reason(table, two(tmp_path, named))
    field = rows().schema.field(1).with_metadata({"PARQUET:field_id": "7"})
    other_id = rows().cast(rows().schema.set(1, field))
    assert "the id 7" in reason(table, two(tmp_path, other_id))
    bare = pa.schema([field.remove_metadata() for field in rows().schema])
    assert "field ids are missing" in reason(table, two(tmp_path, rows().cast(bare)))
    with table.update_schema() as update:
        update.delete_column("name")
    assert "column name is not the table's" in reason(table, two(tmp_path, rows()))


def test_a_column_that_was_widened_is_decoded(catalog: Catalog, tmp_path: Path) -> None:
    """The files hold 32 bits, the table 64."""
    table = new_table(catalog, Schema(NestedField(1, "id", IntegerType())))
    files = two(tmp_path, arrow_rows(table.schema(), [{"id": 1}]))
    assert choose_way(None, table, files)[0] == Way.APPEND
    with table.update_schema() as update:
        update.update_column("id", LongType())
    assert "column id is INT32, expected long" in reason(table, files)


def test_small_row_groups_are_decoded(catalog: Catalog, tmp_path: Path) -> None:
    """Just below the least size, and at it; on the average of all files."""
    table = new_table(catalog)
    files = two(tmp_path, rows())
    first, second = files.files
    least = strategy.SMALLEST_ROW_GROUP
    large = group(replace(first, size=least // 2), replace(second, size=least + least // 2))
    assert choose_way(None, table, large)[0] == Way.APPEND
    small = group(replace(first, size=least - 1), replace(second, size=least))
    assert "MB on the average" in reason(table, small)


def test_files_without_rows_are_decoded(catalog: Catalog, tmp_path: Path) -> None:
    """Without row groups there is nothing to copy."""
    table = new_table(catalog)
    assert reason(table, two(tmp_path, rows(0, 0))) == "the files have no rows"


def test_uncompressed_files_are_decoded(catalog: Catalog, tmp_path: Path) -> None:
    """Copied, they would stay large; Snappy is compression enough."""
    table = new_table(catalog)
    assert "not compressed" in reason(table, two(tmp_path, rows(), compression="none"))
    assert choose_way(None, table, two(tmp_path, rows(), compression="snappy"))[0] == Way.APPEND


def test_encrypted_and_broken_files_are_named(catalog: Catalog, tmp_path: Path) -> None:
    """With a footer that can be read and one that cannot; cut off; no Parquet at all."""
    table = new_table(catalog)
    signed = encrypted(tmp_path / "signed.parquet", rows(), footer=False)
    assert "signed.parquet is encrypted" in reason(table, group(signed, signed))
    closed = encrypted(tmp_path / "closed.parquet", rows(), footer=True)
    assert "closed.parquet is encrypted" in reason(table, group(closed, closed))
    for content in (b"", b"x", b"PAR1", b"no parquet", b"PAR1\xff\xff\xff\xffPAR1"):
        (tmp_path / "broken.parquet").write_bytes(content)
        broken = live(tmp_path / "broken.parquet", 1)
        assert "broken.parquet is not a Parquet file" in reason(table, group(broken, broken))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1" + b"\xff" * 8 + b"\x08\0\0\0PAR1")
    broken = live(tmp_path / "broken.parquet", 1)
    assert "its footer cannot be read" in reason(table, group(broken, broken))


@pytest.mark.parametrize(
    ("metadata", "way"),
    [
        ({"org.apache.spark.version": "2.4.8"}, Way.DECODE),
        ({"org.apache.spark.version": "4.3.0"}, Way.APPEND),
        ({"org.apache.spark.version": "10.0.0"}, Way.APPEND),
        ({"org.apache.spark.version": "4.3.0", "org.apache.spark.legacyDateTime": ""}, Way.DECODE),
    ],
)
def test_files_with_old_dates_of_another_calendar_are_decoded(
    catalog: Catalog, tmp_path: Path, metadata: dict[str, str], way: Way
) -> None:
    """Spark knows them by the key-value metadata, which is one for all row groups of a file."""
    table = new_table(catalog)
    files = two(tmp_path, rows())
    for file in files.files:
        with pq.ParquetWriter(file.path, rows().schema, compression="zstd") as writer:
            writer.write_table(rows())
            writer.add_key_value_metadata(metadata)
    assert choose_way(None, table, files)[0] == way


def test_a_long_footer_is_read_whole(catalog: Catalog, tmp_path: Path) -> None:
    """Of 700 columns; longer than what is read of a file's end at first."""
    schema = Schema(*(NestedField(n, f"column_{n}", LongType()) for n in range(1, 701)))
    table = new_table(catalog, schema)
    files = two(tmp_path, arrow_rows(schema, [{"column_1": 1}]))
    content = Path(files.files[0].path).read_bytes()
    assert int.from_bytes(content[-8:-4], "little") > 64 * 1024
    assert choose_way(None, table, files)[0] == Way.APPEND
