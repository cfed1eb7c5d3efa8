"""Tables on S3, by pyiceberg's configuration alone: made, filled, read, merged, committed, cleaned.

Spark has no file system for S3 here, as PySpark is installed.
"""

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import SparkSession

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.run_once import compact_now, offer_now
from arctic_orchestration.lake import append, ensure_table, open_catalog, read
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging.merge import Engine, Merged, merge
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots, remove_orphans
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import rows_of, table_of
from arctic_orchestration_tests.compaction.stored import opened
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.delete_writer import (
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.random_tables import SCHEMA
from arctic_orchestration_tests.lake.stored_tables import (
    data_files,
    group_of,
    ids_at,
    merged,
    objects,
    replaced,
)
from arctic_orchestration_tests.object_store import BUCKET, ObjectStore, object_store

MISSING = "Spark has no file system for s3://, which org.apache.hadoop:hadoop-aws has"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as server:
        yield server


@pytest.fixture
def on_s3(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The catalog ``lake`` of pyiceberg's configuration, with its tables in the store."""
    properties = store.properties | {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{BUCKET}/{tmp_path.name}",
    }
    for key, value in properties.items():
        name = key.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    return settings_for(tmp_path / "lake")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with opened(f"sqlite:///{tmp_path}/arctic.db") as made:
        yield made


@pytest.fixture
def catalog(on_s3: Settings) -> Catalog:
    return open_catalog(on_s3)


def test_rows_are_appended_read_and_replaced(spark: SparkSession, catalog: Catalog) -> None:
    """Partitions get files of their own, and readers find the rows; over Connect, too."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "key"))
    table = ensure_table(catalog, "lake.some", SCHEMA, spec)
    assert table.location().startswith(f"s3://{BUCKET}/")
    rows = spark.range(0, 30).selectExpr("id as row", "cast(id % 3 as int) as key")
    assert append(spark, rows, table).rows == 30
    assert data_files(table) == 3
    assert sorted(row.row for row in read(spark, table).collect()) == list(range(30))
    found = read(spark, table, row_filter=EqualTo(term="key", value=2)).collect()
    assert sorted(row.row for row in found) == list(range(2, 30, 3))
    new = spark.range(100, 101).selectExpr("id as row", "2 as key")
    append(spark, new, table, replacing=EqualTo(term="row", value=5))
    assert sorted(row.row for row in read(spark, table).collect()) == sorted(
        {*range(30), 100} - {5}
    )


def test_row_groups_are_appended_through_a_local_copy(
    classic_spark: SparkSession, catalog: Catalog
) -> None:
    """The copies are removed, and so are those that a killed process has left."""
    table = table_of(catalog, files=3)
    before = rows_of(table)
    left = Path(tempfile.mkdtemp(prefix=local_prefix()))
    (left / "in-use").touch()
    (left / "input-00000.parquet").write_bytes(b"x")
    group = group_of(table)
    done = merged(classic_spark, table, group, way=Way.APPEND)
    assert done.way == Way.APPEND
    replaced(table, group, done)
    assert (rows_of(table), data_files(table)) == (before, 1)
    assert list(Path(tempfile.gettempdir()).glob(f"{local_prefix()}*")) == []


def local_prefix() -> str:
    from arctic_orchestration.lake.merging.local_copies import _PREFIX

    return _PREFIX


@pytest.mark.parametrize("engine", Engine)
def test_rows_with_deletes_are_merged(
    spark: SparkSession, catalog: Catalog, engine: Engine
) -> None:
    """By position and by value; where Spark's rows do it, Arrow reads and writes the files."""
    table = table_of(catalog, files=3)
    paths = sorted(file.path for file in live_files(table.refresh()).files)
    deleted = ids_at(table, paths[0], [0, 9]) | ids_at(table, paths[2], [4]) | {1001, 2003}
    add_position_deletes(table, {paths[0]: [0, 9], paths[2]: [4]})
    add_equality_deletes(table, pa.table({"id": pa.array([1001, 2003])}), ["id"])
    group = group_of(table)
    done = merged(spark, table, group, engine=engine)
    through = f"files pass through Arrow, as {MISSING}" in done.because
    assert through == (engine is Engine.SPARK) or "Connect" in done.because
    assert (done.rows_in, done.rows_deleted, done.rows_out) == (30, 5, 25)
    replaced(table, group, done)
    expected = {file * 1000 + row for file in range(3) for row in range(10)} - deleted
    assert {row[0] for row in rows_of(table)} == expected


def test_a_table_is_compacted_expired_and_cleaned(
    classic_spark: SparkSession, catalog: Catalog, store: ObjectStore, database: Database
) -> None:
    """Planned, merged by Arrow, committed; then old files go, and only those of the table stay."""
    table = table_of(catalog, files=6)
    before = rows_of(table)

    def merging(table: Table, group: FileGroup, directory: str, *, target_bytes: int) -> Merged:
        return merge(classic_spark, table, group, directory, target_bytes=target_bytes)

    with store.counted() as planning:
        offer_now(database, catalog, "lake.words", utc_now(), force=True)
    # The metadata twice, a list of manifests and six of them: one HEAD and one GET each.
    assert planning == {"HeadObject": 9, "GetObject": 9}
    with store.counted() as requests:
        done = compact_now(database, catalog, merging, "lake.words", utc_now(), force=True)
    assert (done.counts.committed, done.left, done.trouble) == (1, (), None)
    assert (rows_of(table), data_files(table)) == (before, 1)
    # Outputs of a lost attempt are looked for, and pyiceberg looks for its new metadata file.
    assert requests["ListObjects"] <= 2
    assert requests["GetObject"] <= 10 * 6
    now = utc_now()
    with store.counted() as requests:
        expired = expire_snapshots(table, older_than=now, keep_last=1, now=now)
    # Files are known by manifests; one list is pyiceberg's, before it writes metadata.
    assert requests["ListObjects"] <= 1
    assert requests["GetObject"] <= 4 * 6
    assert requests["DeleteObject"] == len(expired.files)
    assert len(expired.snapshot_ids) == 6
    assert (expired.failed, rows_of(table)) == ((), before)
    lost = f"{table.location()}/data/lost.parquet"
    with table.io.new_output(lost).create() as stream:
        stream.write(b"x")
    with store.counted() as requests:
        orphans = remove_orphans(table, older_than=utc_now() + timedelta(hours=1), any_age=True)
    assert requests["ListObjects"] == 1
    assert lost in {file.path for file in orphans.files}
    assert (orphans.failed, rows_of(table)) == ((), before)
    known = {file.path.removeprefix("s3://") for file in live_files(table.refresh()).files}
    assert {one for one in objects(catalog) if one.endswith(".parquet")} == known
