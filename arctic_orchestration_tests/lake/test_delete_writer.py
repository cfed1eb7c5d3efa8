"""The deletes that tests write are such as others write, and read."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType
from pyiceberg_core.manifest import read_manifest_entries

from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.manifests import (
    live_files,
)
from arctic_orchestration_tests.lake.delete_writer import (
    Scope,
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.imagined_files import commit_files, imagined
from arctic_orchestration_tests.present import present

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "origin", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "delay", DoubleType()),
)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table without partitions."""
    return ensure_table(catalog, "lake.flights", SCHEMA)


def test_written_deletes_are_what_other_readers_want(table: Table) -> None:
    """Iceberg's Rust reads them; the ids are ints in the Avro schema, as Java has them."""
    commit_files(table, [imagined("/a")])
    [position] = add_position_deletes(table, {"/a": [5, 2]})
    [equality] = add_equality_deletes(table, pa.table({"id": [1], "day": [None]}), ["id", "day"])
    found = {}
    for manifest in present(table.current_snapshot()).manifests(table.io):
        if manifest.content == ManifestContent.DELETES:
            raw = Path(manifest.manifest_path).read_bytes()
            reader: AvroFile[Record]
            with AvroFile(table.io.new_input(manifest.manifest_path)) as reader:
                schema = json.loads(reader.header.meta["avro.schema"])
                assert reader.header.meta["content"] == "deletes"
            [data_file] = [one for one in schema["fields"] if one["name"] == "data_file"]
            [ids] = [one for one in data_file["type"]["fields"] if one["name"] == "equality_ids"]
            assert ids["type"][1]["items"] == "int"
            for entry in read_manifest_entries(raw).entries():
                found[entry.data_file.file_path] = entry.data_file
    assert found[equality.path].equality_ids == [1, 3]
    assert found[position.path].lower_bounds == {2147483546: b"/a"}
    written = pa.parquet.read_table(position.path)
    assert written.to_pydict() == {"file_path": ["/a", "/a"], "pos": [2, 5]}
    ids = [field.metadata[b"PARQUET:field_id"] for field in written.schema]
    assert ids == [b"2147483546", b"2147483545"]
    [_, day] = pa.parquet.read_schema(equality.path)
    assert day.metadata[b"PARQUET:field_id"] == b"3"


def test_written_position_deletes_are_applied_by_pyiceberg(table: Table) -> None:
    """Rows 1 and 3 of four are gone, whatever the scope of the delete file."""
    schema = table.schema().as_arrow()
    rows = pa.table(
        {"id": [1, 2, 3, 4], "origin": ["x"] * 4, "day": [0] * 4, "delay": [0.0] * 4}, schema=schema
    )
    for scope in Scope:
        table.append(rows)
        path = live_files(table).files[0].path
        add_position_deletes(table, {path: [0, 2]}, scope=scope)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [2] * 4 + [4] * 4
