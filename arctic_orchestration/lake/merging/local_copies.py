"""Copies of files on a local disk, for what only works on local files; removed afterwards.

They lie in the temporary folder of the process (``TMPDIR``), twice the bytes of one output for each
merge in progress. A killed process leaves its folder; the next one on the machine that makes copies
removes it.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyiceberg.io import FileIO

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.merging.deletes import plain_path
from arctic_orchestration.lake.s3_retries import open_input
from arctic_orchestration.quantities import format_bytes

_PREFIX = f"arctic-copies-{os.getuid()}-"
_LOCK = "in-use"
_FILES_AT_ONCE = 8
_CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class LocalCopies:
    """Local copies of files, and the place of a local output."""

    sources: tuple[str, ...]
    output: str
    _io: FileIO

    def publish(self, path: str) -> None:
        """Copies the output to its path in the store, which has it whole or not at all.

        Errors:
            LakeError: it cannot be read or written.
        """
        try:
            with (
                open(self.output, "rb") as source,
                self._io.new_output(path).create(overwrite=True) as target,
            ):
                shutil.copyfileobj(source, target, _CHUNK_BYTES)
        except OSError as error:
            raise LakeError(f"{path} cannot be written: {error}") from error


@contextmanager
def local_copies(io: FileIO, paths: Sequence[str], size: int) -> Iterator[LocalCopies]:
    """Yields copies of the files in a new folder, which is removed at the end of the block.

    Args:
        size: the bytes of the files together; as much is needed for the output.

    Errors:
        LakeError: a file cannot be read, or the disk has not enough space.
    """
    with _folder() as folder:
        free = shutil.disk_usage(folder).free
        if free < 2 * size:
            raise LakeError(
                f"{folder.parent} has {format_bytes(free)} free, expected {format_bytes(2 * size)} "
                "for copies of the files and their output: make space, or set TMPDIR"
            )
        targets = [folder / f"input-{number:05}.parquet" for number in range(len(paths))]
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            list(pool.map(partial(_download, io), paths, targets))
        output = folder / "output.parquet"
        yield LocalCopies(sources=tuple(map(str, targets)), output=str(output), _io=io)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with open(folder / f"{_LOCK}-soon", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Under its name, it is locked from the first moment.
            os.rename(lock.name, folder / _LOCK)
            _remove_abandoned(folder.parent, folder)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path, own: Path) -> None:
    """Removes the folders of processes that have ended: the lock of a file ends with its process.

    A folder without a lock file is being made.
    """
    for folder in parent.glob(f"{_PREFIX}*"):
        if folder == own:
            continue
        with suppress(OSError), open(folder / _LOCK, "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def _download(io: FileIO, path: str, target: Path) -> None:
    try:
        with open_input(io, plain_path(path)) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, _CHUNK_BYTES)
    except OSError as error:
        raise LakeError(f"{path} cannot be copied to {target.parent}: {error}") from error
