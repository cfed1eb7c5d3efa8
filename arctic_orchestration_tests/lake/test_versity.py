"""Tables on another S3 server than moto's: one that checks signatures, and keeps files."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.run_once import compact_now
from arctic_orchestration.errors import StoreRefused
from arctic_orchestration.lake import append, read
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging.merge import Engine, Merged, merge
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots, remove_orphans
from arctic_orchestration_tests.compaction.small_lake import rows_of, table_of
from arctic_orchestration_tests.compaction.stored import opened
from arctic_orchestration_tests.lake.delete_writer import (
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.stored_tables import (
    data_files,
    group_of,
    ids_at,
    merged,
    objects,
    replaced,
)
from arctic_orchestration_tests.object_store import BUCKET, KEY
from arctic_orchestration_tests.versity import ABSENT, is_absent, versity

pytestmark = [pytest.mark.proof, pytest.mark.skipif(is_absent(), reason=ABSENT)]

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with versity(tmp_path_factory.mktemp("versity")) as properties:
        yield properties


@pytest.fixture
def properties(store: dict[str, str], tmp_path: Path) -> dict[str, str]:
    place = f"{tmp_path.name} a+ü%20c"
    uri = f"sqlite:///{tmp_path}/catalog.db"
    return {"uri": uri, "warehouse": f"s3://{BUCKET}/{place}", **store}


@pytest.fixture
def catalog(properties: dict[str, str]) -> SqlCatalog:
    return SqlCatalog("lake", **properties)


@pytest.mark.parametrize("engine", Engine)
def test_rows_are_appended_merged_and_read(
    classic_spark: SparkSession, catalog: SqlCatalog, engine: Engine
) -> None:
    spark, table = classic_spark, table_of(catalog, files=3)
    before = rows_of(table)
    group = group_of(table)
    replaced(table, group, merged(spark, table, group, way=Way.APPEND))
    assert (rows_of(table), data_files(table)) == (before, 1)
    append(spark, spark.range(5000, 5010).selectExpr("id", "'new' as word").coalesce(1), table)
    paths = sorted(file.path for file in live_files(table.refresh()).files)
    deleted = {one for path in paths for one in ids_at(table, path, [0, 9])} | {1001, 5003}
    add_position_deletes(table, {path: [0, 9] for path in paths})
    add_equality_deletes(table, pa.table({"id": pa.array([1001, 5003])}), ["id"])
    group = group_of(table)
    done = merged(spark, table, group, engine=engine)
    replaced(table, group, done, "two")
    expected = ({row[0] for row in before} | set(range(5000, 5010))) - deleted
    assert data_files(table) == 1
    assert sorted(row.id for row in read(spark, table).collect()) == sorted(expected)


def test_a_table_is_compacted_expired_and_cleaned(
    classic_spark: SparkSession, catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = table_of(catalog, files=5)
    before = rows_of(table)

    def merging(table: Table, group: FileGroup, directory: str, *, target_bytes: int) -> Merged:
        return merge(classic_spark, table, group, directory, target_bytes=target_bytes)

    with opened(f"sqlite:///{tmp_path}/arctic.db") as database:
        done = compact_now(database, catalog, merging, "lake.words", utc_now(), force=True)
    assert (done.counts.committed, done.trouble) == (1, None)
    now = utc_now()
    expired = expire_snapshots(table, older_than=now, keep_last=1, now=now)
    assert (len(expired.snapshot_ids), expired.failed) == (5, ())
    lost = f"{table.location()}/data/lost.parquet"
    with table.io.new_output(lost).create() as stream:
        stream.write(b"x")
    orphans = remove_orphans(table, older_than=now + HOUR, any_age=True)
    assert lost in {file.path for file in orphans.files}
    assert (orphans.failed, rows_of(table), data_files(table)) == ((), before, 1)
    known = {file.path.removeprefix("s3://") for file in live_files(table.refresh()).files}
    assert {one for one in objects(catalog) if one.endswith(".parquet")} == known


def test_large_files_are_uploaded_in_parts(catalog: SqlCatalog) -> None:
    table = table_of(catalog, files=0)
    content = os.urandom(25 << 20)
    path = f"{table.location()}/data/large"
    with table.io.new_output(path).create() as stream:
        stream.write(content)
    with table.io.new_input(path).open() as stream:
        assert stream.read() == content


def test_a_wrong_secret_is_named(catalog: SqlCatalog, properties: dict[str, str]) -> None:
    """Signatures are checked; S3 answers a HEAD request without a reason, and is asked for it."""
    table_of(catalog, files=1)
    other = SqlCatalog("lake", **properties | {"s3.secret-access-key": "another"})
    wrong = f"the secret access key is wrong: s3.access-key-id {KEY[:4]}"
    with pytest.raises(StoreRefused, match=wrong):
        load_table(other, "lake.words")
