"""Files without field ids are merged by the table's name mapping; partition values fill columns.

Iceberg's own Spark migrates such tables in
:mod:`arctic_orchestration_tests.lake.test_iceberg_spark`.
"""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    FloatType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from arctic_orchestration.errors import InvalidInput, LakeError, UnsupportedFile
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.arrow_rows import arrow_rows
from arctic_orchestration.lake.file_groups import FileGroup, LiveFile
from arctic_orchestration.lake.merging.merge import Engine, Merged
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration_tests.lake.merged_files import (
    equality_delete,
    merged,
    position_delete,
    rows_of,
    with_deletes,
)
from arctic_orchestration_tests.lake.worker_files import BrokenFileIO

PARTS = StructType(NestedField(7, "text", StringType()))
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "parts", ListType(6, PARTS)),
    NestedField(3, "day", DateType()),
    NestedField(4, "price", DecimalType(9, 2)),
    NestedField(5, "at", TimestamptzType()),
)
SPEC = PartitionSpec(
    *(
        PartitionField(source, 1000 + source, IdentityTransform(), f"by_{source}")
        for source in (3, 4, 5)
    )
)
#: 2013-01-02, and an hour after the epoch
PARTITION = (15707, Decimal("1.20"), 3_600_000_000)
IMPLIED = {"day": date(2013, 1, 2), "price": Decimal("1.20"), "at": datetime(1970, 1, 1, 1)}
MAPPING = [
    {"field-id": 1, "names": ["id", "number"]},
    {
        "field-id": 2,
        "names": ["parts"],
        "fields": [
            {"field-id": 6, "names": ["element"], "fields": [{"field-id": 7, "names": ["text"]}]}
        ],
    },
]


@pytest.fixture(scope="module")
def spark(classic_spark: SparkSession) -> SparkSession:
    """Over Connect, Arrow gets the rows in the same way."""
    return classic_spark


@pytest.fixture
def table(catalog: Catalog) -> Table:
    made = ensure_table(catalog, "lake.nameless", SCHEMA, partition_spec=SPEC)
    return mapped(made, json.dumps(MAPPING))


def mapped(table: Table, mapping: str) -> Table:
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": mapping})
    return table


def group_of(table: Table, *files: dict[str, list[Any]]) -> FileGroup:
    """Files of these columns, as Hive leaves them."""
    directory = Path(table.location()) / "data"
    directory.mkdir(parents=True, exist_ok=True)
    found = []
    for number, columns in enumerate(files, 1):
        path = directory / f"{number}.parquet"
        pq.write_table(pa.table(columns), path)
        found.append(
            LiveFile(
                path=str(path),
                size=path.stat().st_size,
                rows=len(next(iter(columns.values()))),
                sequence_number=number,
                spec_id=table.spec().spec_id,
                partition=PARTITION,
            )
        )
    group = FileGroup(
        snapshot_id=1, sequence_number=9, spec_id=table.spec().spec_id, files=tuple(found)
    )
    assert FileGroup.from_json(group.to_json()) == group
    return group


def two_files(table: Table) -> FileGroup:
    return group_of(
        table,
        {"id": [1, 2], "parts": [[{"text": "a"}], None]},
        {"id": [3], "parts": [[{"text": "b"}, None]]},
    )


def seen(done: Merged) -> list[dict[str, Any]]:
    """The rows, as long as the partition's columns are right; and all have field ids."""
    found = rows_of(done)
    for row in found:
        row["at"] = row["at"].astimezone(UTC).replace(tzinfo=None)
        assert {name: row.pop(name) for name in IMPLIED} == IMPLIED
    for output in done.outputs:
        ids = [field.metadata[b"PARQUET:field_id"] for field in pq.read_schema(output.path)]
        assert ids == [b"1", b"2", b"3", b"4", b"5"]
    return found


ROWS = [
    {"id": 1, "parts": [{"text": "a"}]},
    {"id": 2, "parts": None},
    {"id": 3, "parts": [{"text": "b"}, None]},
]


@pytest.mark.parametrize("engine", [None, Engine.SPARK])
def test_by_each_engine(spark: SparkSession, table: Table, engine: Engine | None) -> None:
    """Row groups are not copied, as the ids must get in."""
    done = merged(spark, table, two_files(table), way=None, engine=engine)
    assert seen(done) == ROWS
    assert done.way == Way.DECODE
    how = "by Arrow in a worker" if engine is None else "2 of 2 files have no field ids"
    assert how in done.because


@pytest.mark.parametrize("engine", [None, Engine.SPARK])
@pytest.mark.parametrize("day", [2932897, -719163], ids=["10000-01-01", "before year 1"])
def test_moments_that_python_has_not(
    spark: SparkSession, catalog: Catalog, engine: Engine | None, day: int
) -> None:
    """The columns are filled with the integers of the partition."""
    kinds = (DateType(), TimestampType(), TimestamptzType())
    schema = Schema(
        NestedField(1, "id", LongType()),
        *(NestedField(number, f"c{number}", kind) for number, kind in enumerate(kinds, 2)),
    )
    spec = PartitionSpec(
        *(PartitionField(one, 1000 + one, IdentityTransform(), f"by_{one}") for one in (2, 3, 4))
    )
    table = ensure_table(catalog, "lake.far", schema, partition_spec=spec)
    mapped(table, json.dumps(MAPPING[:1]))
    group = group_of(table, {"id": [1]}, {"id": [2]})
    micros = day * 86_400_000_000 + 1
    partition = (day, micros, micros + 1)
    group = replace(group, files=tuple(replace(one, partition=partition) for one in group.files))
    (output,) = merged(spark, table, group, way=None, engine=engine).outputs
    rows = pq.ParquetFile(output.path).read()
    assert rows["id"].to_pylist() == [1, 2]
    assert rows["c2"].cast(pa.int32()).to_pylist() == [day, day]
    assert rows["c3"].type == pa.timestamp("us")
    assert rows["c3"].cast(pa.int64()).to_pylist() == [micros, micros]
    assert rows["c4"].type.tz is not None
    assert rows["c4"].cast(pa.int64()).to_pylist() == [micros + 1, micros + 1]


@pytest.mark.parametrize("engine", [None, Engine.SPARK])
def test_lists_of_fixed_size(spark: SparkSession, catalog: Catalog, engine: Engine | None) -> None:
    """As pyarrow writes embeddings: with a hint in the file that makes pyarrow read them so."""
    v = ListType(4, FloatType(), element_required=False)
    w = ListType(5, ListType(6, FloatType(), element_required=False), element_required=False)
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "v", v), NestedField(3, "w", w)
    )
    table = ensure_table(catalog, "lake.embeddings", schema)
    mapping = [{"field-id": n, "names": [name]} for n, name in enumerate(("id", "v", "w"), 1)]
    mapped(table, json.dumps(mapping))
    fixed = pa.list_(pa.float32(), 2)
    some = [[1.0, 2.0], None, [3.0, None], [4.0, 5.0]]
    more = [[[1.0, 2.0], None], [], None, [[6.0, 7.0]]]
    files = [
        {"id": ids, "v": pa.array([some[n] for n in ids], fixed),
         "w": pa.array([more[n] for n in ids], pa.list_(fixed))}
        for ids in ([0, 1, 2], [3])
    ]  # fmt: skip
    group = group_of(table, *files)
    group = replace(group, files=tuple(replace(one, partition=()) for one in group.files))
    done = merged(spark, table, group, way=None, engine=engine)
    assert rows_of(done) == [{"id": n, "v": some[n], "w": more[n]} for n in range(4)]
    assert ("by Arrow" in done.because) == (engine is None)


def test_any_error_of_a_worker_names_the_file(spark: SparkSession) -> None:
    """Also one that no reader of files should raise."""
    rows = arrow_rows(spark, BrokenFileIO(), SCHEMA, ["a/1.parquet"], tasks=1)
    with pytest.raises(PySparkException, match="a/1.parquet cannot be read: AttributeError: none"):
        rows.collect()


def test_appending_is_refused(spark: SparkSession, table: Table) -> None:
    """The copies would have no ids, and a table without the mapping would read nulls."""
    with pytest.raises(LakeError, match="row groups cannot be copied"):
        merged(spark, table, two_files(table), way=Way.APPEND)


def test_with_deletes_and_names_of_former_times(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """A column that is not mapped is left out; an equality delete compares a partition's value."""
    group = group_of(
        table,
        {"number": [1, 2], "parts": [[{"text": "a"}], None], "other": ["x", "y"]},
        {"id": [3, 4], "parts": [[{"text": "b"}, None], []]},
    )
    values = [(4, IMPLIED["day"]), (3, date(2013, 1, 3))]
    deletes = {
        0: [position_delete(tmp_path / "position.parquet", [(group.files[0].path, 1)])],
        1: [equality_delete(tmp_path / "equality.parquet", table, ["id", "day"], values)],
    }
    done = merged(spark, table, with_deletes(group, deletes))
    assert seen(done) == [ROWS[0], ROWS[2]]
    assert done.rows_deleted == 2


def test_what_is_refused(spark: SparkSession, table: Table) -> None:
    """Without a mapping, columns by their places would be a guess."""
    group = two_files(table)

    def check(error: type[Exception], message: str, group: FileGroup = group) -> None:
        with pytest.raises(error, match=message):
            merged(spark, table, group)

    unknown = replace(group, files=tuple(replace(one, partition=()) for one in group.files))
    check(UnsupportedFile, "leaves out field 3, whose value is the partition's", unknown)
    both = group_of(table, {"id": [1], "number": [1]})
    check(UnsupportedFile, "has id and number, expected one of them: both are field 1", both)
    check(UnsupportedFile, "has no column that schema.name-map", group_of(table, {"x": [1]}))
    mapped(table, '[{"names": "id"}]')
    check(InvalidInput, r"schema.name-mapping.default of lake.nameless: got .*, expected a name")
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    check(UnsupportedFile, "no field ids for .*, and the table no property schema.name-mapping")


def test_partitions_in_the_text_of_a_group() -> None:
    """Each value comes back as it was; JSON knows few types."""
    values = (None, True, 5, 1.5, float("-inf"), "é", b"\x00\xff", Decimal("1.20"), UUID(int=7))
    file = LiveFile(path="a", size=1, rows=1, sequence_number=1, spec_id=0, partition=values)
    group = FileGroup(snapshot_id=1, sequence_number=1, spec_id=0, files=(file,))
    text = group.to_json()
    assert "Infinity" not in text
    assert FileGroup.from_json(text) == group
