"""Iceberg's own properties of a table: those that are numbers or switches."""

from collections.abc import Mapping

from pyiceberg.table import TableProperties
from pyiceberg.utils.properties import property_as_bool, property_as_int

from arctic_orchestration.errors import InvalidInput


def int_property(
    properties: Mapping[str, str],
    key: str,
    default: int | None = None,
    *,
    expected: str = "a whole number",
) -> int | None:
    """Returns a number.

    Errors:
        InvalidInput: it is none.
    """
    try:
        return property_as_int(dict(properties), key, default)
    except ValueError as error:
        raise InvalidInput(key, properties[key], expected) from error


def bool_property(properties: Mapping[str, str], key: str, default: bool) -> bool:
    """Returns a switch.

    Errors:
        InvalidInput: it is none.
    """
    try:
        return property_as_bool(dict(properties), key, default)
    except ValueError as error:
        raise InvalidInput(key, properties[key], "true or false") from error


def require_commit_properties(properties: Mapping[str, str]) -> None:
    """Refuses properties that no commit could read.

    Errors:
        InvalidInput: names the property.
    """
    int_property(properties, TableProperties.MANIFEST_TARGET_SIZE_BYTES)
    int_property(properties, TableProperties.WRITE_PARTITION_SUMMARY_LIMIT)
