"""Which data files the deletes of a delete file are for."""

from collections.abc import Hashable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from arctic_orchestration.lake.delete_index import partition_key
from arctic_orchestration.lake.manifest_writing import REFERENCED_PLACE

#: The id that the specification reserves for the column with the paths of data files.
_PATH_ID = 2147483546


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDelete:
    """A delete file of a snapshot."""

    file: DataFile
    manifest: str
    sequence_number: int
    #: its spec has no partitions: deletes by value are for the whole table
    everywhere: bool
    partition: Hashable

    @property
    def path(self) -> str:
        return self.file.file_path

    @property
    def is_position(self) -> bool:
        return self.file.content == DataFileContent.POSITION_DELETES

    def may_delete_by_value(self, partition: Hashable, sequence_number: int) -> bool:
        """Whether an equality delete applies to equal rows of a data file."""
        if sequence_number >= self.sequence_number:
            return False
        return self.everywhere or self.partition == partition


def partition_of(file: DataFile) -> Hashable:
    """Equal for files of one partition, and for these only."""
    values = file.partition
    return partition_key(file.spec_id, tuple(values[place] for place in range(len(values))))


class Reach:
    """Tells which data files position deletes name; each delete file is read once at most."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._named: dict[str, frozenset[str] | None] = {}

    def only_path(self, file: DataFile) -> str | None:
        """The one data file of the deletes, if the manifest says that there is one."""
        if referenced := file[REFERENCED_PLACE]:
            return str(referenced)
        lower, upper = _bounds(file)
        return lower.decode() if lower is not None and lower == upper else None

    def may_name(self, file: DataFile, path: str) -> bool:
        """Whether the deletes may be for a data file, by the manifest alone."""
        if only := self.only_path(file):
            return only == path
        lower, upper = _bounds(file)
        encoded = path.encode()
        return (lower is None or lower <= encoded) and (upper is None or encoded <= upper)

    def named(self, file: DataFile) -> frozenset[str] | None:
        """All data files that the deletes are for; None: it cannot be told."""
        if only := self.only_path(file):
            return frozenset({only})
        if file.file_path not in self._named:
            self._named[file.file_path] = self._read(file)
        return self._named[file.file_path]

    def names(self, file: DataFile, path: str) -> bool:
        """Whether the deletes are for a data file, or that cannot be told."""
        if not self.may_name(file, path):
            return False
        named = self.named(file)
        return named is None or path in named

    def _read(self, file: DataFile) -> frozenset[str] | None:
        if file.file_format != FileFormat.PARQUET:
            return None
        found: set[str] = set()
        try:
            with self._io.new_input(file.file_path).open() as stream:
                batches = pq.ParquetFile(stream).iter_batches(columns=["file_path"])
                for batch in batches:
                    found.update(pc.unique(batch.column("file_path")).to_pylist())
        except (FileNotFoundError, KeyError, pa.ArrowInvalid):
            return None
        return frozenset(found)


def _bounds(file: DataFile) -> tuple[bytes | None, bytes | None]:
    """The smallest and greatest path, both perhaps cut off, in a way that keeps the order."""
    return (file.lower_bounds or {}).get(_PATH_ID), (file.upper_bounds or {}).get(_PATH_ID)
