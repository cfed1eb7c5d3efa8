"""What pyiceberg does for each operation on a table, done once in a process.

Each look at the metadata of a transaction copies all of it. For each manifest and each list of them
its schema is parsed and a reader is made for it, though these files are alike. That was two thirds
of what a process costs that writes to tables. Other kinds of transactions stay as they are: the
library's own has a test that counts its copies.
"""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.avro import file as avro_file
from pyiceberg.avro.file import AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

_SCHEMA = "avro.schema"
_SCHEMAS = 1_000
_copied: Callable[[Transaction], TableMetadata] = vars(Transaction)["table_metadata"].fget


def put_in_place() -> None:
    """From here on, in this process and in those that are forked from it."""
    module: Any = avro_file
    for owner, name, value in (
        (Transaction, "table_metadata", property(_metadata)),
        (AvroFileHeader, "get_schema", _schema_of),
        (module, "resolve_reader", _reader),
        (module, "construct_reader", _own_reader),
    ):
        assert hasattr(owner, name), f"{owner} has no {name} any more"
        setattr(owner, name, value)


def _metadata(transaction: Transaction) -> TableMetadata:
    """Until the transaction has another table or more updates."""
    table, updates = transaction._table.metadata, transaction._updates
    if type(transaction) is not Transaction:
        return _copied(transaction)
    kept = vars(transaction).get("_kept")
    if kept is None or kept[0] is not table or kept[1] is not updates:
        kept = vars(transaction)["_kept"] = table, updates, _copied(transaction)
    metadata: TableMetadata = kept[2]
    return metadata


def _schema_of(header: AvroFileHeader) -> Schema:
    return _schema(header.meta[_SCHEMA])


@functools.lru_cache(_SCHEMAS)
def _schema(text: str) -> Schema:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(text))


def _own_reader(schema: Schema, types: Mapping[int, Any]) -> Reader:
    return _reader(schema, schema, types, {})


def _reader(
    schema: Schema, wanted: Schema, types: Mapping[int, Any], enums: Mapping[int, Any]
) -> Reader:
    return _resolved(_Same(schema), _Same(wanted), tuple(types.items()), tuple(enums.items()))


class _Same:
    """A schema as a key, which cannot be hashed: equal to itself alone."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.schema is other.schema

    def __hash__(self) -> int:
        return id(self.schema)


@functools.lru_cache(_SCHEMAS)
def _resolved(
    schema: _Same, wanted: _Same, types: tuple[Any, ...], enums: tuple[Any, ...]
) -> Reader:
    return resolve_reader(schema.schema, wanted.schema, dict(types), dict(enums))
