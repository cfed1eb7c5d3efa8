"""Why a file cannot be read: because of the file, or the storage."""

from enum import StrEnum

from pyiceberg.io import FileIO

#: a footer is among the last bytes
_TAIL_BYTES = 1 << 20
#: The storage's errors about one file; it answers for others.
_OF_THE_FILE = (PermissionError, IsADirectoryError, NotADirectoryError)


class Why(StrEnum):
    """The cause of a failed read."""

    #: the file does not exist
    MISSING = "missing"
    #: its bytes exist, and are invalid
    BROKEN = "broken"
    #: this file cannot be opened or read, and others can
    CLOSED = "closed"
    #: other files cannot be read either
    STORAGE = "storage"


def why_unreadable(io: FileIO, path: str, error: OSError, *, others: tuple[str, ...]) -> Why:
    """Determines the cause by reading some bytes: errors of Parquet and of the storage look alike.

    Args:
        path: the file that could not be read, with ``error``.
        others: paths of files that are readable if the storage answers; one is sufficient.
    """
    if isinstance(error, FileNotFoundError):
        return Why.MISSING
    if _can_be_read(io, path):
        return Why.BROKEN
    if isinstance(error, _OF_THE_FILE) or any(_can_be_read(io, other) for other in others):
        return Why.CLOSED
    return Why.STORAGE


def _can_be_read(io: FileIO, path: str) -> bool:
    try:
        with io.new_input(path).open() as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL_BYTES))
            stream.read(_TAIL_BYTES)
    except OSError:
        return False
    return True
