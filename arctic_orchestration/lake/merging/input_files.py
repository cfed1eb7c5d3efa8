"""Refuses files that Spark would misread, before it reads them.

Where a column has no field id, Spark and other readers silently return nulls. A merge would write
these nulls.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from arctic_orchestration.errors import LakeError, UnsupportedFile
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.merging.deletes import EqualityChain, plain_path
from arctic_orchestration.lake.merging.row_groups import Footer, FooterUnreadable, read_footers


def require_readable(
    table: Table, group: FileGroup, chains: Sequence[EqualityChain]
) -> Mapping[str, frozenset[int]]:
    """Reads the footers of the group's files and of its equality deletes.

    Returns the columns with a default value that each data file lacks, by its path.

    Errors:
        UnsupportedFile: a file is not Parquet, is encrypted, lacks field ids, omits a column
            because it is a partition's value, or lacks a field with a default value in a struct.
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
    implied = {
        field.source_id
        for field in table.specs()[group.spec_id].fields
        if isinstance(field.transform, IdentityTransform)
    }
    defaults = {
        field_id for field_id, field in _fields_by_id(table) if field.initial_default is not None
    }
    columns = {field.field_id for field in table.schema().fields}
    lacking = {}
    for file, footer in zip(group.files, _footers(table, paths), strict=True):
        ids = _field_ids(footer, name)
        if missing := implied - ids:
            raise UnsupportedFile(
                f"{name}: {file.path} leaves out field {min(missing)}, whose value is the "
                "partition's"
            )
        if inside := defaults - columns - ids:
            raise UnsupportedFile(
                f"{name}: {file.path} lacks field {min(inside)}, and default values inside of "
                "columns are not supported"
            )
        lacking[file.path] = frozenset(defaults - ids)
        _require_rows(footer, file.rows, name)
    deletes = {delete.path: (delete, chain) for chain in chains for delete in chain.deletes}
    for footer, (delete, chain) in zip(_footers(table, deletes), deletes.values(), strict=True):
        if missing := set(chain.field_ids) - _field_ids(footer, name):
            raise LakeError(f"{name}: {delete.path} lacks field {min(missing)}, which it compares")
        _require_rows(footer, delete.rows, name)
    return lacking


def _fields_by_id(table: Table) -> Iterable[tuple[int, NestedField]]:
    return table.schema()._lazy_id_to_field.items()


def _footers(table: Table, paths: Collection[str]) -> list[Footer]:
    try:
        # As plain paths: pyiceberg cuts a URL at a `?` or a `#`.
        return read_footers(table.io, map(plain_path, paths))
    except FooterUnreadable as error:
        raise UnsupportedFile(f"{'.'.join(table.name())}: {error}") from error


def _require_rows(footer: Footer, expected: int, table: str) -> None:
    if footer.metadata.num_rows != expected:
        raise LakeError(
            f"{table}: {footer.path} has {footer.metadata.num_rows} rows, "
            f"the table knows of {expected}"
        )


def _field_ids(footer: Footer, table: str) -> set[int]:
    fields = list(_fields(footer.metadata.schema.to_arrow_schema(), ""))
    nameless = [path for path, field_id in fields if field_id is None]
    if nameless:
        raise UnsupportedFile(f"{table}: {footer.path} has no field ids for {nameless}")
    return {field_id for _, field_id in fields if field_id is not None}


def _fields(parent: pa.Schema | pa.StructType, path: str) -> Iterator[tuple[str, int | None]]:
    """Yields the columns and the fields of structs; elements, keys and values need no ids."""
    for field in parent:
        here = f"{path}{field.name}"
        found = (field.metadata or {}).get(b"PARQUET:field_id")
        yield here, None if found is None else int(found)
        yield from _inside(field.type, here)


def _inside(kind: pa.DataType, path: str) -> Iterator[tuple[str, int | None]]:
    if pa.types.is_struct(kind):
        yield from _fields(kind, f"{path}.")
    elif pa.types.is_map(kind):
        yield from _inside(kind.key_type, f"{path}.key")
        yield from _inside(kind.item_type, f"{path}.value")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _inside(kind.value_type, f"{path}.element")
