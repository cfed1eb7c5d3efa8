"""What S3 does wrong: throttling, silence, answers that break off, credentials that expire."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.run_once import RunResult, compact_now
from arctic_orchestration.errors import StoreRefused
from arctic_orchestration.lake import open_catalog
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.merging.merge import Merged, merge
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import rows_of, table_of, tasks_of
from arctic_orchestration_tests.compaction.stored import opened
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.stored_tables import data_files, objects
from arctic_orchestration_tests.object_store import BUCKET, KEY, ObjectStore, object_store

NO_TIME = timedelta(0)
EXPIRED = f"the credentials have expired: s3.access-key-id {KEY[:4]}..."


class OneAttempt(AwsStandardS3RetryStrategy):  # type: ignore[misc]
    """No retries, for faults that stay."""

    def __init__(self) -> None:
        super().__init__(max_attempts=1)


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as server:
        yield server


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with opened(f"sqlite:///{tmp_path}/arctic.db") as made:
        yield made


@pytest.fixture
def properties(store: ObjectStore, tmp_path: Path) -> dict[str, str]:
    return store.properties | {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{BUCKET}/tables",
        "s3.request-timeout": "1",
    }


@pytest.fixture
def catalog(properties: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    for key, value in properties.items():
        name = key.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    return open_catalog(settings_for(tmp_path / "lake"))


@pytest.fixture
def impatient(properties: dict[str, str], catalog: Catalog) -> Catalog:
    """The same catalog for a client that gives up at once."""
    strategy = f"{__name__}.{OneAttempt.__name__}"
    return SqlCatalog("lake", **properties, **{"s3.retry-strategy-impl": strategy})


@pytest.mark.parametrize("fault", ["SlowDown", "hang", "cut"])
def test_what_passes_is_waited_for(catalog: Catalog, store: ObjectStore, fault: str) -> None:
    """A request is repeated that was throttled, not answered, or answered in part."""
    table = table_of(catalog, files=1)
    hit = store.fail("GetObject", fault, path=".parquet", times=1)
    assert len(rows_of(table)) == 10
    assert hit.hits == 1


@pytest.mark.parametrize("fault", ["SlowDown", "hang", "cut"])
def test_what_stays_is_an_error(impatient: Catalog, store: ObjectStore, fault: str) -> None:
    """Nothing hangs: silence ends with the time limit of the properties."""
    table = table_of(impatient, files=1)
    store.fail("GetObject", fault, path=".parquet")
    with pytest.raises(
        OSError, match="SERVICE_UNAVAILABLE|SLOW_DOWN|(?i:timeout|timed|curl|bytes)"
    ):
        rows_of(table)


def test_large_files_are_uploaded_in_parts(impatient: Catalog, store: ObjectStore) -> None:
    """A part that fails is no file, and leaves no parts; the next attempt has the whole."""
    table = table_of(impatient, files=0)
    content = os.urandom(25 << 20)
    path = f"{table.location()}/data/large"
    fault = store.fail("UploadPart", "InternalError", status=500, times=1)
    with (
        pytest.raises(OSError, match="InternalError|INTERNAL_FAILURE"),
        table.io.new_output(path).create(overwrite=True) as stream,
    ):
        stream.write(content)
    assert fault.hits == 1
    assert path.removeprefix("s3://") not in objects(impatient)
    with store.counted() as requests, table.io.new_output(path).create(overwrite=True) as stream:
        stream.write(content)
    assert requests["UploadPart"] > 1
    with table.io.new_input(path).open() as stream:
        assert stream.read() == content


def test_credentials_that_expire_are_named(catalog: Catalog, store: ObjectStore) -> None:
    """S3 gives no reason to a HEAD request; it is asked for it."""
    table_of(catalog, files=1)
    store.expired.add(KEY)
    with pytest.raises(StoreRefused, match=EXPIRED):
        load_table(catalog, "lake.words")
    store.expired.clear()
    store.keys.clear()
    with pytest.raises(StoreRefused, match="the store does not know the access key"):
        load_table(catalog, "lake.words")


@pytest.mark.parametrize("when", ["merge", "commit"])
def test_a_task_is_given_back_when_credentials_expire(
    classic_spark: SparkSession,
    catalog: Catalog,
    store: ObjectStore,
    database: Database,
    when: str,
) -> None:
    """Nothing is half committed; with new credentials the same task is completed."""
    table = table_of(catalog, files=4)
    before = rows_of(table)

    def run(expire: bool) -> RunResult:
        def merging(table: Table, group: FileGroup, directory: str, *, target_bytes: int) -> Merged:
            if expire and when == "merge":
                store.expired.add(KEY)
            done = merge(classic_spark, table, group, directory, target_bytes=target_bytes)
            if expire:
                store.expired.add(KEY)
            return done

        return compact_now(
            database, catalog, merging, "lake.words", utc_now(), force=True, patience=NO_TIME
        )

    result = run(expire=True)
    assert result.counts.committed == 0
    (task,) = tasks_of(database)
    if when == "merge":
        assert task.state == TaskState.PLANNED
        assert EXPIRED in (task.reason or "")
    else:
        assert task.state == TaskState.MERGED
        assert EXPIRED in (result.trouble or "")
    store.expired.clear()
    assert (rows_of(table), data_files(table)) == (before, 4)
    done = run(expire=False)
    assert (done.counts.committed, done.trouble) == (1, None)
    assert (rows_of(table), data_files(table)) == (before, 1)
