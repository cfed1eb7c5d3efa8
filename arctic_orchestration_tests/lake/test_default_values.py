"""Columns of format 3 that were added with a default value, which the rows of older files have."""

import json
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StructType
from pyspark.sql import SparkSession

from arctic_orchestration.errors import UnsupportedFile, UnsupportedTable
from arctic_orchestration.lake import append, read
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging.deletes import plain_path
from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration_tests.lake.format_three import new_table
from arctic_orchestration_tests.lake.merged_files import (
    equality_delete,
    fill,
    group_of,
    merged,
    rows_of,
    with_deletes,
)

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StructType(NestedField(3, "x", LongType()))),
)
#: columns by their names: the type and the default as the metadata has them, and the value
COLUMNS = {
    "flag": ("boolean", False, False),
    "small": ("int", 7, 7),
    "large": ("long", 8, 8),
    "single": ("float", 1.5, 1.5),
    "double": ("double", 2.5, 2.5),
    "price": ("decimal(9, 2)", "14.20", Decimal("14.20")),
    "day": ("date", "2017-11-16", date(2017, 11, 16)),
    "wall": ("timestamp", "2017-11-16T22:31:08.123456", datetime(2017, 11, 16, 22, 31, 8, 123456)),
    "at": ("timestamptz", "1969-12-31T23:00:00+00:00", datetime(1969, 12, 31, 23, tzinfo=UTC)),
    "text": ("string", "it's", "it's"),
    "bytes": ("binary", "0002ff", b"\x00\x02\xff"),
}  # fmt: skip


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table with a file of two rows, to whose columns others were added afterwards."""
    table = new_table(catalog, "lake.defaults", schema=SCHEMA)
    fill(table, [{"id": 1}, {"id": 2}])
    added = [
        _field(10 + number, name, kind, default)
        for number, (name, (kind, default, _)) in enumerate(COLUMNS.items())
    ]
    return _changed(catalog, table, lambda fields: fields + added)


def _field(number: int, name: str, kind: str, default: Any) -> dict[str, Any]:
    both = {"initial-default": default, "write-default": default}
    return {"id": number, "name": name, "required": False, "type": kind, **both}


def _changed(catalog: Catalog, table: Table, change: Callable[[list[Any]], list[Any]]) -> Table:
    """The table with other columns, as another writer has changed them."""
    location = Path(table.refresh().metadata_location)
    document = json.loads(location.read_text())
    number = document["current-schema-id"] + 1
    fields = change(deepcopy(document["schemas"][-1]["fields"]))
    document["schemas"].append({"type": "struct", "schema-id": number, "fields": fields})
    document |= {"current-schema-id": number, "last-column-id": 99}
    changed = location.with_name(f"9000{number}-{location.name[6:]}")
    changed.write_text(json.dumps(document))
    catalog.drop_table(table.name())
    return catalog.register_table(table.name(), str(changed))


@pytest.mark.parametrize("engine", [None, Engine.SPARK])
def test_a_merged_file_has_the_default_in_the_rows_of_older_files(
    spark: SparkSession, table: Table, engine: Engine | None
) -> None:
    """Of a newer file, whose column is null, the row stays null."""
    fill(table, [{"id": 3, "small": 30}])
    done = merged(spark, table, group_of(table), engine=engine)
    found = {row["id"]: {name: row[name] for name in COLUMNS} for row in rows_of(done)}
    default = {name: value for name, (_, _, value) in COLUMNS.items()}
    assert found == {1: default, 2: default, 3: dict.fromkeys(COLUMNS) | {"small": 30}}


def test_appended_rows_without_a_column_have_its_default_for_new_rows(
    spark: SparkSession, catalog: Catalog, table: Table
) -> None:
    """It may be another one than that of older files; a null that a row has stays."""

    def change(fields: list[Any]) -> list[Any]:
        small = next(field for field in fields if field["name"] == "small")
        small["write-default"] = 9
        return fields

    table = _changed(catalog, table, change)
    append(spark, spark.sql("select 3L as id, cast(null as bigint) as large"), table)
    (path,) = (file.path for file in live_files(table.refresh()).files)
    (row,) = pq.ParquetFile(plain_path(path)).read().to_pylist()
    default = {name: value for name, (_, _, value) in COLUMNS.items()}
    assert {name: row[name] for name in COLUMNS} == default | {"small": 9, "large": None}


def test_appended_structs_without_a_field_have_its_default(
    spark: SparkSession, catalog: Catalog, table: Table
) -> None:
    """A required one, too; a null that a row has stays, of the field or of the whole struct."""

    def change(fields: list[Any]) -> list[Any]:
        given = [_field(50, "y", "long", 5), _field(51, "z", "date", "2017-11-16")]
        fields[1]["type"]["fields"] += [given[0], given[1] | {"required": True}]
        return fields

    table = _changed(catalog, table, change)
    rows = "select 1L as id, named_struct('x', 2L) as s union all select 3L, null"
    append(spark, spark.sql(rows), table)
    rows = "select 4L as id, named_struct('x', 5L, 'y', cast(null as bigint)) as s"
    append(spark, spark.sql(rows), table)
    found = {}
    for file in live_files(table.refresh()).files:
        for row in pq.ParquetFile(plain_path(file.path)).read(["id", "s"]).to_pylist():
            found[row["id"]] = row["s"]
    day = date(2017, 11, 16)
    assert found == {1: {"x": 2, "y": 5, "z": day}, 3: None, 4: {"x": 5, "y": None, "z": day}}


def test_tables_with_defaults_are_not_read(spark: SparkSession, table: Table) -> None:
    """Spark would find nulls in older files."""
    with pytest.raises(UnsupportedTable, match="column flag: its default value for older files"):
        read(spark, table)


def test_files_without_a_default_inside_of_a_struct_are_refused(
    spark: SparkSession, catalog: Catalog, table: Table
) -> None:
    def change(fields: list[Any]) -> list[Any]:
        fields[1]["type"]["fields"].append(_field(50, "y", "long", 5))
        return fields

    table = _changed(catalog, table, change)
    with pytest.raises(UnsupportedFile, match="lacks field 50, and default values inside of"):
        merged(spark, table, group_of(table))


@pytest.mark.parametrize("engine", [None, Engine.SPARK])
@pytest.mark.parametrize("dropped", [False, True])
def test_deletes_compare_the_default_of_older_files(
    spark: SparkSession, table: Table, tmp_path: Path, engine: Engine | None, dropped: bool
) -> None:
    """Also where the column was dropped since: what was deleted does not come back."""
    fill(table, [{"id": 3, "small": 7}, {"id": 4, "small": 8}, {"id": 5}])
    sevens = equality_delete(tmp_path / "1.parquet", table, ["small", "id"], [(7, 1), (7, 3)])
    days = equality_delete(
        tmp_path / "2.parquet", table, ["id", "day"], [(2, date(2017, 11, 16)), (4, None)]
    )
    if dropped:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("small").delete_column("day")
    group = group_of(table)
    for deletes, left in (([sevens], {2, 4, 5}), ([days], {1, 3, 5}), ([sevens, days], {5})):
        some = with_deletes(group, dict.fromkeys((0, 1), deletes))
        done = merged(spark, table, some, engine=engine)
        assert {row["id"] for row in rows_of(done)} == left
        assert done.rows_deleted == 5 - len(left)
