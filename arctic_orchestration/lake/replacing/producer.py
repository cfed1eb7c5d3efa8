"""The snapshot that replaces data files: its manifests and its summary."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote_plus

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import (
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.typedef import EMPTY_DICT

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.manifest_fields import (
    EntryKey,
    content_of,
    is_vector,
    key_of,
    own_copy,
)
from arctic_orchestration.lake.manifests import read_entries
from arctic_orchestration.lake.replacing.manifest_writing import manifest_writer, schema_of
from arctic_orchestration.lake.replacing.obsolete_deletes import Added
from arctic_orchestration.lake.replacing.table_head import Head
from arctic_orchestration.lake.snapshot_writing import WithRowIds
from arctic_orchestration.lake.table_properties import int_property

_POSITION_FILES = "removed-position-delete-files"
_SIZE = [field.name for field in DATA_FILE_TYPE[3].fields].index("file_size_in_bytes")


@dataclass(frozen=True, kw_only=True)
class Change:
    """The files that a snapshot removes and adds; no row changes."""

    added: Sequence[Added]
    #: the entries of data files and of delete files, with their manifests
    removed: Mapping[EntryKey, str]
    #: more manifests that are rewritten
    merged: frozenset[str] = frozenset()

    @property
    def numbers(self) -> list[tuple[str, int]]:
        """The added files with their data sequence numbers."""
        return [(one.file.file_path, one.sequence_number) for one in self.added]

    @property
    def touched(self) -> frozenset[str]:
        """The manifests that have to be rewritten."""
        return self.merged.union(self.removed.values())


@dataclass(frozen=True, kw_only=True)
class WrittenManifests:
    """The manifests of a change; an attempt with the same change reuses them."""

    change: Change
    manifests: tuple[ManifestFile, ...]
    removed: tuple[DataFile, ...]

    def fit(self, change: Change) -> bool:
        """Returns whether they belong to the change.

        Row ids that a rewritten manifest got since are not in them; but its replaced files got
        theirs at the same time, which is a conflict.
        """
        mine = self.change
        return (change.removed, change.merged, change.numbers) == (
            mine.removed,
            mine.merged,
            mine.numbers,
        )


class ReplaceFiles(WithRowIds["ReplaceFiles"]):
    """A snapshot of operation ``replace``.

    Manifests without removed files are kept. The others are rewritten: remaining files are
    EXISTING, removed ones DELETED, both with their previous numbers. Small manifests are merged.
    Added files keep their given data sequence number, which pyiceberg's own producers cannot do.
    """

    def __init__(
        self,
        transaction: Transaction,
        head: Head,
        change: Change,
        properties: dict[str, str],
        *,
        snapshot_id: int,
        earlier: WrittenManifests | None = None,
    ) -> None:
        super().__init__(
            Operation.REPLACE,
            transaction,
            transaction._table.io,
            snapshot_properties=properties,
        )
        # Kept from attempt to attempt, so that manifests of an earlier one can be reused, and a
        # commit with a lost answer can be recognized.
        self._snapshot_id = snapshot_id
        self._head = head
        self._change = change
        usable = earlier is not None and earlier.fit(change)
        self.written: WrittenManifests | None = earlier if usable else None

    @property
    def paths(self) -> list[str]:
        """The manifests and lists that this attempt wrote."""
        return [*self._written_manifests, *self._written_manifest_lists]

    def _validate_concurrency(self) -> None:
        """Does nothing: the caller has validated this, from the planned snapshots on."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _existing_manifests(self) -> list[ManifestFile]:
        touched = self._change.touched
        return [one for one in self._head.manifests if one.manifest_path not in touched]

    def _manifests(self) -> list[ManifestFile]:
        if self.written is None:
            removed: list[DataFile] = []
            manifests = [*self._additions(), *self._rewritten(removed)]
            lacking = self._change.removed.keys() - {key_of(file) for file in removed}
            if lacking or len(removed) != len(self._change.removed):
                path, _ = min(lacking, default=("a file", 0))
                raise LakeError(f"{path} is not where it was found")
            self.written = WrittenManifests(
                change=self._change,
                manifests=tuple(manifests),
                removed=tuple(removed),
            )
        # As copies: the list gives them the numbers of this attempt.
        return [*map(own_copy, self.written.manifests), *self._existing_manifests()]

    def _additions(self) -> Iterable[ManifestFile]:
        by_spec: dict[int, list[Added]] = {}
        for one in self._change.added:
            by_spec.setdefault(one.file.spec_id, []).append(one)
        for spec_id, added in by_spec.items():
            with self._writer(ManifestContent.DATA, spec_id) as writer:
                for one in added:
                    writer.add(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED,
                            snapshot_id=self._snapshot_id,
                            sequence_number=one.sequence_number,
                            file_sequence_number=None,
                            data_file=one.file,
                        )
                    )
            yield writer.to_manifest_file()

    def _rewritten(self, removed: list[DataFile]) -> Iterable[ManifestFile]:
        for together in self._bins():
            first = together[0]
            with self._writer(first.content, first.partition_spec_id) as writer:
                for manifest in together:
                    for entry in read_entries(self._io, manifest):
                        if key_of(entry.data_file) in self._change.removed:
                            writer.delete(entry)
                            removed.append(entry.data_file)
                        else:
                            writer.existing(entry)
            yield writer.to_manifest_file()

    def _bins(self) -> Iterable[list[ManifestFile]]:
        """Yields the touched manifests that are merged: neighbours of one spec."""
        target = manifest_target(self._head.metadata)
        bins: dict[tuple[ManifestContent, int], list[list[ManifestFile]]] = {}
        for manifest in self._head.manifests:
            if manifest.manifest_path not in self._change.touched:
                continue
            of_kind = bins.setdefault((manifest.content, manifest.partition_spec_id), [[]])
            size = sum(one.manifest_length for one in of_kind[-1]) + manifest.manifest_length
            if of_kind[-1] and size > target:
                of_kind.append([])
            of_kind[-1].append(manifest)
        for of_kind in bins.values():
            yield from of_kind

    def _writer(self, content: ManifestContent, spec_id: int) -> ManifestWriter:
        metadata, path = self._head.metadata, self.new_manifest_output().location
        return manifest_writer(
            metadata, content, metadata.specs()[spec_id], path, self._io, self._snapshot_id
        )

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        metadata = self._head.metadata
        limit = int_property(
            metadata.properties,
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT,
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT,
        )
        collected = _Collector(partition_summary_limit=limit or 0)
        assert self.written is not None
        specs = metadata.specs()
        schemas = {
            spec_id: schema_of(metadata, spec) or metadata.schema()
            for spec_id, spec in specs.items()
        }
        for one in self._change.added:
            spec = specs[one.file.spec_id]
            collected.add_file(one.file, schemas[one.file.spec_id], spec)
        for file in self.written.removed:
            collected.remove_file(_counted(file), schemas[file.spec_id], specs[file.spec_id])
        parent = self._head.snapshot
        properties = collected.build() | _numbers_of_vectors(self.written.removed)
        if self._change.merged:
            properties |= self._numbers_of_manifests(self.written.manifests)
        summary = update_snapshot_summaries(
            # pyiceberg computes the totals of its own operations only.
            summary=Summary(Operation.OVERWRITE, **properties, **snapshot_properties),
            previous_summary=parent.summary if parent is not None else None,
        )
        return Summary(Operation.REPLACE, **summary.additional_properties)

    def _numbers_of_manifests(self, written: Sequence[ManifestFile]) -> dict[str, str]:
        """Returns what the specification's optional entries of a summary count."""
        replaced = len(self._change.touched)
        return {
            "manifests-created": str(len(written)),
            "manifests-kept": str(len(self._head.manifests) - replaced),
            "manifests-replaced": str(replaced),
            "entries-processed": str(sum(_entries(manifest) for manifest in written)),
        }


class _Collector(SnapshotSummaryCollector):
    """Counts the files of each partition, also where Python has no date for its value."""

    def update_partition_metrics(
        self, partition_spec: PartitionSpec, file: DataFile, is_add_file: bool, schema: Schema
    ) -> None:
        with suppress(OverflowError):
            super().update_partition_metrics(partition_spec, file, is_add_file, schema)
            return
        path = "/".join(
            f"{quote_plus(field.name)}={quote_plus(str(file.partition[place]))}"
            for place, field in enumerate(partition_spec.fields)
        )
        metrics = self.partition_metrics[path]
        (metrics.add_file if is_add_file else metrics.remove_file)(file)


def _entries(manifest: ManifestFile) -> int:
    counts = (
        manifest.added_files_count,
        manifest.existing_files_count,
        manifest.deleted_files_count,
    )
    return sum(count or 0 for count in counts)


def manifest_target(metadata: TableMetadata) -> int:
    """Returns the size that a table's manifests should have, in bytes."""
    target = int_property(
        metadata.properties,
        TableProperties.MANIFEST_TARGET_SIZE_BYTES,
        TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
    )
    assert target is not None
    return target


def _numbers_of_vectors(removed: Sequence[DataFile]) -> dict[str, str]:
    """Returns the entries of a summary that pyiceberg would count as files of position deletes."""
    vectors = sum(map(is_vector, removed))
    if not vectors:
        return {}
    positions = sum(one.content == DataFileContent.POSITION_DELETES for one in removed)
    return {"removed-dvs": str(vectors), _POSITION_FILES: str(positions - vectors)}


def _counted(file: DataFile) -> DataFile:
    """Returns a file with the size that counts: of a deletion vector, its part of the file."""
    content = content_of(file)
    if content is None:
        return file
    counted = DataFile(*file._data)
    counted.spec_id = file.spec_id
    counted[_SIZE] = content[1]
    return counted
