"""Tables with some small files, and merges of them that are made with pyarrow alone.

Deletes are applied by code of its own, row by row, from the delete files themselves.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from arctic_orchestration.clock import utc_now
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.file_groups import DeleteKind, FileGroup, LiveFile
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.replacing.replace import Replacement
from arctic_orchestration_tests.present import present

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "origin", StringType()),
)
BY_ORIGIN = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "origin"))

Row = tuple[int, str]


def new_table(
    catalog: Catalog,
    name: str = "lake.replaced",
    *,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    properties: Mapping[str, str] | None = None,
) -> Table:
    return ensure_table(catalog, name, SCHEMA, partition_spec=spec, properties=properties)


def add(table: Table, *rows: Row) -> str:
    """Appends a file of one partition; its path."""
    before = set(paths(table))
    table.append(arrow(rows))
    (path,) = set(paths(table)) - before
    return path


def arrow(rows: Iterable[Row]) -> pa.Table:
    listed = list(rows)
    return pa.table(
        {
            "id": pa.array([one[0] for one in listed], pa.int64()),
            "origin": pa.array([one[1] for one in listed], pa.string()),
        }
    )


def rows_of(table: Table, snapshot_id: int | None = None) -> list[Row]:
    """What pyiceberg's scan gives, in order; it refuses equality deletes."""
    found = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return sorted((row["id"], row["origin"]) for row in found)


def rows_in_files(table: Table) -> list[Row]:
    """What DuckDB finds in the live data files, deletes apart."""
    listed = paths(table)
    if not listed:
        return []
    found = duckdb.execute("select id, origin from read_parquet(?) order by all", [listed])
    return [(row[0], row[1]) for row in found.fetchall()]


def rows_by_the_rules(table: Table) -> list[Row]:
    """The rows of the live files without those that the deletes take, equality deletes too."""
    rows = itertools.chain.from_iterable(
        kept_rows(table, file) for file in live_files(table.refresh()).files
    )
    return sorted(rows)


def kept_rows(table: Table, file: LiveFile) -> list[Row]:
    return [row for _, row in kept_places(table, file)]


def kept_places(table: Table, file: LiveFile) -> list[tuple[int, Row]]:
    """The rows of a file that no delete takes, with their positions."""
    found = _parquet(table, file.path)
    gone: set[int] = set()
    for delete in file.deletes:
        wanted = _parquet(table, delete.path)
        if delete.kind is DeleteKind.POSITION:
            gone |= {one["pos"] for one in wanted if one["file_path"] == file.path}
        else:
            names = [
                present(table.schema().find_column_name(number)) for number in delete.equality_ids
            ]
            keys = [{name: one[name] for name in names} for one in wanted]
            gone |= {
                place
                for place, row in enumerate(found)
                if {name: row[name] for name in names} in keys
            }
    return [
        (place, (row["id"], row["origin"])) for place, row in enumerate(found) if place not in gone
    ]


def paths(table: Table) -> list[str]:
    """The live data files, in the order of their paths."""
    return sorted(file.path for file in live_files(table.refresh()).files)


def plan(table: Table, only: Collection[str] | None = None) -> FileGroup:
    """A group of files of one partition as they are now, as a stored task has it."""
    live = live_files(table.refresh())
    files = tuple(file for file in live.files if only is None or file.path in only)
    assert live.snapshot_id is not None
    group = FileGroup(
        snapshot_id=live.snapshot_id,
        sequence_number=live.sequence_number,
        spec_id=files[0].spec_id,
        files=files,
    )
    return FileGroup.from_json(group.to_json())


def merge(
    table: Table,
    group: FileGroup,
    *,
    name: str = "task-1",
    outputs: int = 1,
    changed: Callable[[list[Row]], list[Row]] = list,
) -> Replacement:
    """Writes what is left of the group's rows into new files."""
    rows = [row for file in group.files for row in kept_rows(table, file)]
    size = -(-len(rows) // outputs) if rows else 1
    directory = table.location_provider().new_data_location(f"merged-{new_id(utc_now())}")
    written = []
    for number, part in enumerate(_batched(changed(rows), size)):
        path = f"{directory}/{number:05}.parquet"
        with table.io.new_output(path).create() as stream:
            pq.write_table(arrow(part).cast(schema_to_pyarrow(SCHEMA)), stream)
        written.append(path)
    return Replacement(
        id=name,
        group=group,
        outputs=tuple(written),
        rows_deleted=group.rows - len(rows),
    )


def renamed(replacement: Replacement, name: str) -> Replacement:
    return replace(replacement, id=name)


def sequence_numbers(table: Table) -> dict[str, int]:
    return {file.path: file.sequence_number for file in live_files(table.refresh()).files}


def delete_paths(table: Table) -> list[str]:
    """The live delete files, whether or not a data file needs them."""
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return sorted(
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        if manifest.content.value == 1
        for entry in manifest.fetch_manifest_entry(table.io)
    )


def _parquet(table: Table, path: str) -> Sequence[dict[str, Any]]:
    with table.io.new_input(path).open() as stream:
        rows: list[dict[str, Any]] = pq.ParquetFile(stream).read().to_pylist()
    return rows


def _batched(rows: list[Row], size: int) -> Iterable[list[Row]]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]
