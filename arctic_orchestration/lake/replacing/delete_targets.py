"""The data files that the deletes of a delete file target, in whichever form it has their paths."""

from collections.abc import Hashable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.delete_index import partition_key, values_of
from arctic_orchestration.lake.manifest_fields import (
    EntryKey,
    is_vector,
    key_of,
    only_target_of,
    path_bounds_of,
)
from arctic_orchestration.lake.replacing.path_matching import PathBounds, file_key
from arctic_orchestration.lake.replacing.read_errors import Why, why_unreadable
from arctic_orchestration.lake.s3_retries import open_input


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDelete:
    """A delete file of a snapshot."""

    file: DataFile
    manifest: str
    sequence_number: int
    #: its spec has no partitions: deletes by value apply to the whole table
    everywhere: bool
    partition: Hashable

    @property
    def path(self) -> str:
        return self.file.file_path

    @property
    def key(self) -> EntryKey:
        return key_of(self.file)

    @property
    def is_vector(self) -> bool:
        return is_vector(self.file)

    @property
    def is_position(self) -> bool:
        """Whether it deletes rows by their positions, in a file of its own or as a vector."""
        return self.file.content == DataFileContent.POSITION_DELETES

    def may_delete_by_value(self, partition: Hashable, sequence_number: int) -> bool:
        """Returns whether an equality delete applies to equal rows of a data file."""
        if sequence_number >= self.sequence_number:
            return False
        return self.everywhere or self.partition == partition


def partition_of(file: DataFile) -> Hashable:
    """Returns a key that is equal for files of one partition only."""
    return partition_key(file.spec_id, values_of(file))


class Reach:
    """Determines the data files that position deletes name; reads each delete file at most once.

    A file may be named in any form, see :mod:`~arctic_orchestration.lake.replacing.path_matching`.
    """

    def __init__(self, io: FileIO, known: str) -> None:
        """``known`` is the path of a file that is readable if the storage answers."""
        self._io = io
        self._known = known
        # Not by paths: one Puffin file has vectors of several data files.
        self._named: dict[EntryKey, frozenset[str] | None] = {}
        self._only: dict[EntryKey, str | None] = {}
        self._keys: dict[EntryKey, frozenset[str]] = {}

    def only(self, file: DataFile) -> str | None:
        """Returns the key of the one data file of the deletes, if the manifest names only one."""
        key = key_of(file)
        if key not in self._only:
            path = only_target_of(file)
            self._only[key] = None if path is None else file_key(path)
        return self._only[key]

    def names(self, file: DataFile, path: str) -> bool:
        """Returns whether the deletes name a data file, or may do so.

        Errors:
            LakeError: the storage does not answer.
        """
        if (only := self.only(file)) is not None:
            return only == file_key(path)
        if not PathBounds.of(*path_bounds_of(file)).may_hold(path):
            return False
        named = self.named(file)
        if named is None:
            return True
        key = key_of(file)
        if key not in self._keys:
            self._keys[key] = frozenset(map(file_key, named))
        return file_key(path) in self._keys[key]

    def named(self, file: DataFile) -> frozenset[str] | None:
        """Returns all data files that the deletes name, as they write them; None: unknown.

        Errors:
            LakeError: the storage does not answer.
        """
        if (only := only_target_of(file)) is not None:
            return frozenset({only})
        key = key_of(file)
        if key not in self._named:
            self._named[key] = self._read(file)
        return self._named[key]

    def _read(self, file: DataFile) -> frozenset[str] | None:
        if file.file_format != FileFormat.PARQUET:
            return None
        path = file.file_path
        found: set[str] = set()
        try:
            with open_input(self._io, path) as stream:
                batches = pq.ParquetFile(stream).iter_batches(columns=["file_path"])
                for batch in batches:
                    found.update(pc.unique(batch.column("file_path")).to_pylist())
        except (KeyError, pa.ArrowInvalid):
            return None
        except OSError as error:
            if why_unreadable(self._io, path, error, others=(self._known,)) is Why.STORAGE:
                raise LakeError(f"{path} cannot be read: {error}") from error
            return None
        return frozenset(found)
