"""A reader of the row lineage of tables of format 3, which knows nothing of the library.

It takes manifests and Puffin files with pyiceberg, applies the rules of the specification row by
row, and gives each row its id and sequence number.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table import Table
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from arctic_orchestration_tests.present import present

_NAMES = [field.name for field in DATA_FILE_TYPE[3].fields]
_FIRST_ROW_ID = _NAMES.index("first_row_id")
_REFERENCED = _NAMES.index("referenced_data_file")
_LAST_UPDATED = "_last_updated_sequence_number"


class Lineage(NamedTuple):
    """A row as a reader of format 3 has it."""

    row_id: int | None
    last_updated: int | None
    row: tuple[Any, ...]


def lineage(table: Table, only: Collection[str] | None = None) -> list[Lineage]:
    """The live rows with their lineage, in the order of their first column.

    Args:
        only: the paths of data files; None: all.
    """
    entries = list(live_entries(table.refresh()))
    found = []
    for entry in filter(is_data, entries):
        if only is not None and entry.data_file.file_path not in only:
            continue
        gone, equal = _deleted(table, entry, entries)
        found += _rows(table, entry, gone, equal)
    return sorted(found, key=lambda one: one.row[0])


def _rows(table: Table, entry: ManifestEntry, gone: set[int], equal: set[int]) -> list[Lineage]:
    file = entry.data_file
    first = file[_FIRST_ROW_ID]
    found = []
    for position, row in enumerate(pq.ParquetFile(file.file_path).read().to_pylist()):
        own_id, own_number = row.pop("_row_id", None), row.pop(_LAST_UPDATED, None)
        if position in gone or row["value"] in equal:
            continue
        values = tuple(row.get(field.name) for field in table.schema().fields)
        if first is None:
            found.append(Lineage(None, None, values))
            continue
        row_id = first + position if own_id is None else own_id
        number = entry.sequence_number if own_number is None else own_number
        found.append(Lineage(row_id, number, values))
    return found


def _deleted(
    table: Table, entry: ManifestEntry, entries: Sequence[ManifestEntry]
) -> tuple[set[int], set[int]]:
    """The positions and the values that are deleted from a data file."""
    file, number = entry.data_file, present(entry.sequence_number)
    positions: set[int] = set()
    found: set[int] | None = None
    equal: set[int] = set()
    for other in entries:
        delete, later = other.data_file, present(other.sequence_number)
        if delete.content == DataFileContent.EQUALITY_DELETES:
            if later > number and delete.partition == file.partition:
                equal.update(pq.ParquetFile(delete.file_path).read()["value"].to_pylist())
        elif delete.file_format == FileFormat.PUFFIN:
            if delete[_REFERENCED] == file.file_path:
                assert found is None
                assert later >= number
                found = vector(table, delete)
        elif delete.content == DataFileContent.POSITION_DELETES and later >= number:
            rows = pq.ParquetFile(delete.file_path).read().to_pylist()
            positions |= {row["pos"] for row in rows if row["file_path"] == file.file_path}
    return positions if found is None else found, equal


def delete_entries(table: Table) -> list[DataFile]:
    """The live deletes of the table."""
    return [one.data_file for one in live_entries(table.refresh()) if not is_data(one)]


def live_entries(table: Table) -> list[ManifestEntry]:
    with AvroFile[ManifestFile](
        table.io.new_input(present(table.current_snapshot()).manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[3],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as manifests:
        return [entry for manifest in manifests for entry in entries_of(table, manifest)]


def entries_of(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    """Live entries, with all that they inherit."""
    found = []
    next_row_id = manifest[len(MANIFEST_LIST_FILE_SCHEMAS[3].fields) - 1]
    with AvroFile[ManifestEntry](
        table.io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        for entry in entries:
            if entry.status == ManifestEntryStatus.DELETED:
                continue
            file = entry.data_file
            file.spec_id = manifest.partition_spec_id
            if entry.sequence_number is None:
                entry.sequence_number = manifest.sequence_number
            if entry.file_sequence_number is None:
                entry.file_sequence_number = manifest.sequence_number
            if manifest.content == ManifestContent.DATA:
                if next_row_id is None:
                    assert file[_FIRST_ROW_ID] is None
                elif file[_FIRST_ROW_ID] is None:
                    file[_FIRST_ROW_ID] = next_row_id
                    next_row_id += file.record_count
            found.append(entry)
    return found


def is_data(entry: ManifestEntry) -> bool:
    return entry.data_file.content == DataFileContent.DATA


def vector(table: Table, delete: DataFile) -> set[int]:
    with table.io.new_input(delete.file_path).open() as stream:
        vectors = deletion_vectors_from_puffin_file(PuffinFile(stream.read()))
    (found,) = (one for one in vectors if one.referenced_data_file == delete[_REFERENCED])
    return set(found.to_vector().to_pylist())
