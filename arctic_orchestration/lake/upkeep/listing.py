"""Lists the files below a table's location, and removes some of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlparse

import pyarrow.fs as pafs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.upkeep.reachable import literal_key

#: The keys under which fsspec's file systems store the time of a write.
_WRITTEN_AT = ("mtime", "LastModified", "last_modified", "updated")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in its store; the size in bytes."""

    #: in the form of the location
    path: str
    #: with slashes, relative to the location
    below: str
    size: int
    #: None: the store does not record when it was written
    written_at: datetime | None
    #: as `literal_key` returns it
    key: str


class Store:
    """The files below a location.

    Errors:
        LakeError: the table's file IO cannot list files.
    """

    def __init__(self, io: FileIO, location: str) -> None:
        self._location = location.rstrip("/")
        #: The files' names in the store, sizes and moments; functions to remove a file or a folder.
        self._list: Callable[[], Iterator[tuple[str, int, datetime | None]]]
        self._remove: Callable[[str], None]
        self._remove_tree: Callable[[str], None]
        if isinstance(io, PyArrowFileIO):
            self._use_pyarrow(io)
        elif hasattr(io, "_get_fs_from_uri"):
            # pyiceberg's other one; importing its class would need fsspec.
            self._use_fsspec(io)
        else:
            raise LakeError(
                f"{location}: got {type(io).__name__}, which cannot list files, "
                "expected pyiceberg's PyArrowFileIO or FsspecFileIO (py-io-impl)"
            )
        # Of a file in it, so that a location that is itself a link is followed.
        self.key = literal_key(f"{self._location}/file").removesuffix("/file")

    def list(self) -> Iterator[ListedFile]:
        """Yields all files, unordered; a missing location has none.

        Omits files that a link outside of the location leads to.

        Errors:
            LakeError: the store does not answer, or cannot list.
        """
        try:
            found = list(self._list())
        except (OSError, NotImplementedError) as error:
            raise LakeError(f"{self._location} cannot be listed: {error}") from error
        for name, size, written_at in found:
            below = name[len(self._root) :].lstrip("/")
            path = f"{self._location}/{below}"
            key = literal_key(path)
            if key.startswith(f"{self.key}/"):
                yield ListedFile(path, below, size, written_at, key)

    def remove(self, file: ListedFile) -> str | None:
        """Removes a file; returns why it failed, if so. A missing one counts as removed."""
        try:
            self._remove(f"{self._root}/{file.below}")
        except FileNotFoundError:
            return None
        except Exception as error:
            # Stores have errors of their own; the other files are still to be removed.
            return str(error) or type(error).__name__
        return None

    def remove_all(self) -> None:
        """Removes the location with its contents; a missing one is no error.

        Errors:
            LakeError: it cannot be removed.
        """
        try:
            self._remove_tree(self._root)
        except FileNotFoundError:
            return
        except Exception as error:
            raise LakeError(f"{self._location} cannot be removed: {error}") from error

    def _use_pyarrow(self, io: PyArrowFileIO) -> None:
        scheme, authority, path = io.parse_location(self._location, io.properties)
        files = io.fs_by_scheme(scheme, authority)
        self._root = path.rstrip("/")
        selector = pafs.FileSelector(self._root, allow_not_found=True, recursive=True)

        def listed() -> Iterator[tuple[str, int, datetime | None]]:
            for info in files.get_file_info(selector):
                if info.type == pafs.FileType.File:
                    yield info.path, info.size or 0, info.mtime

        self._list, self._remove = listed, files.delete_file
        self._remove_tree = files.delete_dir

    def _use_fsspec(self, io: Any) -> None:
        files = io._get_fs_from_uri(urlparse(self._location), self._location)
        self._root = str(files._strip_protocol(self._location)).rstrip("/")

        def listed() -> Iterator[tuple[str, int, datetime | None]]:
            for name, info in files.find(self._root, detail=True).items():
                yield name, info.get("size") or 0, _written_at(info)

        self._list, self._remove = listed, files.rm_file
        self._remove_tree = lambda path: files.rm(path, recursive=True)


def _written_at(info: Mapping[str, Any]) -> datetime | None:
    found = next((info[name] for name in _WRITTEN_AT if info.get(name) is not None), None)
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    if isinstance(found, int | float):
        return datetime.fromtimestamp(found, UTC)
    if not isinstance(found, datetime):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
