"""Files become fewer files with the same rows, or nothing at all."""

import decimal
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)
from pyspark.sql import SparkSession

from arctic_orchestration.errors import InvalidInput, LakeError
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.connect import is_over_connect
from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration.lake.spark_versions import session_settings
from arctic_orchestration_tests.lake.merged_files import (
    equality_delete,
    fill,
    group_of,
    ids,
    merged,
    numbered,
    position_delete,
    rows_of,
    with_deletes,
)
from arctic_orchestration_tests.lake.test_round_trip import ALL_TYPES, ROWS
from arctic_orchestration_tests.lake.test_round_trip import plain as named

ID = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))


def left_below(table: Table) -> list[str]:
    """What is below the directory of the attempt."""
    attempt = Path(table.location_provider().new_data_location("compaction-attempt-1"))
    return [str(path) for path in attempt.rglob("*") if path.is_file()]


@pytest.mark.parametrize("engine", Engine)
def test_all_types_survive_with_their_ids(
    spark: SparkSession, catalog: Catalog, engine: Engine
) -> None:
    """A full row, extremes and nulls; zstd, the id of every field, and nothing but the files."""
    table = ensure_table(catalog, "lake.types", ALL_TYPES)
    expected = [named(ALL_TYPES, row) for row in ROWS]
    fill(table, [expected[0]], expected[1:])
    done = merged(spark, table, group_of(table), engine=engine)
    assert sorted(rows_of(done), key=lambda row: row["id"]) == expected
    assert f"decoded by {engine.value.title()}" in done.because
    assert (done.rows_in, done.rows_deleted, done.rows_out) == (3, 0, 3)
    assert (done.way, done.sort_order_id) == (Way.DECODE, None)
    (output,) = done.outputs
    assert output.path.startswith(f"{table.location()}/data/compaction-attempt-1/")
    assert (output.rows, output.size) == (3, Path(output.path).stat().st_size)
    found = str(pq.ParquetFile(output.path).schema)
    assert all(f"field_id={number} " in found for number in table.schema()._lazy_id_to_field)
    assert pq.read_metadata(output.path).row_group(0).column(0).compression == "ZSTD"


def test_columns_come_out_as_the_table_has_them_now(spark: SparkSession, catalog: Catalog) -> None:
    """Renamed, added, dropped, moved and widened, at the top and inside; old names used again."""
    leg = StructType(NestedField(5, "miles", IntegerType()), NestedField(6, "to", StringType()))
    schema = Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "name", StringType()),
        NestedField(3, "ratio", FloatType()),
        NestedField(4, "legs", optional_list(7, leg)),
        NestedField(8, "price", DecimalType(5, 2)),
        NestedField(9, "where", optional_map(10, leg_like(20))),
    )
    table = ensure_table(catalog, "lake.evolving", schema)
    price = decimal.Decimal("1.25")
    old = {"id": 1, "name": "old", "ratio": 0.5, "price": price}
    old |= {"legs": [{"miles": 7, "to": "LAX"}, None], "where": {"k": {"a": 1, "b": 2}}}
    fill(table, [old])
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("name", "title").update_column("id", LongType())
        update.update_column("ratio", DoubleType()).update_column("price", DecimalType(20, 2))
        update.update_column("legs.element.miles", LongType())
        update.rename_column("legs.element.to", "airport")
        update.add_column(("legs", "gate"), StringType())
        update.delete_column("where.value.a")
    with table.update_schema() as update:
        update.add_column("name", StringType()).move_first("title")
    new = {
        "title": "new",
        "id": 2**40,
        "ratio": 1.5,
        "price": decimal.Decimal("3"),
        "name": "other",
    }
    new |= {"legs": [{"miles": 2**41, "airport": "SEA", "gate": "B2"}], "where": {}}
    fill(table, [new])
    done = merged(spark, table, group_of(table))
    first = {"title": "old", "id": 1, "ratio": 0.5, "price": price, "name": None}
    first["legs"] = [{"miles": 7, "airport": "LAX", "gate": None}, None]
    first["where"] = {"k": {"b": 2}}
    found = sorted(rows_of(done), key=lambda row: row["id"])
    assert found == [first, new | {"price": decimal.Decimal("3.00")}]
    assert list(rows_of(done)[0]) == ["title", "id", "ratio", "legs", "price", "where", "name"]


def optional_list(number: int, element: IcebergType) -> ListType:
    return ListType(number, element, element_required=False)


def optional_map(number: int, value: IcebergType) -> MapType:
    return MapType(number, StringType(), number + 1, value, value_required=False)


def leg_like(first: int) -> StructType:
    return StructType(
        NestedField(first, "a", IntegerType()), NestedField(first + 1, "b", IntegerType())
    )


def test_a_struct_of_new_fields_only_is_null_where_it_was(
    spark: SparkSession, catalog: Catalog
) -> None:
    """No field that is requested is in the file; the structs are there all the same."""
    deep = StructType(NestedField(5, "x", LongType()), NestedField(6, "in", leg_like(7)))
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "s", StructType(NestedField(3, "old", LongType()))),
        NestedField(4, "deep", deep),
        NestedField(10, "l", optional_list(11, leg_like(12))),
        NestedField(14, "m", optional_map(15, StructType(NestedField(17, "in", deep)))),
    )
    table = ensure_table(catalog, "lake.structs", schema)
    there, legs = {"old": 1}, {"a": 1, "b": 1}
    below = {"in": {"x": 1, "in": legs}}
    empty = {"in": {"x": 1, "in": None}}
    maps = {"k": below, "i": empty}
    fill(
        table,
        [
            {"id": 1, "s": there, "deep": {"x": 1, "in": legs}, "l": [legs, None], "m": {}},
            {"id": 2, "s": None, "deep": {"x": 1, "in": None}, "l": [], "m": maps},
            {"id": 3, "s": there, "deep": None, "l": None, "m": {"k": {"in": None}, "n": None}},
        ],
    )

    def evolve(*path: str, dropped: tuple[str, ...]) -> None:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.add_column((*path, "new"), StringType())
            for name in dropped:
                update.delete_column(".".join((*path, name)))

    evolve("s", dropped=("old",))
    evolve("deep", "in", dropped=("a", "b"))
    new = {"new": None}
    expected: list[dict[str, Any]] = [
        {"id": 1, "s": new, "deep": {"x": 1, "in": new}, "l": [legs, None], "m": {}},
        {"id": 2, "s": None, "deep": {"x": 1, "in": None}, "l": [], "m": maps},
        {"id": 3, "s": new, "deep": None, "l": None, "m": {"k": {"in": None}, "n": None}},
    ]
    assert rows_of(merged(spark, table, group_of(table))) == expected
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("l.element.a").delete_column("m.value.in.in.a")
        update.add_column(("m", "value", "in", "in", "c"), LongType())
    for row in expected:
        row["l"] = row["l"] and [one and {"b": one["b"]} for one in row["l"]]
    expected[1]["m"] = {"k": {"in": {"x": 1, "in": {"b": 1, "c": None}}}, "i": empty}
    assert rows_of(merged(spark, table, group_of(table))) == expected
    evolve("l", dropped=("element.b",))
    for row in expected:
        row["l"] = row["l"] and [one and new for one in row["l"]]
    assert rows_of(merged(spark, table, group_of(table))) == expected
    evolve("m", "value", "in", "in", dropped=("b", "c"))
    expected[1]["m"] = {"k": {"in": {"x": 1, "in": new}}, "i": {"in": {"x": 1, "in": None}}}
    assert rows_of(merged(spark, table, group_of(table))) == expected
    evolve("m", "value", dropped=("in",))
    expected[1]["m"] = {"k": new, "i": new}
    expected[2]["m"] = {"k": new, "n": None}
    assert rows_of(merged(spark, table, group_of(table))) == expected


def test_any_name_of_a_column_will_do(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """Names that the merge uses itself, or Spark, or that need quoting."""
    names = ["_metadata", "c1", "c2", "file", "path", "number", "position", "deleted", "gone"]
    names += ["reach_0", "need_0", "key_0_1", "a.b", "a`b", "dropped 30", "a b"]
    schema = Schema(
        *(NestedField(number, name, LongType()) for number, name in enumerate(names, 1)),
        NestedField(30, "other", LongType()),
    )
    table = ensure_table(catalog, "lake.names", schema)
    rows = [dict.fromkeys(names, number) | {"other": number} for number in range(5)]
    fill(table, rows)
    group = group_of(table)
    positions = position_delete(tmp_path / "p.parquet", [(group.files[0].path, 0)])
    values = equality_delete(tmp_path / "v.parquet", table, ["_metadata", "other"], [(1, 1)])
    with table.update_schema() as update:
        update.delete_column("other")
    done = merged(spark, table, with_deletes(group, {0: [positions, values]}))
    assert rows_of(done) == [dict.fromkeys(names, number) for number in (2, 3, 4)]


@pytest.mark.parametrize("engine", Engine)
def test_names_of_other_types_come_out_right(
    spark: SparkSession, catalog: Catalog, engine: Engine
) -> None:
    """A column and a field of a struct are called as another one was when the file was written."""
    inside = StructType(NestedField(4, "x", LongType()), NestedField(5, "y", StringType()))
    schema = Schema(
        NestedField(1, "a", LongType()),
        NestedField(2, "b", StringType()),
        NestedField(3, "s", inside),
    )
    table = ensure_table(catalog, "lake.exchanged", schema)
    fill(table, [{"a": 1, "b": "one", "s": {"x": 2, "y": "two"}}])
    for path in ("", "s."):
        a, b = ("x", "y") if path else ("a", "b")
        for name, new in ((a, "free"), (b, a), ("free", b)):
            with table.update_schema() as update:
                update.rename_column(path + name, new)
    with table.update_schema() as update:
        update.add_column("c1", StringType())
    later = {"a": "two", "b": 2, "s": {"x": "three", "y": 3}, "c1": "c"}
    fill(table, [later])
    done = merged(spark, table, group_of(table), engine=engine)
    first = {"a": "one", "b": 1, "s": {"x": "two", "y": 2}, "c1": None}
    assert sorted(rows_of(done), key=lambda row: row["b"]) == [first, later]


def test_one_output_has_the_files_by_size_and_several_by_their_order(
    spark: SparkSession, catalog: Catalog
) -> None:
    """Files of 10, 40, 20 and 30 rows; to a third of their size they become three files.

    Only Spark's own rows come by size.
    """
    table = ensure_table(catalog, "lake.ordered", ID)
    counts = [10, 40, 20, 30]
    starts = [0, 100, 200, 300]
    files = [
        [{"id": start + place, "text": f"{start + place:0900}"} for place in range(count)]
        for start, count in zip(starts, counts, strict=True)
    ]
    fill(table, *files)
    group = group_of(table)
    by_size = sorted(group.files, key=lambda file: -file.size)
    assert [file.rows for file in by_size] == [40, 30, 20, 10]
    whole = [row["id"] for file in files for row in file]
    done = merged(spark, table, group, engine=Engine.SPARK)
    assert ids(done) == whole[10:50] + whole[70:] + whole[50:70] + whole[:10]
    size = sum(file.size for file in group.files)
    assert ids(merged(spark, table, group)) == whole
    for engine in Engine:
        done = merged(spark, table, group, target_bytes=size // 3, engine=engine)
        assert ids(done) == whole
        assert [output.rows for output in done.outputs] == [34, 34, 32]
        # Two fifths too large is better than two of which each is far too small.
        done = merged(spark, table, group, target_bytes=size * 5 // 7, engine=engine)
        assert len(done.outputs) == 1
        done = merged(spark, table, group, target_bytes=size * 5 // 8, engine=engine)
        assert len(done.outputs) == 2


@pytest.mark.parametrize("engine", Engine)
def test_row_groups_are_as_large_as_the_table_says(
    spark: SparkSession, catalog: Catalog, engine: Engine
) -> None:
    """Without the property one row group; a property that is no size is refused by name."""
    key = "write.parquet.row-group-size-bytes"
    table = ensure_table(catalog, "lake.row_groups", ID)
    fill(table, [{"id": number, "text": f"{number * 7919:0200}"} for number in range(20_000)])
    (output,) = merged(spark, table, group_of(table), engine=engine).outputs
    assert pq.read_metadata(output.path).num_row_groups == 1
    with table.transaction() as transaction:
        transaction.set_properties({key: str(200_000)})
    (output,) = merged(spark, table, group_of(table), engine=engine).outputs
    assert pq.read_metadata(output.path).num_row_groups > 1
    for bad in ("many", "0"):
        with table.transaction() as transaction:
            transaction.set_properties({key: bad})
        with pytest.raises(InvalidInput, match=f"{key}: got '{bad}', expected a number of bytes"):
            merged(spark, table, group_of(table), engine=engine)


@pytest.mark.parametrize("engine", Engine)
def test_a_null_in_a_required_column_stays(
    spark: SparkSession, catalog: Catalog, engine: Engine
) -> None:
    """Readers see it today, written by an engine that does not look; they see it tomorrow."""
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    table = ensure_table(catalog, "lake.required", schema)
    fill(table, *numbered([1, 2]))
    group = group_of(table)
    columns = pa.schema([pa.field("id", pa.int64(), True, {"PARQUET:field_id": "1"})])
    pq.write_table(pa.table({"id": [1, None]}, columns), group.files[0].path)
    assert ids(merged(spark, table, group, engine=engine)) == [1, None]


def test_row_groups_are_appended_when_that_is_requested(
    spark: SparkSession, catalog: Catalog
) -> None:
    """The rows are counted there too; asked for nothing, the result says why it was chosen."""
    table = ensure_table(catalog, "lake.appended", ID)
    fill(table, *numbered([1, 2], [3]))
    if is_over_connect(spark):
        with pytest.raises(LakeError, match="cannot be copied: Spark Connect has no JVM here"):
            merged(spark, table, group_of(table), way=Way.APPEND)
        chosen = merged(spark, table, group_of(table), way=None)
        assert (chosen.way, ids(chosen)) == (Way.DECODE, [1, 2, 3])
        assert chosen.because.startswith("Spark Connect has no JVM here to copy row groups in; ")
        return
    done = merged(spark, table, group_of(table), way=Way.APPEND)
    assert ids(done) == [1, 2, 3]
    assert (done.way, done.rows_out, done.rows_deleted) == (Way.APPEND, 3, 0)
    assert sum(output.size for output in done.outputs) == Path(done.outputs[0].path).stat().st_size
    chosen = merged(spark, table, group_of(table), way=None)
    assert chosen.way == Way.DECODE
    assert "row groups of" in chosen.because


def test_the_session_is_as_it_was(spark: SparkSession, catalog: Catalog) -> None:
    """No setting of the session that others use is changed, and it stays the active one."""
    before = dict(session_settings(spark))
    table = ensure_table(catalog, "lake.settings", ID)
    fill(table, *numbered([1]))
    merged(spark, table, group_of(table))
    assert session_settings(spark) == before
    assert SparkSession.getActiveSession() is spark


def test_two_merges_at_once(spark: SparkSession, catalog: Catalog) -> None:
    """In two threads of one session, as a worker does."""
    tables = [ensure_table(catalog, f"lake.at_once_{number}", ID) for number in range(2)]
    found: dict[int, Any] = {}
    for number, table in enumerate(tables):
        fill(table, *numbered([number], [number + 10]))

    def work(number: int) -> None:
        found[number] = ids(merged(spark, tables[number], group_of(tables[number])))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: [0, 10], 1: [1, 11]}
