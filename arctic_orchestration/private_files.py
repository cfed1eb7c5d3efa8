"""Files that only their owner may read and write, whatever the umask: state, logs and locks.

Run configuration, metadata and addresses are in them.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

_MODE = 0o600
_OF_OTHERS = 0o066


def make(path: str | Path) -> None:
    """Makes an empty file with mode 0600; one that is there is left as it is.

    Errors:
        OSError: it cannot be made.
    """
    # Of a link that leads nowhere, the file is made where it leads.
    file = Path(path).resolve()
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE)
    except FileExistsError:
        return
    try:
        # The umask may have taken away from the owner, too.
        os.fchmod(descriptor, _MODE)
    finally:
        os.close(descriptor)


def opened(path: Path, mode: str) -> IO[Any]:
    """Opens a file to write or append, made with mode 0600 where there is none."""
    make(path)
    return path.open(mode)


def exposed(paths: "list[Path]") -> list[Path]:
    """Those of some files that others than their owner may read or write."""
    found = []
    for path in paths:
        with suppress(OSError):
            if path.stat().st_mode & _OF_OTHERS:
                found.append(path)
    return found
