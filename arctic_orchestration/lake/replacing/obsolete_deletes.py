"""Delete files that become obsolete once their data files are replaced."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestFile

from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.manifests import read_entries
from arctic_orchestration.lake.replacing.delete_targets import LiveDelete, Reach, partition_of
from arctic_orchestration.lake.replacing.path_matching import file_key
from arctic_orchestration.lake.replacing.table_head import Head


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
        self._needed: dict[str, frozenset[str]] = {}
        self._searched: object = None

    def find(
        self, head: Head, groups: Iterable[FileGroup], added: Sequence[Added]
    ) -> dict[str, str]:
        """Returns the delete files that apply to no data file once the groups' files are gone.

        By their paths, with their manifests.

        Only deletes that the groups were planned with are considered. A position delete is needed
        as long as it names a live file, an equality delete as long as an older live file exists in
        its partition. An undecidable one stays.
        """
        groups = tuple(groups)
        gone = {file.path for group in groups for file in group.files}
        planned = {
            delete.path: delete.sequence_number
            for group in groups
            for delete in group.delete_files
            if delete.sequence_number <= group.sequence_number
        }
        if not planned:
            return {}
        left: dict[str, LiveDelete] = {}
        twice = set()
        for delete in head.deletes():
            if planned.get(delete.path) == delete.sequence_number:
                if delete.path in left:
                    twice.add(delete.path)
                left[delete.path] = delete
        for path in twice:
            # It is unknown which of the two is meant.
            del left[path]
        names: dict[str, frozenset[str]] = {}
        for path, delete in list(left.items()):
            if delete.is_position:
                named = self._reach.named(delete.file)
                if named is None:
                    del left[path]
                else:
                    # Only a path in the same form as a replaced file is certainly that file.
                    names[path] = frozenset(map(file_key, named - gone))
        for one in added:
            for path in _needing(left, names, one.file, one.sequence_number):
                left.pop(path, None)
        needless = self._not_needed(head, left, names, gone)
        return {path: delete.manifest for path, delete in needless.items()}

    def _not_needed(
        self,
        head: Head,
        left: dict[str, LiveDelete],
        names: Mapping[str, frozenset[str]],
        gone: Collection[str],
    ) -> dict[str, LiveDelete]:
        # Deletes whose files are all gone need no comparison with the others.
        searched = {path: one for path, one in left.items() if not one.is_position or names[path]}
        question = (frozenset(searched), frozenset(gone))
        if question != self._searched:
            self._needed, self._searched = {}, question
        if not searched:
            return left
        latest = max(delete.sequence_number for delete in searched.values())
        by_path = _by_named_path(searched, names)
        by_value = [one for one in searched.values() if not one.is_position]

        def needed(manifest: ManifestFile) -> frozenset[str]:
            found: set[str] = set()
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
        still = frozenset[str]().union(
            *(self._needed[manifest.manifest_path] for manifest in manifests)
        )
        return {path: delete for path, delete in left.items() if path not in still}


def _needing(
    deletes: Mapping[str, LiveDelete],
    names: Mapping[str, frozenset[str]],
    file: DataFile,
    sequence_number: int,
) -> list[str]:
    key = partition_of(file)
    by_value = [one for one in deletes.values() if not one.is_position]
    name = file_key(file.file_path)
    named = [path for path in deletes if name in names.get(path, ())]
    return [*named, *_by_value(by_value, key, sequence_number)]


def _by_value(
    deletes: Iterable[LiveDelete], partition: Hashable, sequence_number: int
) -> Iterable[str]:
    for delete in deletes:
        if delete.may_delete_by_value(partition, sequence_number):
            yield delete.path


def _by_named_path(
    deletes: Mapping[str, LiveDelete], names: Mapping[str, frozenset[str]]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in deletes:
        for named in names.get(path, ()):
            found.setdefault(named, []).append(path)
    return found
