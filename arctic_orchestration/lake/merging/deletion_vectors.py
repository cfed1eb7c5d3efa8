"""Reads deletion vectors: bitmaps of the deleted positions of one data file each.

A vector is a part of a Puffin file, which may contain those of several data files; only this part
is read. It is ``length, magic, bitmap, checksum``, as Iceberg's specification of Puffin files
defines it; pyiceberg reads the bitmap.
"""

import zlib

import numpy as np
import numpy.typing as npt
from pyiceberg.io import FileIO
from pyiceberg.table.deletion_vector import DeletionVector

from arctic_orchestration.errors import LakeError
from arctic_orchestration.lake.file_groups import DeleteFile
from arctic_orchestration.lake.s3_retries import open_input

_MAGIC = bytes.fromhex("d1d33964")
#: the bytes of the length, which is that of magic and bitmap, and of the checksum
_LENGTH, _CHECKSUM = 4, 4


def vector_positions(io: FileIO, path: str, delete: DeleteFile) -> npt.NDArray[np.int64]:
    """Returns the deleted positions, in ascending order.

    Args:
        path: of the Puffin file, as ``io`` opens it.

    Errors:
        LakeError: the file is missing, the vector is broken, or it has not as many positions as the
            table records.
    """
    bitmap = _bitmap(_content(io, path, delete), delete)
    try:
        parts = DeletionVector._deserialize_bitmap(bitmap)
    except (ValueError, IndexError) as error:
        raise LakeError(f"{delete.path}: a broken deletion vector: {error}") from error
    found = [
        np.asarray(part.to_array(), np.int64) + (number << 32) for number, part in enumerate(parts)
    ]
    positions = np.concatenate(found) if found else np.empty(0, np.int64)
    if len(positions) != delete.rows:
        raise LakeError(
            f"{delete.path} has {len(positions)} deletes of {delete.referenced}, "
            f"the table knows of {delete.rows}"
        )
    return positions


def _content(io: FileIO, path: str, delete: DeleteFile) -> bytes:
    assert delete.offset is not None
    try:
        with open_input(io, path) as stream:
            stream.seek(delete.offset)
            return bytes(stream.read(delete.size))
    except OSError as error:
        raise LakeError(f"{delete.path} cannot be read: {error}") from error


def _bitmap(content: bytes, delete: DeleteFile) -> bytes:
    inside = content[_LENGTH:-_CHECKSUM]
    length = int.from_bytes(content[:_LENGTH], "big")
    checksum = int.from_bytes(content[-_CHECKSUM:], "big")
    if len(content) != delete.size or length != len(inside) or not inside.startswith(_MAGIC):
        raise LakeError(f"{delete.path} has no deletion vector at {delete.offset}")
    if zlib.crc32(inside) != checksum:
        raise LakeError(f"{delete.path}: a broken deletion vector: its checksum differs")
    return inside[len(_MAGIC) :]
