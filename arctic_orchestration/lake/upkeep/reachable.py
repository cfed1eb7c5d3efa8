"""The files that the metadata of a table knows, in any form of their paths.

One file may be written ``/a b/c``, ``file:///a b/c`` or ``file:/a%20b/c``. If a path is ambiguous,
all of its meanings are known: rather a file too many stays than one too few.
"""

import os
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from urllib.parse import unquote

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from arctic_orchestration.lake.manifests import read_entries, snapshot_manifests

#: A scheme has at least two letters; one letter is a drive.
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?://(?P<authority>[^/]*))?(?P<path>.*)")
_SLASHES = re.compile("/+")


def literal_key(path: str) -> str:
    """Returns a key that is equal for all forms of a path to one file, if no character is encoded.

    It contains neither scheme nor authority: ``s3`` and ``s3a`` are one store. Links and ``..`` in
    local directories are resolved.
    """
    found = _URL.fullmatch(path)
    if found is None or found["scheme"].lower() == "file":
        path = path if found is None else found["path"]
        directory, name = os.path.split(os.path.abspath(path))
        return os.path.join(_real(directory), name)
    return _SLASHES.sub("/", "/" + found["path"])


def keys_of(path: str) -> frozenset[str]:
    """Returns the keys of all files that a path in a table's metadata may mean."""
    forms = {path}
    if _URL.fullmatch(path):
        # Hadoop encodes some paths, and pyiceberg cuts a URL where a query would begin.
        forms |= {unquote(path), re.split("[?#]", path, maxsplit=1)[0]}
    return frozenset(literal_key(form) for form in forms)


class KnownFiles:
    """Files by their paths; it contains a path that may mean one of the files."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def add(self, path: str) -> None:
        self._keys |= keys_of(path)

    def has_key(self, key: str) -> bool:
        return key in self._keys

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and not self._keys.isdisjoint(keys_of(path))


class Reachable:
    """All files that tables know; a manifest of several snapshots is read once."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self.files = KnownFiles()
        self._lists: set[str] = set()
        self._manifests: set[str] = set()

    def add(self, metadata: TableMetadata, *, without: Collection[int] = ()) -> None:
        """Adds the files of the snapshots, with or without a ref.

        Args:
            without: ids of snapshots that are omitted, with their statistics.

        Errors:
            LakeError: a manifest cannot be read.
        """
        for path in metadata_files(metadata):
            self.files.add(path)
        for statistics in (*metadata.statistics, *metadata.partition_statistics):
            if statistics.snapshot_id not in without:
                self.files.add(statistics.statistics_path)
        for snapshot in metadata.snapshots:
            if snapshot.snapshot_id not in without:
                self._add_snapshot(snapshot)

    def _add_snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.manifest_list in self._lists:
            return
        for manifest in snapshot_manifests(self._io, snapshot):
            if manifest.manifest_path not in self._manifests:
                self._add_manifest(manifest)
        self.files.add(snapshot.manifest_list)
        self._lists.add(snapshot.manifest_list)

    def _add_manifest(self, manifest: ManifestFile) -> None:
        for entry in read_entries(self._io, manifest):
            self.files.add(entry.data_file.file_path)
        self.files.add(manifest.manifest_path)
        self._manifests.add(manifest.manifest_path)


def metadata_files(metadata: TableMetadata) -> Iterator[str]:
    """Yields the older metadata files in the metadata; its own path is not included."""
    for entry in metadata.metadata_log:
        yield entry.metadata_file


@lru_cache(maxsize=16384)
def _real(directory: str) -> str:
    try:
        return os.path.realpath(directory)
    except ValueError:
        # No file system has such a path, which anybody may set as a table's property.
        return directory
