"""Row groups that are copied are the same row groups, in files that every reader reads alike."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from pyspark.sql import SparkSession

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, LiveFile
from arctic_orchestration.lake.merging import row_groups
from arctic_orchestration.lake.merging.row_groups import append_row_groups, bins, read_footers
from arctic_orchestration.lake.schema import spark_schema
from arctic_orchestration.lake.table_reader import literal_path
from arctic_orchestration_tests.lake.parquet_inputs import (
    arrow_rows,
    encrypted,
    group,
    live,
    written,
)

NESTED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "list", ListType(31, StructType(NestedField(32, "x", IntegerType())), False)),
    NestedField(4, "map", MapType(41, StringType(), 42, DoubleType(), False)),
)
PLAIN = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))

MB = 1_000_000


@pytest.fixture
def spark(classic_spark: SparkSession) -> SparkSession:
    """Row groups are copied in the JVM of the driver, which a Connect session has not here."""
    return classic_spark


def nested(first: int, count: int) -> pa.Table:
    rows = [
        {
            "id": number,
            "name": None if number % 7 == 0 else f"näme {number}",
            "list": [{"x": number}, None] if number % 3 else [],
            "map": {"k": number / 2} if number % 5 else None,
        }
        for number in range(first, first + count)
    ]
    return arrow_rows(NESTED, rows)


def plain(first: int, count: int) -> pa.Table:
    rows = [{"id": number, "name": f"n{number}"} for number in range(first, first + count)]
    return arrow_rows(PLAIN, rows)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return ensure_table(catalog, "lake.plain", PLAIN)


@pytest.mark.parametrize("name", ["plain", "a b%20c", "{x}[y]*?", "größe#1", "back\\slash"])
def test_every_reader_finds_the_rows_and_their_order(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, name: str
) -> None:
    """Three files of 100, 50 and 7 rows, in row groups of at most 30, in odd directories."""
    table = ensure_table(catalog, "lake.nested", NESTED)
    inputs = [nested(0, 100), nested(100, 50), nested(150, 7)]
    files = [
        written(tmp_path / name / f"{number}.parquet", rows, row_group_size=30)
        for number, rows in enumerate(inputs)
    ]
    target = tmp_path / f"{name} out"
    (path,) = append_row_groups(spark, table, group(*files), str(target), 128 * MB)

    assert [file.name for file in target.iterdir()] == [Path(path).name], "and no .crc file"
    expected = pa.concat_tables(inputs)
    assert pq.read_table(path).to_pylist() == expected.to_pylist()
    found = duckdb.connect().execute(
        "select id, name from read_parquet(?)", [_at_a_plain_path(path, tmp_path)]
    )
    assert found.fetchall() == [(row["id"], row["name"]) for row in expected.to_pylist()]
    rows = spark.read.schema(spark_schema(NESTED)).parquet(literal_path(path)).collect()
    # A map of pyarrow is a list of pairs.
    assert [
        {**row.asDict(recursive=True), "map": row["map"] and list(row["map"].items())}
        for row in rows
    ] == expected.to_pylist()


def test_row_groups_and_field_ids_stay(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """100 and 50 rows in groups of 30: four and two groups, and the ids of elements too."""
    table = ensure_table(catalog, "lake.nested", NESTED)
    files = [
        written(tmp_path / "0.parquet", nested(0, 100), row_group_size=30),
        written(tmp_path / "1.parquet", nested(100, 50), row_group_size=30),
    ]
    (path,) = append_row_groups(spark, table, group(*files), str(tmp_path / "out"), 128 * MB)
    (footer,) = read_footers(table.io, [path])
    assert [rows for rows, _ in footer.row_groups] == [30, 30, 30, 10, 30, 20]
    for field_id in (1, 2, 3, 31, 32, 4, 41, 42):
        assert f"field_id={field_id} " in footer.schema


def test_types_that_spark_does_not_keep_are_copied(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    """UUIDs do not survive decoding by Spark."""
    schema = Schema(NestedField(1, "id", UUIDType()))
    table = ensure_table_unchecked(catalog, "lake.uuids", schema)
    rows = [bytes([number]) * 16 for number in range(4)]
    files = [
        written(
            tmp_path / f"{number}.parquet",
            arrow_rows(schema, [{"id": one} for one in rows[number : number + 2]]),
        )
        for number in (0, 2)
    ]
    (path,) = append_row_groups(spark, table, group(*files), str(tmp_path / "out"), 128 * MB)
    assert [row["id"].bytes for row in pq.read_table(path).to_pylist()] == rows


def test_page_indexes_and_bloom_filters_point_to_the_right_rows(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """Files of Spark with many pages and a filter: each value is found, and excluded elsewhere."""
    pytest.importorskip("duckdb", minversion="1.2", reason="it has parquet_bloom_probe")
    files: list[LiveFile] = []
    for first in (0, 1000):
        frame = spark.createDataFrame(plain(first, 1000).to_pylist(), spark_schema(PLAIN))
        folder = tmp_path / str(first)
        frame.coalesce(1).write.option("parquet.bloom.filter.enabled#name", "true").option(
            "parquet.page.row.count.limit", "100"
        ).option("compression", "zstd").parquet(str(folder))
        (path,) = folder.glob("*.parquet")
        files.append(live(path, 1000))
    (output,) = append_row_groups(spark, table, group(*files), str(tmp_path / "out"), 128 * MB)

    chunk = pq.read_metadata(output).row_group(1).column(1)
    assert chunk.has_offset_index
    assert chunk.has_column_index
    rows = spark.read.schema(spark_schema(PLAIN)).parquet(output)
    for number in (0, 555, 999, 1000, 1001, 1999):
        found = rows.where(f"id = {number}").collect()
        assert [tuple(row) for row in found] == [(number, f"n{number}")]
        assert rows.where(f"name = 'n{number}'").count() == 1
    probe = "select row_group_id, bloom_filter_excludes from parquet_bloom_probe(?, 'name', ?)"
    excluded = dict(duckdb.connect().execute(probe, [output, "n1500"]).fetchall())
    assert excluded == {0: True, 1: False}


def test_what_all_inputs_say_is_kept_and_the_rest_is_not(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """``iceberg.schema`` is the same in both; ``writer`` differs; only one has ``pandas``."""
    ours = [{"iceberg.schema": "{}", "writer": "a"}, {"iceberg.schema": "{}", "writer": "b"}]
    ours[1]["pandas"] = "x"
    files = []
    for number, entries in enumerate(ours):
        rows, path = plain(number, 1), tmp_path / f"{number}.parquet"
        with pq.ParquetWriter(path, rows.schema, store_schema=number == 0) as writer:
            writer.write_table(rows)
            writer.add_key_value_metadata(entries)
        files.append(live(path, 1))
    (output,) = append_row_groups(spark, table, group(*files), str(tmp_path / "out"), 128 * MB)
    kept = dict(pq.read_metadata(output).metadata)
    assert kept.pop(b"original.created.by").startswith(b"parquet-cpp")
    assert kept == {b"iceberg.schema": b"{}"}


def test_outputs_are_equal_in_size_and_no_file_is_cut() -> None:
    """Manually: 10 files of 30 make 300; to a target of 100 three outputs, to 90 three, to 130 two.

    An output is at least three quarters of the target: 149 is one file, 150 two.
    """
    ten = [LiveFile(path=f"{n}", size=30, rows=1, sequence_number=1, spec_id=0) for n in range(10)]

    def sizes(target: int) -> list[int]:
        return [sum(file.size for file in bin_) for bin_ in bins(ten, target)]

    assert sizes(100) == [90, 120, 90]
    assert sizes(90) == [90, 120, 90]
    assert sizes(130) == [150, 150]
    assert sizes(1000) == [300]
    assert [file.path for bin_ in bins(ten, 100) for file in bin_] == [str(n) for n in range(10)]
    assert len(bins([replace(ten[0], size=149)], 100)) == 1
    assert [[file.size for file in bin_] for bin_ in bins([replace(ten[0], size=75)] * 2, 100)] == [
        [75],
        [75],
    ]


def test_files_are_split_over_outputs(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """Four files of one size to a target of two of them."""
    files = [written(tmp_path / f"{n}.parquet", plain(n * 10, 10)) for n in range(4)]
    files = [replace(file, size=100) for file in files]
    paths = append_row_groups(spark, table, group(*files), str(tmp_path / "out"), 200)
    found = [[row["id"] for row in pq.read_table(path).to_pylist()] for path in paths]
    assert found == [list(range(20)), list(range(20, 40))]


def test_what_cannot_be_copied_is_refused(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """Deletes, another schema, another number of rows, a missing file, an encrypted one."""
    first = written(tmp_path / "first.parquet", plain(0, 5))
    delete = DeleteFile(path="d", kind=DeleteKind.POSITION, size=1, rows=1, sequence_number=2)
    renamed = arrow_rows(Schema(NestedField(1, "other", LongType())), [{"other": 1}])
    signed = encrypted(tmp_path / "signed.parquet", plain(0, 5), footer=False)
    closed = encrypted(tmp_path / "closed.parquet", plain(0, 5), footer=True)
    for second, message in [
        (replace(first, deletes=(delete,)), "rows were deleted"),
        (written(tmp_path / "renamed.parquet", renamed), "differ in schema"),
        (replace(first, rows=6), "got 5 rows, expected 6"),
        (replace(first, path=str(tmp_path / "none.parquet")), "none.parquet cannot be read"),
        (signed, "signed.parquet is encrypted"),
        (closed, "closed.parquet is encrypted"),
    ]:
        with pytest.raises(LakeError, match=message):
            append_row_groups(spark, table, group(first, second), str(tmp_path / "out"), 128 * MB)
    assert not (tmp_path / "out").exists()


def test_a_failure_half_way_leaves_nothing(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """The second of two files lost its middle; its footer is whole."""
    files = [written(tmp_path / f"{n}.parquet", plain(n * 5000, 5000)) for n in range(2)]
    content = (tmp_path / "1.parquet").read_bytes()
    size = int.from_bytes(content[-8:-4], "little") + 8
    (tmp_path / "1.parquet").write_bytes(content[:100] + content[-size:])
    with pytest.raises(LakeError, match="cannot be written from 2 files"):
        append_row_groups(spark, table, group(*files), str(tmp_path / "out"), 128 * MB)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_failure_after_the_last_row_group_leaves_nothing(
    spark: SparkSession, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing the rewriter would make a whole file of whatever is there."""

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(row_groups, "_keep_common", fail)
    files = [written(tmp_path / f"{n}.parquet", plain(n * 10, 10)) for n in range(2)]
    with pytest.raises(KeyboardInterrupt):
        append_row_groups(spark, table, group(*files), str(tmp_path / "out"), 128 * MB)
    assert list((tmp_path / "out").iterdir()) == []


def test_an_output_that_is_there_already_is_not_written_over(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """The directory is that of one attempt; a second one is a mistake."""
    files = [written(tmp_path / f"{n}.parquet", plain(n * 10, 10)) for n in range(2)]
    (path,) = append_row_groups(spark, table, group(*files), str(tmp_path / "out"), 128 * MB)
    before = Path(path).read_bytes()
    with pytest.raises(LakeError, match="exist"):
        append_row_groups(spark, table, group(*files), str(tmp_path / "out"), 128 * MB)
    assert Path(path).read_bytes() == before


def test_an_output_that_is_not_its_inputs_is_refused(
    spark: SparkSession, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something else is written in its place."""
    files = [written(tmp_path / f"{n}.parquet", plain(n * 10, 10)) for n in range(2)]

    def lose(_spark: object, _inputs: object, _sources: object, output: str, *_: object) -> None:
        written(Path(output), plain(0, 10))

    monkeypatch.setattr(row_groups, "_rewrite", lose)
    with pytest.raises(LakeError, match="not those of its 2 inputs"):
        append_row_groups(spark, table, group(*files), str(tmp_path / "out"), 128 * MB)


def ensure_table_unchecked(catalog: Catalog, name: str, schema: Schema) -> Table:
    """A table with a type that `ensure_table` refuses."""
    catalog.create_namespace_if_not_exists("lake")
    return catalog.create_table(name, schema)


def _at_a_plain_path(path: str, directory: Path) -> str:
    """DuckDB takes some letters of a path for a pattern."""
    plain_path = directory / "plain.parquet"
    plain_path.hardlink_to(path)
    return str(plain_path)
