"""Tables whose files are wherever their catalog puts them: their groups, merges and objects."""

from typing import Any

import pyarrow.parquet as pq
from pyarrow.fs import FileSelector
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging.merge import Merged, merge
from arctic_orchestration.lake.replacing.replace import Replacement, replace_files
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration_tests.object_store import BUCKET


def group_of(table: Table) -> FileGroup:
    """All live files of an unpartitioned table."""
    live = live_files(table.refresh())
    assert live.snapshot_id is not None
    return FileGroup(
        snapshot_id=live.snapshot_id,
        sequence_number=live.sequence_number,
        spec_id=0,
        files=tuple(sorted(live.files, key=lambda file: file.path)),
    )


def merged(spark: SparkSession, table: Table, group: FileGroup, **more: Any) -> Merged:
    """Merges into a directory of the table, as a worker does."""
    directory = table.location_provider().new_data_location("compaction-attempt-1")
    return merge(spark, table, group, directory, target_bytes=1 << 30, **more)


def replacement(group: FileGroup, done: Merged, name: str = "one") -> Replacement:
    """What a committer makes of a merge."""
    outputs = tuple(output.path for output in done.outputs)
    return Replacement(id=name, group=group, outputs=outputs, rows_deleted=done.rows_deleted)


def replaced(table: Table, group: FileGroup, done: Merged, name: str = "one") -> None:
    """Commits a merge."""
    assert replace_files(table, [replacement(group, done, name)]).committed == (name,)


def data_files(table: Table) -> int:
    return len(live_files(table.refresh()).files)


def objects(catalog: Catalog) -> set[str]:
    """The keys of all objects below the warehouse, but for those that stand for folders."""
    files = PyArrowFileIO(catalog.properties).fs_by_scheme("s3", BUCKET)
    below = catalog.properties["warehouse"].removeprefix("s3://")
    found = files.get_file_info(FileSelector(below, recursive=True))
    return {info.path for info in found if info.is_file}


def rewritten(catalog: Catalog, name: str) -> Replacement:
    """A merge of all files of an unpartitioned table by pyarrow."""
    table = load_table(catalog, name)
    group = group_of(table)
    output = f"{table.location()}/data/compaction-one/merged.parquet"
    rows = table.scan().to_arrow().cast(schema_to_pyarrow(table.schema()))
    with table.io.new_output(output).create(overwrite=True) as stream:
        pq.write_table(rows, stream)
    return Replacement(id="one", group=group, outputs=(output,), rows_deleted=0)


def ids_at(table: Table, path: str, positions: list[int]) -> set[int]:
    """The ids of a data file's rows, as pyarrow reads them."""
    with table.io.new_input(path).open() as stream:
        ids = pq.ParquetFile(stream).read()["id"].to_pylist()
    return {ids[one] for one in positions}
