"""Groups of files as a plan would name them, delete files beside them, and what a merge wrote.

A group says all itself, so that its files are written but never committed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from arctic_orchestration.lake.file_groups import DeleteFile, DeleteKind, FileGroup, LiveFile
from arctic_orchestration.lake.merging.deletes import plain_path
from arctic_orchestration.lake.merging.merge import Engine, Merged, merge
from arctic_orchestration.lake.merging.strategy import Way

POSITION_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)


def fill(table: Table, *files: Sequence[Mapping[str, Any]]) -> None:
    """Writes one data file for each list of rows, with the table's columns as they are now."""
    schema = schema_to_pyarrow(table.refresh().schema())
    directory = Path(plain_path(table.location())) / "data"
    directory.mkdir(parents=True, exist_ok=True)
    for rows in files:
        number = len(list(directory.glob("written-*.parquet")))
        written = pa.Table.from_pylist(list(rows), schema)
        pq.write_table(written, directory / f"written-{number:04}.parquet")


def group_of(table: Table) -> FileGroup:
    """All files that were written, in their order, without deletes."""
    directory = f"{table.location()}/data"
    paths = sorted(Path(plain_path(directory)).glob("written-*.parquet"))
    files = tuple(
        LiveFile(
            path=f"{directory}/{path.name}",
            size=path.stat().st_size,
            rows=pq.read_metadata(path).num_rows,
            sequence_number=number,
            spec_id=table.spec().spec_id,
        )
        for number, path in enumerate(paths, 1)
    )
    return FileGroup(
        snapshot_id=1, sequence_number=len(files), spec_id=table.spec().spec_id, files=files
    )


def with_deletes(group: FileGroup, deletes: Mapping[int, Sequence[DeleteFile]]) -> FileGroup:
    """The group in which some files, by their places, have deletes."""
    files = list(group.files)
    for place, some in deletes.items():
        files[place] = replace(files[place], deletes=(*files[place].deletes, *some))
    return replace(group, files=tuple(files))


def position_delete(path: Path, pairs: Sequence[tuple[str, int]], sequence: int = 9) -> DeleteFile:
    """Writes pairs of a data file's path and a position in it."""
    columns = {"file_path": [one for one, _ in pairs], "pos": [number for _, number in pairs]}
    pq.write_table(pa.table(columns, POSITION_SCHEMA), path)
    return DeleteFile(
        path=str(path),
        kind=DeleteKind.POSITION,
        size=path.stat().st_size,
        rows=len(pairs),
        sequence_number=sequence,
    )


def equality_delete(
    path: Path, table: Table, names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> DeleteFile:
    """Writes values of columns, as the table calls them now; a dot leads into a struct."""
    schema = table.refresh().schema()
    ids = [schema.find_field(name).field_id for name in names]
    narrow = schema.select(*names)
    values = [_nested(dict(zip(names, row, strict=True))) for row in rows]
    pq.write_table(pa.Table.from_pylist(values, schema_to_pyarrow(narrow)), path)
    return DeleteFile(
        path=str(path),
        kind=DeleteKind.EQUALITY,
        size=path.stat().st_size,
        rows=len(rows),
        sequence_number=9,
        equality_ids=tuple(ids),
    )


def _nested(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        first, _, rest = name.partition(".")
        if rest:
            found.setdefault(first, {})[rest] = value
        else:
            found[first] = value
    return {
        name: _nested(value) if isinstance(value, dict) else value for name, value in found.items()
    }


def merged(
    spark: SparkSession,
    table: Table,
    group: FileGroup,
    *,
    target_bytes: int = 1 << 30,
    way: Way | None = Way.DECODE,
    engine: Engine | None = None,
) -> Merged:
    """Merges into a directory of the table, as a worker does."""
    directory = table.location_provider().new_data_location("compaction-attempt-1")
    return merge(spark, table, group, directory, target_bytes=target_bytes, way=way, engine=engine)


def rows_of(done: Merged) -> list[dict[str, Any]]:
    """The rows of the outputs in their order, read by pyarrow; maps as mappings."""
    found = []
    for output in done.outputs:
        rows = pq.ParquetFile(plain_path(output.path)).read()
        for row in rows.to_pylist():
            kinds = ((field.name, field.type) for field in rows.schema)
            found.append({name: plain(row[name], kind) for name, kind in kinds})
    return found


def plain(value: Any, kind: pa.DataType) -> Any:
    """A map is a list of pairs to pyarrow, and becomes a mapping: it has no order."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: plain(one, kind.item_type) for key, one in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [plain(one, kind.value_type) for one in value]
    return value


def numbered(*files: list[int]) -> list[list[dict[str, Any]]]:
    """Rows that have nothing but an id."""
    return [[{"id": number} for number in numbers] for numbers in files]


def ids(done: Any) -> list[Any]:
    return [row["id"] for row in rows_of(done)]
