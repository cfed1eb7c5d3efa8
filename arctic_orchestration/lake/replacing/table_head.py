"""What the head of a table contains of some files, and its deletes.

Manifests never change, but for the row ids that their files inherit. So their contents are cached
for the next head: a retried commit reads only what other writers added meanwhile.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from arctic_orchestration.lake.manifest_fields import first_row_id_of, manifest_first_row_id
from arctic_orchestration.lake.manifests import (
    read_entries,
    snapshot_manifests,
    specs_without_partitions,
)
from arctic_orchestration.lake.replacing.delete_targets import LiveDelete, partition_of
from arctic_orchestration.lake.row_lineage import FIRST_VERSION
from arctic_orchestration.lake.snapshot_history import ancestors

_MANIFESTS_AT_ONCE = 8
_T = TypeVar("_T")
#: A manifest's path and row id. Those of an upgraded table get a row id after they were written.
_Version = tuple[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a data file in a snapshot."""

    manifest: str
    file: DataFile
    #: the data sequence number
    sequence_number: int
    #: the snapshot that added it
    snapshot_id: int | None
    #: equal for files of one partition
    partition: Hashable

    @property
    def first_row_id(self) -> int | None:
        """The row id of its first row; None: its rows have none yet."""
        return first_row_id_of(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """A wanted data file; only manifests that can contain it are read."""

    path: str
    spec_id: int
    sequence_number: int


class ReadManifests:
    """The cache of a table's manifests."""

    def __init__(self, io: FileIO, sought: Iterable[Sought]) -> None:
        self._io = io
        wanted = tuple(sought)
        self._paths = frozenset(one.path for one in wanted)
        #: the sequence numbers of the files of each spec, in order
        self._numbers: dict[int, list[int]] = {
            spec_id: sorted({one.sequence_number for one in wanted if one.spec_id == spec_id})
            for spec_id in {one.spec_id for one in wanted}
        }
        #: only of manifests that may contain one of the files; by path and row id
        self._places: dict[_Version, tuple[Place, ...]] = {}
        self._useless: set[str] = set()
        self._deletes: dict[_Version, tuple[LiveDelete, ...]] = {}
        #: of older snapshots: their lists, and the manifests in them
        self._lists: set[str] = set()
        self._older: dict[str, ManifestFile] = {}

    def places(self, manifests: Iterable[ManifestFile]) -> dict[str, list[Place]]:
        """Returns where the files are, by their paths; omits missing files.

        Errors:
            LakeError: a manifest cannot be read.
        """
        candidates = [manifest for manifest in manifests if self._may_hold_any(manifest)]
        self.read_all(candidates, self._places, self._found)
        found: dict[str, list[Place]] = {}
        for manifest in candidates:
            for place in self._places[version_of(manifest)]:
                found.setdefault(place.file.file_path, []).append(place)
        return found

    def places_in_any(self, snapshots: Iterable[Snapshot]) -> dict[str, list[Place]]:
        """Returns where the files are in any of the snapshots, or of earlier calls' snapshots.

        Errors:
            LakeError: a manifest, or a list of them, cannot be read.
        """
        new = {one.manifest_list: one for one in snapshots if one.manifest_list not in self._lists}
        if new:
            with ThreadPoolExecutor(_MANIFESTS_AT_ONCE) as pool:
                lists = pool.map(lambda one: snapshot_manifests(self._io, one), new.values())
                for path, manifests in zip(new, lists, strict=True):
                    for manifest in manifests:
                        if manifest.content == ManifestContent.DATA and holds_files(manifest):
                            self._older[manifest.manifest_path] = manifest
                    self._lists.add(path)
        return self.places(self._older.values())

    def _may_hold_any(self, manifest: ManifestFile) -> bool:
        path = manifest.manifest_path
        if version_of(manifest) in self._places:
            return True
        if path in self._useless:
            return False
        if may_hold(manifest, self._numbers.get(manifest.partition_spec_id, ())):
            return True
        self._useless.add(path)
        return False

    def deletes(
        self, manifests: Iterable[ManifestFile], metadata: TableMetadata
    ) -> Iterator[LiveDelete]:
        """Yields all delete files of the manifests."""
        wanted = list(manifests)
        everywhere = specs_without_partitions(metadata)

        def live(manifest: ManifestFile) -> tuple[LiveDelete, ...]:
            return tuple(
                LiveDelete(
                    file=entry.data_file,
                    manifest=manifest.manifest_path,
                    sequence_number=entry.sequence_number or 0,
                    everywhere=entry.data_file.spec_id in everywhere,
                    partition=partition_of(entry.data_file),
                )
                for entry in read_entries(self._io, manifest)
            )

        self.read_all(wanted, self._deletes, live)
        for manifest in wanted:
            yield from self._deletes[version_of(manifest)]

    def read_all(
        self,
        manifests: Iterable[ManifestFile],
        known: "dict[_Version, _T]",
        read: Callable[[ManifestFile], _T],
    ) -> None:
        """Reads the manifests that are not cached yet, in parallel."""
        new = [manifest for manifest in manifests if version_of(manifest) not in known]
        if new:
            with ThreadPoolExecutor(_MANIFESTS_AT_ONCE) as pool:
                for manifest, found in zip(new, pool.map(read, new), strict=True):
                    known[version_of(manifest)] = found

    def _found(self, manifest: ManifestFile) -> tuple[Place, ...]:
        return tuple(
            Place(
                manifest=manifest.manifest_path,
                file=entry.data_file,
                sequence_number=entry.sequence_number or 0,
                snapshot_id=entry.snapshot_id,
                partition=partition_of(entry.data_file),
            )
            for entry in read_entries(self._io, manifest)
            if entry.data_file.file_path in self._paths
        )


class Head:
    """One snapshot of a table, with the facts read so far."""

    def __init__(self, table: Table, read: ReadManifests) -> None:
        self.metadata = table.metadata
        self.snapshot = table.metadata.current_snapshot()
        self.read = read
        #: the head and its ancestors that have not expired
        self.ancestors = frozenset(
            one.snapshot_id for one in ancestors(table.metadata, table.metadata.current_snapshot_id)
        )
        every = [] if self.snapshot is None else snapshot_manifests(table.io, self.snapshot)
        #: Manifests with a live file. The others only record what an older snapshot removed.
        self.manifests = [manifest for manifest in every if holds_files(manifest)]
        self.data_manifests = [
            manifest for manifest in self.manifests if manifest.content == ManifestContent.DATA
        ]
        self.delete_manifests = [
            manifest for manifest in self.manifests if manifest.content == ManifestContent.DELETES
        ]
        self.places = read.places(self.data_manifests)

    @property
    def may_hold_vectors(self) -> bool:
        """Whether there can be deletion vectors, which format 3 has brought."""
        return self.metadata.format_version >= FIRST_VERSION and bool(self.delete_manifests)

    def deletes(self, after: int = -1) -> Iterator[LiveDelete]:
        """Yields the delete files in manifests that were written after a sequence number."""
        wanted = [one for one in self.delete_manifests if one.sequence_number > after]
        yield from self.read.deletes(wanted, self.metadata)


def version_of(manifest: ManifestFile) -> _Version:
    """Returns what distinguishes a manifest's contents."""
    return manifest.manifest_path, manifest_first_row_id(manifest)


def holds_files(manifest: ManifestFile) -> bool:
    """Returns whether it has a live file, and not only records of removed ones."""
    return manifest.has_added_files() or manifest.has_existing_files()


def may_hold(manifest: ManifestFile, sequence_numbers: Sequence[int]) -> bool:
    """Returns whether the manifest can contain a live file with one of the data sequence numbers.

    Args:
        sequence_numbers: in ascending order.

    The smallest number is only trusted of a manifest without files of earlier snapshots: pyiceberg
    for some time wrote one that was too great for files from before an upgrade to format 2.
    """
    smallest = 0 if manifest.has_existing_files() else manifest.min_sequence_number
    first = bisect_left(sequence_numbers, smallest)
    return first < len(sequence_numbers) and sequence_numbers[first] <= manifest.sequence_number
