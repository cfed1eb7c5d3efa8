"""What cannot be merged safely is refused with the reason, and nothing is left of the attempt."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType, UUIDType
from pyspark.sql import SparkSession

from arctic_orchestration.errors import InvalidInput, LakeError, UnsupportedTable
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.file_groups import FileGroup, LiveFile
from arctic_orchestration.lake.merging.input_files import Readable
from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration.lake.spark_versions import READS_OLDER_SCHEMAS
from arctic_orchestration_tests.lake.merged_files import (
    equality_delete,
    fill,
    group_of,
    merged,
    position_delete,
    with_deletes,
)

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StructType(NestedField(3, "text", StringType()))),
)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Two files of two rows."""
    made = ensure_table(catalog, "lake.refused", SCHEMA)
    for rows in ([1, 2], [3, 4]):
        fill(made, [{"id": one, "s": {"text": "x"}} for one in rows])
    return made


def changed(group: FileGroup, place: int, **values: Any) -> FileGroup:
    files: list[LiveFile] = list(group.files)
    files[place] = replace(files[place], **values)
    return replace(group, files=tuple(files))


def left_below(table: Table) -> list[Path]:
    attempt = Path(table.location_provider().new_data_location("compaction-attempt-1"))
    return [path for path in attempt.rglob("*") if path.is_file()]


def refused(
    spark: SparkSession,
    table: Table,
    group: FileGroup,
    error: type[Exception],
    message: str,
    engine: Engine | None = None,
) -> None:
    with pytest.raises(error, match=message):
        merged(spark, table, group, engine=engine)
    assert left_below(table) == []


def test_a_file_that_is_gone(spark: SparkSession, table: Table) -> None:
    """Named by its path; the other file alone is not the answer."""
    group = group_of(table)
    Path(group.files[1].path).unlink()
    refused(spark, table, group, LakeError, f"{group.files[1].path} cannot be read")


def test_a_file_that_goes_while_it_is_read(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its footer was looked at, before Spark comes."""
    from arctic_orchestration.lake.merging import live_rows

    group = group_of(table)

    def remove(*_: object) -> Readable:
        Path(group.files[1].path).unlink()
        return Readable(schema=table.schema(), lacking={}, values={})

    monkeypatch.setattr(live_rows, "require_readable", remove)
    expected = "lake.refused: merging 2 files failed: .*does not exist"
    if not READS_OLDER_SCHEMAS:
        # Whether the schema is an earlier one is looked up in each file.
        expected = "written-0001.parquet cannot be read: .*No such file"
    refused(spark, table, group, LakeError, expected, Engine.SPARK)


@pytest.mark.parametrize("name", ["_hidden.parquet", ".hidden.parquet"])
def test_a_file_that_spark_leaves_out(spark: SparkSession, table: Table, name: str) -> None:
    """Spark takes such names for temporary files, and says nothing."""
    group = group_of(table)
    hidden = Path(group.files[1].path).with_name(name)
    Path(group.files[1].path).rename(hidden)
    refused(
        spark,
        table,
        changed(group, 1, path=str(hidden)),
        LakeError,
        rf"Spark does not read \['.*{name}'\]|merging 2 files failed",
        Engine.SPARK,
    )


def test_a_file_of_another_format(spark: SparkSession, table: Table) -> None:
    """As the manifest says it, and as the file itself does."""
    group = group_of(table)
    path = group.files[0].path
    orc = changed(group, 0, file_format="orc")
    refused(spark, table, orc, UnsupportedTable, f"{path} is orc, expected Parquet")
    Path(path).write_bytes(b"Obj\x01 and so on, an Avro file")
    refused(spark, table, group, UnsupportedTable, f"{path} is not a Parquet file")


@pytest.mark.parametrize(
    ("ids", "lacking"),
    [
        ((None, None, None), r"\['id', 's', 's.text'\]"),
        ((1, None, 3), r"\['s'\]"),
        ((1, 2, None), r"\['s.text'\]"),
    ],
)
def test_a_file_without_field_ids(
    spark: SparkSession, table: Table, ids: tuple[int | None, ...], lacking: str
) -> None:
    """None of them, or one only: its column would be nulls."""
    group = group_of(table)
    marked = [None if one is None else {"PARQUET:field_id": str(one)} for one in ids]
    inner = pa.struct([pa.field("text", pa.string(), True, marked[2])])
    columns = pa.schema(
        [pa.field("id", pa.int64(), True, marked[0]), pa.field("s", inner, True, marked[1])]
    )
    rows = pa.table({"id": [1, 2], "s": [{"text": "a"}, None]}, columns)
    pq.write_table(rows, group.files[0].path)
    path = group.files[0].path
    refused(spark, table, group, UnsupportedTable, f"{path} has no field ids for {lacking}")


def test_a_file_of_other_rows_than_the_table_says(spark: SparkSession, table: Table) -> None:
    """Rows out could not be compared with rows in."""
    group = changed(group_of(table), 0, rows=3)
    refused(spark, table, group, LakeError, "has 2 rows, the table knows of 3")


def test_a_file_named_twice(spark: SparkSession, table: Table) -> None:
    """Its rows would be there twice, also if it is named in two ways."""
    group = group_of(table)
    twice = changed(group, 1, path=f"file://{group.files[0].path}")
    refused(spark, table, twice, LakeError, "with one of them twice")
    refused(spark, table, replace(group, files=()), LakeError, "a group of no files")


def test_a_column_that_is_only_in_the_partition(spark: SparkSession, catalog: Catalog) -> None:
    """Files of a Hive table leave it out; readers take the partition's value, Spark a null."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = ensure_table(catalog, "lake.hive", SCHEMA, partition_spec=spec)
    fill(table, [{"id": 1}])
    group = group_of(table)
    columns = pa.schema([field for field in SCHEMA.as_arrow() if field.name == "s"])
    pq.write_table(pa.Table.from_pylist([{"s": None}], columns), group.files[0].path)
    refused(spark, table, group, UnsupportedTable, "leaves out field 1, whose value is the partit")


def test_a_type_or_a_format_that_does_not_survive(spark: SparkSession, catalog: Catalog) -> None:
    """A uuid would come back from Spark as something else; a format of tomorrow is not written."""
    schema = Schema(NestedField(1, "key", UUIDType()))
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.uuids", schema)
    fill(table, [{"key": b"0" * 16}])
    refused(
        spark, table, group_of(table), UnsupportedTable, "key: type uuid does not", Engine.SPARK
    )
    table.metadata.__dict__["format_version"] = 4
    with pytest.raises(UnsupportedTable, match="got format version 4"):
        merged(spark, table, FileGroup(snapshot_id=1, sequence_number=1, spec_id=0, files=()))


def test_deletes_that_cannot_be_read(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """Missing, not Parquet, of other columns, with fewer rows: deleted rows would come back."""
    group = group_of(table)
    path = group.files[0].path
    good = position_delete(tmp_path / "good.parquet", [(path, 0)])

    def check(delete: Any, error: type[Exception], message: str) -> None:
        refused(spark, table, with_deletes(group, {0: [delete]}), error, message)

    check(replace(good, path=str(tmp_path / "none")), LakeError, "none cannot be read")
    check(replace(good, rows=2), LakeError, "good.parquet has 1 deletes, the table knows of 2")
    avro = tmp_path / "delete.avro"
    avro.write_bytes(b"Obj\x01 and so on, an Avro file")
    check(replace(good, path=str(avro)), UnsupportedTable, "delete.avro.*not Parquet")
    check(replace(good, path=path), LakeError, r"has the columns \['id', 's'\], expected position")
    value = equality_delete(tmp_path / "value.parquet", table, ["id"], [(1,)])
    check(replace(value, path=str(tmp_path / "none")), LakeError, "none cannot be read")
    check(replace(value, path=str(avro)), UnsupportedTable, "delete.avro is not a Parquet file")
    check(replace(value, rows=2), LakeError, "value.parquet has 1 rows, the table knows of 2")
    check(replace(value, equality_ids=(3,)), LakeError, "value.parquet lacks field 3")
    check(replace(value, equality_ids=()), LakeError, "equality deletes over no columns")
    check(replace(value, equality_ids=(99,)), LakeError, "compare field 99, which no schema has")
    check(replace(value, equality_ids=(2,)), UnsupportedTable, "compare field 2, a struct")


def test_an_output_that_lacks_rows(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever the reason may be; here one is left out on the way, and there one comes back."""
    from arctic_orchestration.lake.merging import merge as merging

    written = merging._written
    monkeypatch.setattr(
        merging,
        "_written",
        lambda spark, rows, *rest: written(spark, rows.where("id != 2"), *rest),
    )
    refused(
        spark,
        table,
        group_of(table),
        LakeError,
        "3 rows were written, expected 4: 4 of 2 files without 0 deleted ones",
        Engine.SPARK,
    )


def test_a_target_below_one(spark: SparkSession, table: Table) -> None:
    """Zero bytes cannot be aimed at."""
    with pytest.raises(InvalidInput, match="target_bytes: got 0"):
        merged(spark, table, group_of(table), target_bytes=0)
