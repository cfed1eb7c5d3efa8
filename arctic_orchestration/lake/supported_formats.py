"""Refuses tables by their format, before anything is read or written."""

import json
from typing import Any

from pyiceberg.serializers import Compressor
from pyiceberg.table import Table

from arctic_orchestration.errors import LakeError, UnsupportedTable
from arctic_orchestration.lake.row_lineage import FIRST_VERSION, reserved_names

_NEWEST = 3
_ENCRYPTION_KEY = "encryption.key-id"
#: What the metadata of an encrypted table have, which pyiceberg would drop.
_ENCRYPTION_KEYS = "encryption-keys"


def require_supported_format(version: int, table: str) -> None:
    """Refuses format versions that are unknown here.

    Errors:
        UnsupportedTable: the version is newer than 3.
    """
    if version > _NEWEST:
        raise UnsupportedTable(f"{table}: got format version {version}, expected 1, 2 or 3")


def require_supported_metadata(table: Table) -> None:
    """Refuses format versions, and what a commit of pyiceberg would lose of a table's metadata.

    Errors:
        UnsupportedTable: the version is newer than 3, the table is encrypted, or a column has a
            name that format 3 reserves.
        LakeError: the metadata of a table of format 3 cannot be read.
    """
    name = ".".join(table.name())
    require_supported_format(table.format_version, name)
    if table.format_version < FIRST_VERSION:
        return
    if reserved := reserved_names(table.schema()):
        raise UnsupportedTable(f"{name}: column {reserved[0]}: format 3 reserves its name")
    if table.properties.get(_ENCRYPTION_KEY):
        raise UnsupportedTable(f"{name}: property {_ENCRYPTION_KEY}: it is encrypted")
    if _written_metadata(table).get(_ENCRYPTION_KEYS):
        raise UnsupportedTable(f"{name}: it has {_ENCRYPTION_KEYS}, which are not supported")


def _written_metadata(table: Table) -> dict[str, Any]:
    location = table.metadata_location
    try:
        with table.io.new_input(location).open() as stream:
            decompressor = Compressor.get_compressor(location).stream_decompressor(stream)
            with decompressor as content:
                found: dict[str, Any] = json.loads(content.read())
    except (OSError, ValueError) as error:
        raise LakeError(f"{location} cannot be read: {error}") from error
    return found
