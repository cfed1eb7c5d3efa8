"""Which deletes of a snapshot apply to a data file.

The rules are those of Iceberg's specification, formats 2 and 3:

- A position delete applies to data files of its partition that are not younger than it is:
  ``delete.sequence_number >= data.sequence_number``. A delete that names a single data file, by
  equal bounds of its paths or by ``referenced_data_file``, applies to that file only, regardless of
  its partition, as in other readers. Paths are compared by
  :func:`~arctic_orchestration.lake.replacing.path_matching.file_key`.
- A deletion vector applies to the one file that it references. Position deletes of that file are
  part of it, and no longer apply.
- An equality delete applies to data files of its partition that are older than it is:
  ``delete.sequence_number > data.sequence_number``. An equality delete of a spec without partitions
  applies to the data files of every partition.
"""

import math
import struct
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry

from arctic_orchestration.errors import LakeError, UnsupportedTable
from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, LiveFile
from arctic_orchestration.lake.manifest_fields import (
    content_of,
    is_vector,
    only_target_of,
    path_bounds_of,
    referenced_of,
)
from arctic_orchestration.lake.replacing.path_matching import PathBounds, file_key, form_of


def partition_key(spec_id: int, partition: tuple[Any, ...]) -> Hashable:
    """Returns a key that is equal for files of one partition only.

    The values alone do not suffice: in Python, a NaN is not equal to itself, and 0.0 equals -0.0.
    """
    if any(type(value) is float for value in partition):
        return spec_id, tuple(
            ("nan" if math.isnan(value) else struct.pack(">d", value))
            if type(value) is float
            else value
            for value in partition
        )
    return spec_id, partition


def values_of(file: DataFile) -> tuple[Any, ...]:
    """Returns the values of the partition fields of the file's spec, in their order."""
    return tuple(file.partition._data)


def sequence_number_of(entry: ManifestEntry) -> int:
    """Returns the data sequence number, including an inherited one.

    Errors:
        LakeError: there is none.
    """
    if entry.sequence_number is None:
        raise LakeError(f"{entry.data_file.file_path}: its entry has no sequence number")
    return entry.sequence_number


@dataclass(slots=True)
class _Later:
    """The deletes of one place, ordered by sequence number."""

    deletes: list[DeleteFile] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    #: earlier results: files that were written together share one tuple
    known: dict[int, tuple[DeleteFile, ...]] = field(default_factory=dict)

    def since(self, sequence_number: int, *, after: bool) -> tuple[DeleteFile, ...]:
        """Returns the deletes from this number on; ``after``: with a greater one."""
        if len(self.numbers) != len(self.deletes):
            self.deletes.sort(key=lambda one: (one.sequence_number, one.path))
            self.numbers = [one.sequence_number for one in self.deletes]
        find = bisect_right if after else bisect_left
        first = find(self.numbers, sequence_number)
        if first not in self.known:
            self.known[first] = tuple(self.deletes[first:])
        return self.known[first]


class DeleteIndex:
    """The delete files of a snapshot, indexed by what they apply to."""

    def __init__(self, without_partitions: frozenset[int]) -> None:
        self._without_partitions = without_partitions
        self._all: list[DeleteFile] = []
        #: by the keys of the data files
        self._of_path: dict[str, _Later] = defaultdict(_Later)
        self._vectors: dict[str, DeleteFile] = {}
        self._of_partition: dict[Hashable, _Later] = defaultdict(_Later)
        self._equal: dict[Hashable, _Later] = defaultdict(_Later)
        self._equal_everywhere = _Later()
        #: the smallest and greatest path in a file of position deletes, by its own path
        self._bounds: dict[str, PathBounds] = {}

    def add(self, entry: ManifestEntry) -> None:
        """Adds a delete file of the snapshot.

        Errors:
            UnsupportedTable: a deletion vector is incomplete, or another one has its data file.
            LakeError: it has no sequence number.
        """
        file = entry.data_file
        if is_vector(file):
            self._add_vector(entry)
            return
        key = partition_key(file.spec_id, values_of(file))
        position = file.content == DataFileContent.POSITION_DELETES
        delete = DeleteFile(
            path=file.file_path,
            kind=DeleteKind.POSITION if position else DeleteKind.EQUALITY,
            size=file.file_size_in_bytes,
            rows=file.record_count,
            sequence_number=sequence_number_of(entry),
            equality_ids=() if position else tuple(file.equality_ids or ()),
        )
        self._all.append(delete)
        if not position:
            everywhere = file.spec_id in self._without_partitions
            (self._equal_everywhere if everywhere else self._equal[key]).deletes.append(delete)
            return
        target = only_target_of(file)
        if target is not None:
            self._of_path[file_key(target)].deletes.append(delete)
            return
        self._bounds[delete.path] = PathBounds.of(*path_bounds_of(file))
        self._of_partition[key].deletes.append(delete)

    def _add_vector(self, entry: ManifestEntry) -> None:
        file = entry.data_file
        content, referenced = content_of(file), referenced_of(file)
        if content is None or referenced is None:
            raise UnsupportedTable(
                f"{file.file_path}: a deletion vector without place or data file"
            )
        offset, size = content
        vector = DeleteFile(
            path=file.file_path,
            kind=DeleteKind.VECTOR,
            size=size,
            rows=file.record_count,
            sequence_number=sequence_number_of(entry),
            offset=offset,
            referenced=referenced,
        )
        if self._vectors.setdefault(file_key(referenced), vector) is not vector:
            raise UnsupportedTable(f"{referenced} has two deletion vectors, expected one")
        self._all.append(vector)

    def of(self, path: str, sequence_number: int, key: Hashable) -> tuple[DeleteFile, ...]:
        """Returns the deletes that apply to a data file.

        Errors:
            UnsupportedTable: its deletion vector is older than the file.
        """
        if not self._all:
            return ()
        parts: list[tuple[DeleteFile, ...]] = []
        vector = self._vectors.get(file_key(path)) if self._vectors else None
        if vector is not None:
            if vector.sequence_number < sequence_number:
                raise UnsupportedTable(f"{path} is younger than its deletion vector, {vector.path}")
            parts.append((vector,))
        else:
            if self._of_path and (found := self._of_path.get(file_key(path))):
                parts.append(found.since(sequence_number, after=False))
            if found := self._of_partition.get(key):
                parts.append(self._within(path, found.since(sequence_number, after=False)))
        if found := self._equal.get(key):
            parts.append(found.since(sequence_number, after=True))
        parts.append(self._equal_everywhere.since(sequence_number, after=True))
        parts = [part for part in parts if part]
        if len(parts) <= 1:
            return parts[0] if parts else ()
        together = [delete for part in parts for delete in part]
        return tuple(sorted(together, key=lambda one: (one.sequence_number, one.path)))

    def idle(self, files: list[LiveFile]) -> tuple[DeleteFile, ...]:
        """Returns the deletes that apply to none of the files."""
        if not self._all:
            return ()
        # Files share their tuples; each tuple is examined once.
        tuples = {id(file.deletes): file.deletes for file in files}
        used = {delete.key for deletes in tuples.values() for delete in deletes}
        return tuple(delete for delete in self._all if delete.key not in used)

    def _within(self, path: str, deletes: tuple[DeleteFile, ...]) -> tuple[DeleteFile, ...]:
        """Omits deletes whose bounds exclude the file."""
        if not self._bounds:
            return deletes
        name, form = path.encode(), form_of(path)
        within = tuple(
            delete for delete in deletes if self._bounds[delete.path].may_hold_bytes(name, form)
        )
        return deletes if len(within) == len(deletes) else within
