"""A writer of tables of format 3, without Iceberg's own Spark.

It commits data files, deletion vectors and equality deletes, as the specification says.
"""

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap

from arctic_orchestration.clock import utc_now
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.lake import ensure_table
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.file_metrics import describe
from arctic_orchestration.lake.manifest_fields import complete
from arctic_orchestration.lake.manifests import live_files, snapshot_manifests
from arctic_orchestration.lake.replacing.manifest_writing import manifest_writer
from arctic_orchestration.lake.replacing.replace import Replacement
from arctic_orchestration.lake.row_lineage import LINEAGE
from arctic_orchestration.lake.snapshot_writing import WithRowIds
from arctic_orchestration_tests.lake.format_three_reader import (
    entries_of,
    is_data,
    lineage,
    live_entries,
    vector,
)
from arctic_orchestration_tests.present import present

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "part", StringType()),
    NestedField(3, "value", LongType()),
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))

_LAST_UPDATED = "_last_updated_sequence_number"
_NAMES = [field.name for field in DATA_FILE_TYPE[3].fields]
_FIRST_ROW_ID = _NAMES.index("first_row_id")
_REFERENCED = _NAMES.index("referenced_data_file")
_OFFSET = _NAMES.index("content_offset")
_SIZE = _NAMES.index("content_size_in_bytes")

Row = tuple[int, str, int]


def new_table(
    catalog: Catalog,
    name: str = "lake.three",
    *,
    schema: Schema = SCHEMA,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    version: int = 3,
) -> Table:
    properties = {"format-version": str(version)}
    return ensure_table(catalog, name, schema, partition_spec=spec, properties=properties)


def upgrade(catalog: Catalog, table: Table) -> Table:
    """The table in format 3, as a writer upgrades it: its snapshots stay as they are."""
    location = table.refresh().metadata_location
    document = json.loads(Path(location).read_text())
    document |= {"format-version": 3, "next-row-id": 0}
    upgraded = Path(location).with_name(f"90000-{new_id(utc_now())}.metadata.json")
    upgraded.write_text(json.dumps(document))
    catalog.drop_table(table.name())
    return catalog.register_table(table.name(), str(upgraded))


def add(table: Table, *files: Sequence[Row], columns: pa.Schema | None = None) -> list[str]:
    """Appends a file for each list of rows of one partition; the paths."""
    added = [data_file(table.refresh(), rows, columns) for rows in files]
    commit(table, added)
    return [file.file_path for file in added]


def plan(table: Table, only: Collection[str] | None = None) -> FileGroup:
    """A group of data files as they are now, as a stored task has it."""
    live = live_files(table.refresh())
    files = tuple(file for file in live.files if only is None or file.path in only)
    group = FileGroup(
        snapshot_id=present(live.snapshot_id),
        sequence_number=live.sequence_number,
        spec_id=files[0].spec_id,
        files=files,
    )
    return FileGroup.from_json(group.to_json())


def merged(table: Table, group: FileGroup, name: str = "task") -> Replacement:
    """Writes the live rows of a group, with their lineage, as one file; commits nothing."""
    rows = lineage(table, [file.path for file in group.files])
    names = [field.name for field in table.schema().fields]
    numbers = {file.path: file.sequence_number for file in group.files}
    listed = [
        dict(zip(names, one.row, strict=True))
        # Rows without an id have a sequence number nevertheless: that of their file.
        | {"_row_id": one.row_id, _LAST_UPDATED: one.last_updated or min(numbers.values())}
        for one in rows
    ]
    path = table.location_provider().new_data_location(f"merged-{new_id(utc_now())}.parquet")
    schema = schema_to_pyarrow(Schema(*table.schema().fields, *LINEAGE))
    _write(table, path, pa.Table.from_pylist(listed, schema))
    deleted = group.rows - len(rows)
    return Replacement(id=name, group=group, outputs=(path,), rows_deleted=deleted)


def data_file(table: Table, rows: Sequence[Row], columns: pa.Schema | None = None) -> DataFile:
    """Writes rows of one partition, and commits nothing."""
    names = ("id", "part", "value")
    schema = columns or schema_to_pyarrow(table.schema())
    listed = [dict(zip(names, row, strict=True)) for row in rows]
    path = table.location_provider().new_data_location(f"data-{new_id(utc_now())}.parquet")
    _write(table, path, pa.Table.from_pylist(listed, schema))
    values = [rows[0][1] for _ in table.spec().fields]
    return describe(table, path, spec_id=table.spec().spec_id, partition=values)


def delete_positions(table: Table, positions: Mapping[str, Collection[int]]) -> str:
    """Deletes rows by vectors, all in one Puffin file; those that the files had are replaced.

    Returns the path of the Puffin file.
    """
    table.refresh()
    entries = {entry.data_file.file_path: entry for entry in live_entries(table) if is_data(entry)}
    older = {
        entry.data_file[_REFERENCED]: entry.data_file
        for entry in live_entries(table)
        if entry.data_file.file_format == FileFormat.PUFFIN
    }
    path = table.location_provider().new_data_location(f"deletes-{new_id(utc_now())}.puffin")
    vectors = {}
    for target, some in positions.items():
        before = vector(table, older[target]) if target in older else set()
        vectors[target] = sorted(before | set(some))
    added = []
    for target, (offset, size) in _write_puffin(table, path, vectors).items():
        of = entries[target].data_file
        file = complete(
            DataFile.from_args(
                content=DataFileContent.POSITION_DELETES,
                file_path=path,
                file_format=FileFormat.PUFFIN,
                partition=of.partition,
                record_count=len(vectors[target]),
                file_size_in_bytes=Path(path).stat().st_size,
            )
        )
        file.spec_id = of.spec_id
        file[_REFERENCED], file[_OFFSET], file[_SIZE] = target, offset, size
        added.append(file)
    replaced = {(older[one].file_path, older[one][_OFFSET]) for one in positions if one in older}
    commit(table, added, without=replaced)
    return path


def delete_values(table: Table, values: Collection[int], part: str | None = None) -> str:
    """Deletes the rows with values of the third column, in a partition; the file's path."""
    path = table.location_provider().new_data_location(f"equal-{new_id(utc_now())}.parquet")
    column = pa.field("value", pa.int64(), metadata={"PARQUET:field_id": "3"})
    _write(table, path, pa.table({"value": pa.array(values, pa.int64())}, pa.schema([column])))
    file = complete(
        DataFile.from_args(
            content=DataFileContent.EQUALITY_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(*([part] if table.spec().fields else [])),
            record_count=len(values),
            file_size_in_bytes=Path(path).stat().st_size,
            equality_ids=[3],
        )
    )
    file.spec_id = table.spec().spec_id
    commit(table, [file])
    return path


def commit(
    table: Table, files: Sequence[DataFile], *, without: Collection[tuple[str, int | None]] = ()
) -> None:
    """Adds files, and takes away others, by path and offset of a vector, in one snapshot."""
    table.refresh()
    with table.transaction() as transaction:
        _Commit(transaction, files, without).commit()


class _Commit(WithRowIds["_Commit"]):
    def __init__(
        self,
        transaction: Any,
        files: Sequence[DataFile],
        without: Collection[tuple[str, int | None]],
    ) -> None:
        super().__init__(Operation.OVERWRITE, transaction, transaction._table.io)
        self._files = files
        self._without = without

    def _validate_concurrency(self) -> None:
        """Nobody else commits between the refresh and this."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _existing_manifests(self) -> list[ManifestFile]:
        parent = self._transaction.table_metadata.current_snapshot()
        return [] if parent is None else snapshot_manifests(self._io, parent)

    def _manifests(self) -> list[ManifestFile]:
        data = [file for file in self._files if file.content == DataFileContent.DATA]
        deletes = [file for file in self._files if file.content != DataFileContent.DATA]
        added = [
            self._written(content, [(ManifestEntryStatus.ADDED, None, file) for file in files])
            for content, files in ((ManifestContent.DATA, data), (ManifestContent.DELETES, deletes))
            if files
        ]
        return [*added, *filter(None, map(self._left, self._existing_manifests()))]

    def _left(self, manifest: ManifestFile) -> ManifestFile | None:
        """The manifest without the files that are taken away."""
        entries = list(entries_of(self._transaction._table, manifest))
        left = [
            entry
            for entry in entries
            if (entry.data_file.file_path, entry.data_file[_OFFSET]) not in self._without
        ]
        if len(left) == len(entries):
            return manifest
        existing = [(ManifestEntryStatus.EXISTING, one, one.data_file) for one in left]
        return self._written(manifest.content, existing) if left else None

    def _written(self, content: ManifestContent, entries: Sequence[Any]) -> ManifestFile:
        metadata = self._transaction.table_metadata
        path = self.new_manifest_output().location
        spec = metadata.spec()
        with manifest_writer(metadata, content, spec, path, self._io, self._snapshot_id) as writer:
            for status, before, file in entries:
                writer.add_entry(
                    ManifestEntry.from_args(
                        status=status,
                        snapshot_id=before.snapshot_id if before else self._snapshot_id,
                        sequence_number=before.sequence_number if before else None,
                        file_sequence_number=before.file_sequence_number if before else None,
                        data_file=file,
                    )
                )
        return writer.to_manifest_file()


def _write(table: Table, path: str, rows: pa.Table) -> None:
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows, stream)


def _write_puffin(
    table: Table, path: str, vectors: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, int]]:
    """Writes vectors, each with its offset and size in the result."""
    content, blobs, places = b"PFA1", [], {}
    for target, positions in vectors.items():
        keys = sorted({position >> 32 for position in positions})
        bitmap = len(keys).to_bytes(8, "little")
        for key in keys:
            low = BitMap([one & 0xFFFFFFFF for one in positions if one >> 32 == key])
            bitmap += key.to_bytes(4, "little") + low.serialize()
        inside = bytes.fromhex("d1d33964") + bitmap
        blob = len(inside).to_bytes(4, "big") + inside + zlib.crc32(inside).to_bytes(4, "big")
        places[target] = (len(content), len(blob))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [2147483546, 2147483545],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(blob),
                "properties": {
                    "referenced-data-file": target,
                    "cardinality": str(len(positions)),
                },
            }
        )
        content += blob
    footer = json.dumps({"blobs": blobs}).encode()
    content += b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1"
    with table.io.new_output(path).create() as stream:
        stream.write(content)
    return places
