"""The files of a snapshot, and the deletes that apply to each of its data files.

Manifests are read entry by entry, so that only the result is held in memory. pyiceberg decodes a
map of numbers on access; the statistics of data files are never accessed.
"""

import math
import zlib
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass

from pyiceberg.avro.file import AvroFile
from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform

from arctic_orchestration.errors import LakeError, NotFound, UnsupportedTable
from arctic_orchestration.lake.avro_doubles import read_exactly
from arctic_orchestration.lake.delete_index import (
    DeleteIndex,
    partition_key,
    sequence_number_of,
    values_of,
)
from arctic_orchestration.lake.file_groups import DeleteFile, LiveFile
from arctic_orchestration.lake.manifest_fields import (
    ENTRY,
    first_row_id_of,
    manifest_first_row_id,
    set_first_row_id,
)
from arctic_orchestration.lake.manifest_lists import read_manifest_list
from arctic_orchestration.lake.supported_formats import require_supported_format
from arctic_orchestration.lake.table_properties import int_property

read_exactly()

#: The exceptions of reading a missing or truncated file.
UNREADABLE = (OSError, ValueError, EOFError, ResolveError, zlib.error)
_TARGET_BYTES = 128 * 1024 * 1024
_SMALL = 0.75


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveFiles:
    """The data files of a snapshot."""

    #: None: the table has no snapshot
    snapshot_id: int | None
    sequence_number: int
    files: list[LiveFile]
    #: delete files of the snapshot that apply to none of its data files
    idle_deletes: tuple[DeleteFile, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TableNumbers:
    """The storage metrics of a table; sizes in bytes."""

    files: int
    #: data files below the size that counts as small
    small_files: int
    #: the size of the data files
    bytes: int
    #: the rows of the data files, deleted ones included
    rows: int
    #: delete files, including those that apply to no data file
    delete_files: int
    partitions: int
    #: How many files a full scan opens for each file that it would open if every partition were
    #: packed into files of the target size. A delete file is opened once for each data file it
    #: applies to. 1.0: nothing to gain; also the value of an empty table.
    read_amplification: float


def live_files(table: Table, snapshot_id: int | None = None) -> LiveFiles:
    """Returns a snapshot's data files, with the deletes that apply to them, in manifest order.

    Args:
        table: is not refreshed.
        snapshot_id: any present snapshot of the table; None: the current one.

    Errors:
        NotFound: the table has no such snapshot.
        UnsupportedTable: the format is newer than 3, a file is encrypted, a data file is in the
            table twice, or its deletion vectors contradict each other.
        LakeError: a manifest cannot be read.
    """
    name = ".".join(table.name())
    require_supported_format(table.format_version, name)
    snapshot = _snapshot(table, snapshot_id)
    if snapshot is None:
        return LiveFiles(snapshot_id=None, sequence_number=0, files=[])
    manifests = snapshot_manifests(table.io, snapshot)
    deletes = DeleteIndex(specs_without_partitions(table.metadata))
    for manifest in manifests:
        if manifest.content == ManifestContent.DELETES:
            for entry in read_entries(table.io, manifest):
                _require_no_key(entry.data_file, name)
                deletes.add(entry)
    files = []
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA:
            for entry in read_entries(table.io, manifest):
                _require_no_key(entry.data_file, name)
                files.append(_live_file(entry, deletes))
    _refuse_twins(files, name)
    return LiveFiles(
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        files=files,
        idle_deletes=deletes.idle(files),
    )


def live_entries(
    table: Table, snapshot_id: int, paths: Collection[str]
) -> dict[str, ManifestEntry]:
    """Returns the full entries of some files of a snapshot, data or deletes, and no others.

    Inherited sequence numbers, snapshot ids and spec ids are filled in.

    Errors:
        NotFound: the table has no such snapshot.
        LakeError: a manifest cannot be read.
    """
    snapshot = _snapshot(table, snapshot_id)
    lacking = set(paths)
    found: dict[str, ManifestEntry] = {}
    for manifest in snapshot_manifests(table.io, snapshot) if snapshot else []:
        if not lacking:
            break
        for entry in read_entries(table.io, manifest):
            if entry.data_file.file_path in lacking:
                found[entry.data_file.file_path] = entry
                lacking.discard(entry.data_file.file_path)
    return found


def table_numbers(
    table: Table,
    snapshot_id: int | None = None,
    *,
    target_bytes: int | None = None,
    small_bytes: int | None = None,
) -> TableNumbers:
    """Counts the result of :func:`live_files`; raises its errors.

    Args:
        target_bytes: None: ``write.target-file-size-bytes``, and 128 MiB without that property.
        small_bytes: smaller files count as small; None: three quarters of the target.
    """
    if target_bytes is None:
        target_bytes = int_property(
            table.properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, _TARGET_BYTES
        )
    return numbers_of(live_files(table, snapshot_id), target_bytes or 1, small_bytes)


def numbers_of(live: LiveFiles, target_bytes: int, small_bytes: int | None = None) -> TableNumbers:
    """Returns the same for known files."""
    small = target_bytes * _SMALL if small_bytes is None else small_bytes
    partitions: dict[Hashable, int] = defaultdict(int)
    deletes = {delete.key for delete in live.idle_deletes}
    applied = 0
    for file in live.files:
        partitions[partition_key(file.spec_id, file.partition)] += file.size
        applied += len(file.deletes)
        deletes |= {delete.key for delete in file.deletes}
    fewest = sum(max(1, math.ceil(size / target_bytes)) for size in partitions.values())
    return TableNumbers(
        files=len(live.files),
        small_files=sum(file.size < small for file in live.files),
        bytes=sum(file.size for file in live.files),
        rows=sum(file.rows for file in live.files),
        delete_files=len(deletes),
        partitions=len(partitions),
        read_amplification=(len(live.files) + applied) / fewest if fewest else 1.0,
    )


def snapshot_manifests(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Returns the manifests in a snapshot's list.

    Errors:
        LakeError: the list cannot be read.
    """
    try:
        return read_manifest_list(io, snapshot.manifest_list)
    except UNREADABLE as error:
        raise LakeError(
            f"manifest list {snapshot.manifest_list} cannot be read: {error}"
        ) from error


def read_entries(io: FileIO, manifest: ManifestFile) -> Iterator[ManifestEntry]:
    """Yields the live entries of a manifest, one by one, with their inherited values.

    Errors:
        LakeError: the manifest cannot be read, or an entry has no sequence number.
    """
    try:
        with AvroFile[ManifestEntry](
            io.new_input(manifest.manifest_path),
            ENTRY,
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as entries:
            next_row_id = manifest_first_row_id(manifest)
            for entry in entries:
                if entry.status != ManifestEntryStatus.DELETED:
                    next_row_id = _inherit_row_id(entry.data_file, next_row_id)
                    yield _inherit_from_manifest(entry, manifest)
    except UNREADABLE as error:
        raise LakeError(f"manifest {manifest.manifest_path} cannot be read: {error}") from error


def _inherit_row_id(file: DataFile, next_row_id: int | None) -> int | None:
    """Sets the file's row id, if it inherits one; returns that of the next file.

    Without a row id of the manifest, the file has none, whatever its entry says.
    """
    if next_row_id is None:
        set_first_row_id(file, None)
    elif first_row_id_of(file) is None:
        set_first_row_id(file, next_row_id)
        return next_row_id + file.record_count
    return next_row_id


def _snapshot(table: Table, snapshot_id: int | None) -> Snapshot | None:
    if snapshot_id is None:
        return table.current_snapshot()
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise NotFound(f"{'.'.join(table.name())}: no snapshot {snapshot_id}; it may have expired")
    return snapshot


def specs_without_partitions(metadata: TableMetadata) -> frozenset[int]:
    """Returns the ids of a table's specs whose files are of one partition, which is all rows."""
    # A field that was dropped in format 1 is kept as a void one.
    return frozenset(
        spec_id
        for spec_id, spec in metadata.specs().items()
        if all(isinstance(one.transform, VoidTransform) for one in spec.fields)
    )


def _live_file(entry: ManifestEntry, deletes: DeleteIndex) -> LiveFile:
    file = entry.data_file
    partition = values_of(file)
    sequence_number = sequence_number_of(entry)
    return LiveFile(
        path=file.file_path,
        size=file.file_size_in_bytes,
        rows=file.record_count,
        sequence_number=sequence_number,
        spec_id=file.spec_id,
        partition=partition,
        file_format=file.file_format.value.lower(),
        sort_order_id=file.sort_order_id,
        first_row_id=first_row_id_of(file),
        deletes=deletes.of(file.file_path, sequence_number, partition_key(file.spec_id, partition)),
    )


def _require_no_key(file: DataFile, table: str) -> None:
    if file.key_metadata is not None:
        raise UnsupportedTable(f"{table}: {file.file_path} has key_metadata: it is encrypted")


def _refuse_twins(files: list[LiveFile], table: str) -> None:
    seen: set[str] = set()
    for file in files:
        if file.path in seen:
            raise UnsupportedTable(f"{table}: got the data file {file.path} twice, expected once")
        seen.add(file.path)
