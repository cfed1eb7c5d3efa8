"""Delete files that become obsolete once their data files are replaced."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestFile

from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.manifest_fields import EntryKey
from arctic_orchestration.lake.manifests import read_entries
from arctic_orchestration.lake.replacing.delete_targets import LiveDelete, Reach, partition_of
from arctic_orchestration.lake.replacing.path_matching import file_key
from arctic_orchestration.lake.replacing.table_head import Head, version_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """A file that the commit adds."""

    file: DataFile
    sequence_number: int


class NeedlessDeletes:
    """Finds obsolete delete files, with a cache of manifest facts between attempts."""

    def __init__(self, io: FileIO, reach: Reach) -> None:
        self._io = io
        self._reach = reach
        self._needed: dict[tuple[str, int | None], frozenset[EntryKey]] = {}
        self._searched: object = None

    def find(
        self, head: Head, groups: Iterable[FileGroup], added: Sequence[Added]
    ) -> dict[EntryKey, str]:
        """Returns the delete files that apply to no data file once the groups' files are gone.

        By their keys, with their manifests.

        Only deletes that the groups were planned with are considered, and all deletion vectors. A
        position delete or a vector is needed as long as it names a live file, an equality delete as
        long as an older live file exists in its partition. An undecidable one stays.
        """
        groups = tuple(groups)
        gone = {file.path for group in groups for file in group.files}
        planned = {
            delete.key: delete.sequence_number
            for group in groups
            for delete in group.delete_files
            if delete.sequence_number <= group.sequence_number
        }
        if not planned and not head.may_hold_vectors:
            return {}
        left: dict[EntryKey, LiveDelete] = {}
        twice = set()
        for delete in head.deletes():
            if delete.is_vector or planned.get(delete.key) == delete.sequence_number:
                if delete.key in left:
                    twice.add(delete.key)
                left[delete.key] = delete
        for key in twice:
            # It is unknown which of the two is meant.
            del left[key]
        names: dict[EntryKey, frozenset[str]] = {}
        for key, delete in list(left.items()):
            if delete.is_position:
                named = self._reach.named(delete.file)
                if named is None:
                    del left[key]
                else:
                    # Only a path in the same form as a replaced file is certainly that file.
                    names[key] = frozenset(map(file_key, named - gone))
        for one in added:
            for key in _needing(left, names, one.file, one.sequence_number):
                left.pop(key, None)
        needless = self._not_needed(head, left, names, gone)
        return {key: delete.manifest for key, delete in needless.items()}

    def _not_needed(
        self,
        head: Head,
        left: dict[EntryKey, LiveDelete],
        names: Mapping[EntryKey, frozenset[str]],
        gone: Collection[str],
    ) -> dict[EntryKey, LiveDelete]:
        # Deletes whose files are all gone need no comparison with the others.
        searched = {key: one for key, one in left.items() if not one.is_position or names[key]}
        question = (frozenset(searched), frozenset(gone))
        if question != self._searched:
            self._needed, self._searched = {}, question
        if not searched:
            return left
        latest = max(delete.sequence_number for delete in searched.values())
        by_path = _by_named_path(searched, names)
        by_value = [one for one in searched.values() if not one.is_position]

        def needed(manifest: ManifestFile) -> frozenset[EntryKey]:
            found: set[EntryKey] = set()
            for entry in read_entries(self._io, manifest):
                file = entry.data_file
                if file.file_path in gone:
                    continue
                found.update(by_path.get(file_key(file.file_path), ()))
                key = partition_of(file)
                found.update(_by_value(by_value, key, entry.sequence_number or 0))
            return frozenset(found)

        manifests = [
            manifest
            for manifest in head.data_manifests
            if manifest.has_existing_files() or manifest.min_sequence_number <= latest
        ]
        head.read.read_all(manifests, self._needed, needed)
        still = frozenset[EntryKey]().union(
            *(self._needed[version_of(manifest)] for manifest in manifests)
        )
        return {key: delete for key, delete in left.items() if key not in still}


def _needing(
    deletes: Mapping[EntryKey, LiveDelete],
    names: Mapping[EntryKey, frozenset[str]],
    file: DataFile,
    sequence_number: int,
) -> list[EntryKey]:
    key = partition_of(file)
    by_value = [one for one in deletes.values() if not one.is_position]
    name = file_key(file.file_path)
    named = [one for one in deletes if name in names.get(one, ())]
    return [*named, *_by_value(by_value, key, sequence_number)]


def _by_value(
    deletes: Iterable[LiveDelete], partition: Hashable, sequence_number: int
) -> Iterable[EntryKey]:
    for delete in deletes:
        if delete.may_delete_by_value(partition, sequence_number):
            yield delete.key


def _by_named_path(
    deletes: Mapping[EntryKey, LiveDelete], names: Mapping[EntryKey, frozenset[str]]
) -> dict[str, list[EntryKey]]:
    found: dict[str, list[EntryKey]] = {}
    for key in deletes:
        for named in names.get(key, ()):
            found.setdefault(named, []).append(key)
    return found
