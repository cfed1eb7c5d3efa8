"""Columns of types that Spark has not: merges carry them from file to file."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import (
    FixedType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyspark.sql import SparkSession

from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import UnsupportedFile, UnsupportedTable
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.file_metrics import describe
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging import plain_files
from arctic_orchestration.lake.merging.deletes import plain_path
from arctic_orchestration.lake.merging.merge import Engine, Merged, merge
from arctic_orchestration.lake.merging.strategy import Way, why_not_appended
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration.lake.row_lineage import LINEAGE
from arctic_orchestration.lake.schema import require_supported_table
from arctic_orchestration.lake.shapes import shape_type
from arctic_orchestration_tests.lake.format_three import commit, plan
from arctic_orchestration_tests.lake.merged_files import equality_delete, rows_of, with_deletes
from arctic_orchestration_tests.present import present


@dataclass(frozen=True)
class Type:
    kind: IcebergType
    #: of four rows, as Arrow takes them
    values: tuple[Any, ...]
    #: the type in Parquet, as the specification of Iceberg has it
    stored: str
    #: the smallest and greatest value as the specification writes them
    bounds: tuple[bytes, bytes] | None = None
    version: int = 2


KEYS = [UUID(int=number) for number in (3, 1 << 127, 1, 2)]
NANOS = (1_500_000_000_123_456_789, -1, None, 0)
TYPES = {
    "uuid": Type(UUIDType(), tuple(one.bytes for one in KEYS), "UUID",
                 (KEYS[2].bytes, KEYS[1].bytes)),
    "fixed": Type(FixedType(2), (b"b\x00", b"\xff\x00", None, b"a\xff"), "None",
                  (b"a\xff", b"\xff\x00")),
    "time": Type(TimeType(), (dt.time(0, 0, 1), dt.time(23), None, dt.time(0, 0, 0, 1)),
                 "Time(isAdjustedToUTC=false, timeUnit=microseconds)",
                 ((1).to_bytes(8, "little"), (23 * 3_600_000_000).to_bytes(8, "little"))),
    "timestamp_ns": Type(TimestampNanoType(), NANOS,
                         "Timestamp(isAdjustedToUTC=false, timeUnit=nanoseconds", version=3),
    "timestamptz_ns": Type(TimestamptzNanoType(), NANOS,
                           "Timestamp(isAdjustedToUTC=true, timeUnit=nanoseconds", version=3),
}  # fmt: skip


@pytest.fixture
def spark(classic_spark: SparkSession) -> SparkSession:
    """One session: the types pass it by."""
    return classic_spark


def new_table(catalog: Catalog, kind: Type) -> Table:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "x", kind.kind),
        NestedField(3, "s", StructType(NestedField(4, "y", kind.kind))),
        NestedField(5, "l", ListType(6, kind.kind, element_required=False)),
    )
    catalog.create_namespace_if_not_exists("lake")
    return catalog.create_table(
        "lake.others",
        schema,
        properties={"format-version": str(kind.version)},
    )


def rows(table: Table, kind: Type, places: range, *, lineage: bool = False) -> pa.Table:
    """Some of the four rows; with their ids in format 3, as merged files have them."""
    schema = schema_to_pyarrow(table.schema())
    of_x = schema.field("x").type
    values = [kind.values[place] for place in places]
    held = (
        pa.array(values, pa.int64()).cast(of_x) if kind.values == NANOS else pa.array(values, of_x)
    )
    within = pa.StructArray.from_arrays([held], fields=list(schema.field("s").type))
    of_lists = schema.field("l").type
    kept = pa.LargeListArray if pa.types.is_large_list(of_lists) else pa.ListArray
    listed = kept.from_arrays(range(len(places) + 1), held, of_lists)
    columns = [pa.array(places, pa.int64()), held, within, listed]
    columns += [pa.nulls(len(places)) for _ in schema.names[4:]]
    if lineage:
        schema = schema_to_pyarrow(Schema(*table.schema().fields, *LINEAGE))
        columns += [pa.array(places, pa.int64()), pa.array([1] * len(places), pa.int64())]
    return pa.Table.from_arrays(columns, schema=schema)


def add(table: Table, found: pa.Table) -> None:
    """Commits a file with the rows, as another writer does."""
    if table.format_version < 3:
        table.refresh().append(found)
        return
    path = table.location_provider().new_data_location(f"{new_id(utc_now())}.parquet")
    with table.io.new_output(path).create() as stream:
        pq.write_table(found, stream, compression="zstd", store_schema=False)
    commit(table, [describe(table, path, spec_id=0, partition=[])])


def merged(
    spark: SparkSession,
    table: Table,
    group: FileGroup,
    *,
    way: Way | None = None,
    engine: Engine | None = None,
) -> tuple[Merged, pq.ParquetFile, DataFile]:
    """Merges a group into one file and commits it; the file, as it is and as the table has it."""
    directory = table.location_provider().new_data_location("compaction-attempt-1")
    done = merge(spark, table, group, directory, target_bytes=1 << 30, way=way, engine=engine)
    (output,) = done.outputs
    replacement = Replacement(
        id="task", group=group, outputs=(output.path,), rows_deleted=done.rows_deleted
    )
    assert replace_files(table, [replacement]).committed == ("task",)
    (live,) = live_files(table.refresh()).files
    assert live.path == output.path
    described = describe(table, live.path, spec_id=0, partition=[])
    return done, pq.ParquetFile(plain_path(live.path)), described


def column(file: pq.ParquetFile, number: int) -> str:
    return str(file.schema.column(number).logical_type)


@pytest.mark.parametrize("way", [Way.DECODE, Way.APPEND])
@pytest.mark.parametrize("name", TYPES)
def test_values_stay_as_they_are(
    spark: SparkSession, catalog: Catalog, name: str, way: Way
) -> None:
    """Of columns, in structs and in lists, in the type that the specification has for Parquet."""
    kind = TYPES[name]
    table = new_table(catalog, kind)
    require_supported_table(table)
    first, second = (
        rows(table, kind, places, lineage=kind.version == 3) for places in (range(2), range(2, 4))
    )
    add(table, first)
    add(table, second)

    done, file, described = merged(spark, table, plan(table), way=way)

    assert done.way == way
    assert way == Way.APPEND or "decoded by Arrow" in done.because
    found = file.read().sort_by("id")
    expected = pa.concat_tables([first, second])
    for column_name in expected.column_names:
        assert found.column(column_name).to_pylist() == expected.column(column_name).to_pylist()
    assert all(column(file, number).startswith(kind.stored) for number in (1, 2, 3))
    # Of nanoseconds, readers get none: pyiceberg would round the greatest one down.
    lower, upper = described.lower_bounds or {}, described.upper_bounds or {}
    assert (lower.get(2), upper.get(2)) == (kind.bounds or (None, None))
    assert present(described.null_value_counts)[2] == kind.values.count(None)
    if kind.version == 2:
        scanned = table.scan().to_arrow().sort_by("id")
        assert scanned.column("x").to_pylist() == expected.column("x").to_pylist()


def test_rows_are_sorted_and_deleted_by_uuids(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    kind = TYPES["uuid"]
    table = new_table(catalog, kind)
    with table.update_sort_order() as order:
        order.desc("x", IdentityTransform())
    for places in (range(2), range(2, 4)):
        add(table, rows(table, kind, places))
    gone = equality_delete(tmp_path / "gone.parquet", table, ["x"], [(KEYS[3].bytes,)])
    group = with_deletes(plan(table), {0: [gone], 1: [gone]})
    directory = table.location_provider().new_data_location("compaction-attempt-1")
    done = merge(spark, table, group, directory, target_bytes=1 << 30)
    assert [row["id"] for row in rows_of(done)] == [1, 0, 2]
    assert done.rows_deleted == 1


@pytest.mark.parametrize("name", ["timestamp_ns", "timestamptz_ns"])
@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform(), HourTransform()])
def test_rows_are_sorted_by_parts_of_nanoseconds(
    spark: SparkSession, catalog: Catalog, name: str, transform: Transform[Any, Any]
) -> None:
    """A nanosecond before 1970 is in the hour before."""
    table = new_table(catalog, TYPES[name])
    with table.update_sort_order() as order:
        order.asc("x", transform)
    for places in (range(2), range(2, 4)):
        add(table, rows(table, TYPES[name], places))
    directory = table.location_provider().new_data_location("compaction-attempt-1")
    done = merge(spark, table, plan(table), directory, target_bytes=1 << 30)
    assert [row["id"] for row in rows_of(done)] == [1, 3, 0, 2]


@pytest.mark.parametrize(
    ("way", "written"), [(Way.DECODE, False), (Way.DECODE, True), (Way.APPEND, False)]
)
def test_files_have_no_columns_of_type_unknown(
    spark: SparkSession, catalog: Catalog, way: Way, written: bool
) -> None:
    """As the specification has it, also if other writers give them one of nulls."""
    table = new_table(catalog, Type(LongType(), (1, 2, 3, 4), "", version=3))
    with table.update_schema() as update:
        update.add_column("nothing", UnknownType())
    number = table.schema().find_field("nothing").field_id
    for places in (range(2), range(2, 4)):
        found = rows(table, Type(LongType(), (1, 2, 3, 4), ""), places, lineage=True)
        found = found.drop_columns(["nothing"]) if not written else found
        add(table, found)
    done, file, described = merged(spark, table, plan(table), way=way)
    assert done.way == way
    assert file.schema_arrow.names == ["id", "x", "s", "l", *(field.name for field in LINEAGE)]
    assert sorted(file.read().column("x").to_pylist()) == [1, 2, 3, 4]
    assert number not in present(described.column_sizes)


@pytest.mark.parametrize("annotated", [False, True])
def test_shapes_are_bytes_with_an_annotation(
    spark: SparkSession, catalog: Catalog, annotated: bool
) -> None:
    """It has the reference system. They are always decoded: PySpark 3.5 cannot copy them."""
    plane, globe = GeometryType("EPSG:3857"), GeographyType("OGC:CRS84", "spherical")
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "g", plane), NestedField(3, "h", globe)
    )
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.shapes", schema, properties={"format-version": "3"})
    require_supported_table(table)
    ids = schema_to_pyarrow(Schema(*table.schema().fields, *LINEAGE))
    shapes = [shape_type(plane), shape_type(globe)] if annotated else [pa.binary()] * 2
    for place, shape in enumerate(shapes, 1):
        ids = ids.set(place, ids[place].with_type(shape))
    for number in range(2):
        numbers, points = pa.array([number, number + 2]), pa.array([bytes([number]), None])
        columns = [numbers, *(points.cast(shape) for shape in shapes), numbers, pa.array([1, 1])]
        add(table, pa.Table.from_arrays(columns, schema=ids))

    assert "column g is BYTE_ARRAY" in str(why_not_appended(spark, table, plan(table)))
    _, file, described = merged(spark, table, plan(table))

    assert column(file, 1) == "Geometry(crs=EPSG:3857)"
    assert column(file, 2) == "Geography(crs=, algorithm=spherical)"
    found = file.read().sort_by("id")
    assert found.column("g").to_pylist() == [b"\x00", b"\x01", None, None]
    assert found.column("h").to_pylist() == found.column("g").to_pylist()
    assert present(described.lower_bounds).keys() == {1}


def test_an_arrow_without_the_annotation_decodes_no_uuids(
    spark: SparkSession, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers would take them for bytes: Arrow before 21."""
    table = new_table(catalog, TYPES["uuid"])
    add(table, rows(table, TYPES["uuid"], range(4)))
    monkeypatch.setattr(plain_files, "is_annotated", lambda kind: kind != pa.uuid())
    problem = "type uuid does not survive Spark; .*column x is read as extension<arrow.uuid>"
    with pytest.raises(UnsupportedFile, match=problem):
        merged(spark, table, plan(table), way=Way.DECODE)


def test_what_only_spark_could_decode_is_refused_by_name(
    spark: SparkSession, catalog: Catalog
) -> None:
    """And types that can only be columns, inside of one: ``unknown``, which files leave out."""
    table = new_table(catalog, TYPES["time"])
    add(table, rows(table, TYPES["time"], range(4)))
    problem = "column x: type time does not survive Spark; .*Arrow cannot decode the files: it was"
    with pytest.raises(UnsupportedFile, match=problem):
        merged(spark, table, plan(table), way=Way.DECODE, engine=Engine.SPARK)
    catalog.drop_table(table.name())
    for kind in (UnknownType(), GeometryType()):
        table = new_table(catalog, Type(kind, (), "", version=3))
        with pytest.raises(UnsupportedTable, match=rf"others: column s\.y: type {kind} does not"):
            require_supported_table(table)
        catalog.drop_table(table.name())
