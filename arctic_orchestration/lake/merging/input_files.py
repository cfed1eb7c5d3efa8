"""Refuses files that would be misread, before they are read; finds what they leave out.

Where a column has no field id, Spark and other readers silently return nulls. A merge would write
these nulls. The table's name mapping identifies the columns of files that have no field ids at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from arctic_orchestration.errors import LakeError, UnsupportedFile
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.merging.deletes import EqualityChain, plain_path
from arctic_orchestration.lake.merging.partition_values import UNKNOWN, partition_values
from arctic_orchestration.lake.merging.row_groups import Footer, FooterUnreadable, read_footers
from arctic_orchestration.lake.merging.wider_schema import with_dropped
from arctic_orchestration.lake.name_mapping import PROPERTY, Names, fields_of, has_ids, names_of


@dataclass(frozen=True, kw_only=True)
class Readable:
    """What the files of a group need when they are read."""

    #: the table's, with the dropped columns that equality deletes compare
    schema: Schema
    #: the ids of columns with a known value that each file leaves out, by its path
    lacking: Mapping[str, frozenset[int]]
    #: the values of these columns: the partition's, or the default
    values: Mapping[int, Any]
    #: the number of files without field ids, and what their names stand for
    nameless: int = 0
    names: Names | None = None


def require_readable(
    table: Table,
    group: FileGroup,
    chains: Sequence[EqualityChain],
    footers: Mapping[str, Footer] | None = None,
) -> Readable:
    """Reads the footers of the group's files and of its equality deletes.

    Args:
        footers: all of them by path, if they were read.

    Errors:
        InvalidInput: the table's name mapping is invalid.
        UnsupportedFile: a file is not Parquet, is encrypted, lacks field ids or names that stand
            for them, omits a column whose partition value is unknown, or lacks a field with a
            default value or a partition's value in a struct.
        LakeError: a file is missing, is listed twice, or has another number of rows than the table
            records.
    """
    name = ".".join(table.name())
    paths = [file.path for file in group.files]
    if not paths or len(set(map(plain_path, paths))) != len(paths):
        raise LakeError(f"{name}: a group of no files, or with one of them twice: {paths}")
    for file in group.files:
        if file.file_format.lower() != "parquet":
            raise UnsupportedFile(f"{name}: {file.path} is {file.file_format}, expected Parquet")
    names = names_of(table)
    implied = partition_values(table, group)
    compared = {field_id for chain in chains for field_id in chain.field_ids}
    schema = with_dropped(table, compared)
    fields = schema._lazy_id_to_field
    defaults = {
        field_id: field.initial_default
        for field_id, field in fields.items()
        if field.initial_default is not None
    }
    columns = {field.field_id for field in schema.fields}
    lacking, nameless = {}, 0
    deletes = {delete.path: (delete, chain) for chain in chains for delete in chain.deletes}
    if footers is None:
        footers = _footers(table, [*paths, *deletes])
    for file in group.files:
        footer = footers[file.path]
        ids = _field_ids(footer, name, names)
        nameless += not has_ids(footer.metadata.schema.to_arrow_schema())
        for missing in sorted(implied.keys() & fields.keys() - ids):
            if missing not in columns or implied[missing] is UNKNOWN:
                raise UnsupportedFile(
                    f"{name}: {file.path} leaves out field {missing}, whose value is the "
                    "partition's"
                )
        if inside := defaults.keys() - columns - ids:
            raise UnsupportedFile(
                f"{name}: {file.path} lacks field {min(inside)}, and default values inside of "
                "columns are not supported"
            )
        lacking[file.path] = frozenset((defaults.keys() | implied.keys()) & columns - ids)
        _require_rows(footer, file.rows, name)
    for delete, chain in deletes.values():
        footer = footers[delete.path]
        if absent := set(chain.field_ids) - _field_ids(footer, name, None):
            raise LakeError(f"{name}: {delete.path} lacks field {min(absent)}, which it compares")
        _require_rows(footer, delete.rows, name)
    return Readable(
        schema=schema,
        lacking=lacking,
        values={**defaults, **implied},
        nameless=nameless,
        names=names,
    )


def _footers(table: Table, paths: Sequence[str]) -> dict[str, Footer]:
    try:
        # As plain paths: pyiceberg cuts a URL at a `?` or a `#`.
        found = read_footers(table.io, map(plain_path, paths))
        return dict(zip(paths, found, strict=True))
    except FooterUnreadable as error:
        raise UnsupportedFile(f"{'.'.join(table.name())}: {error}") from error


def _require_rows(footer: Footer, expected: int, table: str) -> None:
    if footer.metadata.num_rows != expected:
        raise LakeError(
            f"{table}: {footer.path} has {footer.metadata.num_rows} rows, "
            f"the table knows of {expected}"
        )


def _field_ids(footer: Footer, table: str, names: Names | None) -> set[int]:
    schema = footer.metadata.schema.to_arrow_schema()
    if names is None or has_ids(schema):
        fields = list(fields_of(schema))
        nameless = [path for path, field_id in fields if field_id is None]
        if nameless:
            advice = "" if names else f", and the table no property {PROPERTY}"
            raise UnsupportedFile(f"{table}: {footer.path} has no field ids for {nameless}{advice}")
        return {field_id for _, field_id in fields if field_id is not None}
    found: dict[int, str] = {}
    for path, field_id in fields_of(schema, names):
        if field_id is not None and field_id in found:
            raise UnsupportedFile(
                f"{table}: {footer.path} has {found[field_id]} and {path}, expected one of them: "
                f"both are field {field_id} in {PROPERTY}"
            )
        if field_id is not None:
            found[field_id] = path
    if not found:
        raise UnsupportedFile(f"{table}: {footer.path} has no column that {PROPERTY} names")
    return set(found)
