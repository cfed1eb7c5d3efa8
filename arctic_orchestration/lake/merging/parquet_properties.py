"""The table properties for its Parquet files."""

from pyiceberg.table import Table, TableProperties

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.lake.table_properties import int_property

_GREATEST_ZSTD_LEVEL = 22


def row_group_bytes(table: Table) -> int | None:
    """Returns the size of a row group; None: the property is not set.

    Errors:
        InvalidInput: it is not a positive number.
    """
    key = TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES
    return _number(table, key, "a number of bytes above zero", 1 << 62)


def zstd_level(table: Table) -> int | None:
    """Returns the compression level; None: the property is not set, or is for another codec.

    Errors:
        InvalidInput: it is not a zstd level.
    """
    codec = table.properties.get(TableProperties.PARQUET_COMPRESSION, "zstd")
    if codec.lower() != "zstd":
        return None
    key = TableProperties.PARQUET_COMPRESSION_LEVEL
    return _number(table, key, "a level of zstd, 1 to 22", _GREATEST_ZSTD_LEVEL)


def _number(table: Table, key: str, expected: str, greatest: int) -> int | None:
    if key not in table.properties:
        return None
    value = int_property(table.properties, key, expected=expected)
    if value is None:
        return None
    if not 1 <= value <= greatest:
        raise InvalidInput(key, table.properties[key], expected)
    return value
