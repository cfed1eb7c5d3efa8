"""Commits snapshots of format 3, whose manifests and rows get their row ids with the commit.

A data manifest without ``first_row_id`` gets one when the manifest list is written: the next row id
of the table, and after it as many ids as the manifest has rows. Its files without a row id then
inherit theirs from it. This is also how the rows of an upgraded table get their first ids.

Source: "Row Lineage" in Iceberg's specification, and ``ManifestListWriter`` and
``SnapshotProducer`` of Iceberg's Java library.
"""

from typing import Any, Generic, TypeVar

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import ManifestContent, ManifestFile, ManifestListWriterV2
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    UpdatesAndRequirements,
    UpdateTableMetadata,
)
from pyiceberg.table.update.snapshot import _new_manifest_list_file_name, _SnapshotProducer

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.manifest_fields import MANIFEST, manifest_first_row_id, own_copy
from arctic_orchestration.lake.row_lineage import FIRST_VERSION

_Producer = TypeVar("_Producer", bound=UpdateTableMetadata[Any])


class WithRowIds(_SnapshotProducer[_Producer], Generic[_Producer]):
    """A producer that also commits to tables of format 3, where pyiceberg refuses."""

    def _commit(self) -> UpdatesAndRequirements:
        metadata = self._transaction.table_metadata
        if metadata.format_version < FIRST_VERSION:
            return super()._commit()
        snapshot = self._snapshot_with_row_ids(metadata)
        branch = self._target_branch
        if branch is None:
            return (AddSnapshotUpdate(snapshot=snapshot),), ()
        ref = metadata.refs.get(branch)
        return (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(  # type: ignore[call-arg]
                snapshot_id=self._snapshot_id,
                parent_snapshot_id=self._parent_snapshot_id,
                ref_name=branch,
                type=SnapshotRefType.BRANCH,
            ),
        ), (AssertRefSnapshotId(snapshot_id=None if ref is None else ref.snapshot_id, ref=branch),)

    def _snapshot_with_row_ids(self, metadata: TableMetadata) -> Snapshot:
        first_row_id = next_row_id_of(metadata)
        manifests = self._manifests()
        summary = self._summary(self.snapshot_properties)
        number = metadata.next_sequence_number()
        name = _new_manifest_list_file_name(self._snapshot_id, 0, self.commit_uuid)
        path = self._transaction._table.location_provider().new_metadata_location(name)
        self._written_manifest_lists.append(path)
        with _ManifestListWriter(
            self._io.new_output(path),
            self._snapshot_id,
            self._parent_snapshot_id,
            number,
            first_row_id,
            self._compression,
        ) as writer:
            writer.add_manifests(manifests)
        return Snapshot(
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=self._parent_snapshot_id,
            manifest_list=path,
            sequence_number=number,
            summary=summary,
            schema_id=metadata.current_schema_id,
            first_row_id=first_row_id,
            added_rows=writer.next_row_id - first_row_id,
        )


def next_row_id_of(metadata: TableMetadata) -> int:
    """Returns the id of the next row of a table of format 3.

    Errors:
        LakeError: the metadata lack it, so that the ids of the table's rows are unknown.
    """
    found: int | None = getattr(metadata, "next_row_id", None)
    if found is None:
        raise LakeError(f"the metadata of {metadata.location} lack next-row-id")
    return found


class _ManifestListWriter(ManifestListWriterV2):
    """Writes a list of format 3, and assigns row ids to the data manifests without any."""

    def __init__(
        self,
        output_file: Any,
        snapshot_id: int,
        parent_snapshot_id: int | None,
        sequence_number: int,
        first_row_id: int,
        compression: Any,
    ) -> None:
        super().__init__(output_file, snapshot_id, parent_snapshot_id, sequence_number, compression)
        self._format_version = 3
        self._meta |= {"first-row-id": str(first_row_id), "format-version": "3"}
        self.next_row_id = first_row_id

    def __enter__(self) -> "_ManifestListWriter":
        self._writer = AvroOutputFile[ManifestFile](
            output_file=self._output_file,
            record_schema=MANIFEST,
            file_schema=MANIFEST,
            schema_name="manifest_file",
            metadata=self._meta,
        )
        self._writer.__enter__()
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        # pyiceberg's copy would share its fields, and the next attempt has other numbers.
        prepared = super().prepare_manifest(own_copy(manifest_file))
        if prepared.content != ManifestContent.DATA or manifest_first_row_id(prepared) is not None:
            return prepared
        added, existing = prepared.added_rows_count, prepared.existing_rows_count
        if added is None or existing is None:
            raise LakeError(f"the manifest list has no row counts of {prepared.manifest_path}")
        assigned = own_copy(prepared, first_row_id=self.next_row_id)
        # Also of existing files: those of an upgraded table have no row ids yet.
        self.next_row_id += added + existing
        return assigned
