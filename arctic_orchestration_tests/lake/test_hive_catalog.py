"""Tables of a Hive metastore on S3: planned, merged and committed, also when answers are lost."""

import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from thrift.transport.TTransport import TTransportException

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.run_once import compact_now
from arctic_orchestration.errors import CatalogUnavailable, ConfigurationError
from arctic_orchestration.lake import catalog_answers, hive_catalog, open_catalog
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.lake.hive_catalog import SharedHiveCatalog
from arctic_orchestration.lake.merging.merge import Merged, merge
from arctic_orchestration.lake.replacing.replace import replace_files
from arctic_orchestration.lake.table_listing import list_tables
from arctic_orchestration.lake.tables import load_table
from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots
from arctic_orchestration_tests.compaction.small_lake import rows_of, table_of
from arctic_orchestration_tests.compaction.stored import opened
from arctic_orchestration_tests.hive_metastore import LostAnswers, hive_metastore, remove_locks
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.stored_tables import data_files, rewritten
from arctic_orchestration_tests.object_store import BUCKET, object_store
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

COMMIT = "alter_table_with_environment_context"


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hive_metastore(tmp_path_factory.mktemp("hive")) as address:
        yield address


@pytest.fixture
def between(metastore: str) -> Iterator[LostAnswers]:
    found = LostAnswers(metastore)
    yield found
    found.close()


@pytest.fixture
def catalog(
    between: LostAnswers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Catalog]:
    """By configuration alone."""
    with object_store() as store:
        properties = store.properties | {
            "type": "hive",
            "uri": between.address,
            "warehouse": f"s3://{BUCKET}/hive",
            "lock-check-max-wait-time": "0.1",
        }
        for key, value in properties.items():
            name = key.upper().replace(".", "__").replace("-", "_")
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
        made = open_catalog(settings_for(tmp_path / "lake"))
        assert isinstance(made, SharedHiveCatalog)
        yield made
        for table in list_tables(made):
            made.drop_table(table)


def test_a_table_is_compacted_and_expired(
    classic_spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    table = table_of(catalog, files=4)
    before = rows_of(table)

    def merging(table: Table, group: FileGroup, directory: str, *, target_bytes: int) -> Merged:
        return merge(classic_spark, table, group, directory, target_bytes=target_bytes)

    with opened(f"sqlite:///{tmp_path}/arctic.db") as database:
        done = compact_now(database, catalog, merging, "lake.words", utc_now(), force=True)
    assert (done.counts.committed, done.trouble) == (1, None)
    assert (rows_of(table), data_files(table)) == (before, 1)
    now = utc_now()
    expired = expire_snapshots(table, older_than=now, keep_last=1, now=now)
    assert (len(expired.snapshot_ids), expired.failed) == (4, ())
    assert rows_of(load_table(catalog, "lake.words")) == before


@pytest.mark.parametrize("answer", [False, True])
def test_a_commit_that_is_not_answered_is_made_once(
    catalog: Catalog, metastore: str, between: LostAnswers, answer: bool
) -> None:
    """Lost before the metastore had it, or after it was carried out."""
    table = table_of(catalog, files=3)
    before, snapshots = rows_of(table), len(table.refresh().snapshots())
    one = rewritten(catalog, "lake.words")
    between.lose(COMMIT, answer=answer)
    with ThreadPoolExecutor(1) as threads:
        committing = threads.submit(replace_files, table, [one])
        assert between.is_lost.wait(PATIENCE_SECONDS)
        # It is not removed by its client, whose connection has ended.
        assert remove_locks(metastore) >= 1
        assert committing.result().committed == ("one",)
    found = load_table(catalog, "lake.words")
    assert (rows_of(found), data_files(found)) == (before, 1)
    assert len(found.snapshots()) == snapshots + 1


def test_writers_at_once_lose_nothing(catalog: Catalog, tmp_path: Path) -> None:
    """They wait for the metastore's lock; who had read an older table tries again."""
    table = table_of(catalog, files=4)
    one = rewritten(catalog, "lake.words")
    rows = table.scan().to_arrow()[:1]

    def write(_: int) -> None:
        # pyiceberg's own writer tries once, if another one is first.
        while True:
            try:
                opened_again().append(rows)
                return
            except CommitFailedException:
                continue

    def opened_again() -> Table:
        # A client of Hive's is for one thread.
        return load_table(open_catalog(settings_for(tmp_path / "lake")), "lake.words")

    with ThreadPoolExecutor(3) as threads:
        committing = threads.submit(replace_files, opened_again(), [one])
        assert list(threads.map(write, range(4))) == [None] * 4
        assert committing.result().committed == ("one",)
    found = load_table(catalog, "lake.words")
    assert (len(rows_of(found)), data_files(found)) == (44, 5)
    assert len(found.snapshots()) == 4 + 1 + 4


def test_a_lock_that_stays_is_named(catalog: Catalog, metastore: str) -> None:
    """That of a client which was ended; as soon as it is gone, the same files are replaced."""
    table = table_of(catalog, files=2)
    one = rewritten(catalog, "lake.words")
    assert isinstance(catalog, SharedHiveCatalog)
    with catalog._client as client:
        client.lock(catalog._create_lock_request("lake", "words"))
    with pytest.raises(CatalogUnavailable, match="lake.words: .* Failed to acquire lock"):
        replace_files(table, [one])
    now = utc_now()
    with pytest.raises(CatalogUnavailable, match="lake.words: Failed to acquire lock"):
        expire_snapshots(table, older_than=now, keep_last=1, now=now)
    # Those that waited have removed theirs.
    assert remove_locks(metastore) == 1
    assert replace_files(table, [one]).committed == ("one",)


def test_threads_share_a_catalog(catalog: Catalog) -> None:
    """Each gets the tables that it asks for."""
    names = [f"lake.t{number}" for number in range(4)]
    for name in names:
        table_of(catalog, name, files=0)

    def load(number: int) -> bool:
        name = names[number % len(names)]
        return load_table(catalog, name).name() == tuple(name.split("."))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(load, range(40)))


@pytest.mark.parametrize("kind", [HiveCatalog, SharedHiveCatalog])
def test_the_end_of_a_threads_calls_ends_no_other_ones(
    metastore: str, kind: type[HiveCatalog]
) -> None:
    """The control is pyiceberg's catalog, which closes the connection that was opened last."""
    catalog = kind("lake", uri=metastore)
    is_open, is_over = threading.Event(), threading.Event()

    def call() -> list[str]:
        with catalog._client as client:
            is_open.set()
            assert is_over.wait(PATIENCE_SECONDS)
            found: list[str] = client.get_all_databases()
            return found

    with ThreadPoolExecutor(1) as threads:
        with catalog._client:
            called = threads.submit(call)
            assert is_open.wait(PATIENCE_SECONDS)
        is_over.set()
        if kind is HiveCatalog:
            with pytest.raises(TTransportException):
                called.result()
        else:
            assert "default" in called.result()


def test_the_next_address_is_asked(catalog: Catalog, metastore: str) -> None:
    table_of(catalog, files=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gone = f"thrift://127.0.0.1:{taken.getsockname()[1]}"
    properties = catalog.properties | {"uri": f"{gone}, {metastore}"}
    assert len(rows_of(load_table(SharedHiveCatalog("lake", **properties), "lake.words"))) == 10


@pytest.mark.parametrize(
    "uri",
    ["", "127.0.0.1:9083", "thrift://127.0.0.1", "thrift://:9083", "thrift://a:b", "thrift://a:1,"],
)
def test_a_wrong_address_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "hive")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
    with pytest.raises(ConfigurationError, match="lake .*: uri: expected thrift://host:port"):
        open_catalog(settings_for(tmp_path))


def test_a_client_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "thrift://127.0.0.1:9083")
    monkeypatch.setitem(sys.modules, "arctic_orchestration.lake.hive_catalog", None)
    with pytest.raises(ConfigurationError, match="catalog lake .* pip install 'pyiceberg"):
        open_catalog(settings_for(tmp_path))


def test_an_address_that_accepts_no_connection_is_left_soon(
    metastore: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a machine which is off. Calls have more time than that."""
    monkeypatch.setattr(hive_catalog, "_CONNECT_SECONDS", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        socket.create_connection(full.getsockname()),
    ):
        off = f"thrift://127.0.0.1:{full.getsockname()[1]}"
        with SharedHiveCatalog("lake", uri=f"{off},{metastore}")._client as client:
            assert "default" in client.get_all_databases()
            timeout = client._iprot.trans._TBufferedTransport__trans.handle.gettimeout()
    assert timeout == hive_catalog._SILENCE_SECONDS


def test_silence_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hive_catalog, "_SILENCE_SECONDS", 0.1)
    monkeypatch.setattr(catalog_answers, "_FIRST_WAIT_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"thrift://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CatalogUnavailable, match="lake.words: the catalog did not answer"):
            load_table(SharedHiveCatalog("lake", uri=address), "lake.words")


def test_a_metastore_that_is_gone_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"thrift://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(CatalogUnavailable, match="lake.words: the catalog did not answer"):
        load_table(SharedHiveCatalog("lake", uri=address), "lake.words")
