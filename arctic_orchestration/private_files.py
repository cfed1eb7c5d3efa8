"""Files that only their owner may read and write, whatever the umask: state, logs and locks.

They contain run configuration, metadata and addresses.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

_MODE = 0o600
_OF_OTHERS = 0o066


def make(path: str | Path) -> None:
    """Creates an empty file with mode 0600; leaves an existing one unchanged.

    Errors:
        OSError: it cannot be created.
    """
    # For a dangling link, the file is created at its target.
    file = Path(path).resolve()
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE)
    except FileExistsError:
        return
    try:
        # The umask may also restrict the owner.
        os.fchmod(descriptor, _MODE)
    finally:
        os.close(descriptor)


def opened(path: Path, mode: str) -> IO[Any]:
    """Opens a file to write or append; a missing one is created with mode 0600."""
    make(path)
    return path.open(mode)


def exposed(paths: "list[Path]") -> list[Path]:
    """Returns the files among some that others than their owner may read or write."""
    found = []
    for path in paths:
        with suppress(OSError):
            if path.stat().st_mode & _OF_OTHERS:
                found.append(path)
    return found
