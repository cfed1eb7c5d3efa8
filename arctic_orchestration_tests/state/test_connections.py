"""The handles of one process share connections to Postgres."""

import gc
import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration import postgres_connections
from arctic_orchestration.connection_pools import PatientPool
from arctic_orchestration.dagster_internals import postgres_storages_of
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.event_log.postgres_log import PostgresSql
from arctic_orchestration.state import address, connections, database, dialect
from arctic_orchestration.state.connections import SharedEngine
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.postgres import PostgresServer

_BACKEND = sa.text("select pg_backend_pid()")


@pytest.fixture
def url(postgres_server: PostgresServer, postgres_database: str) -> str:
    return postgres_server.url(postgres_database)


@pytest.fixture
def server(postgres_server: PostgresServer, postgres_database: str) -> Iterator["Server"]:
    with closing(postgres_server.connect("postgres")) as connection:
        connection.autocommit = True
        yield Server(connection, postgres_database)


class Server:
    def __init__(self, connection: Any, database_name: str) -> None:
        self._connection = connection
        self._name = database_name

    def connections(self) -> int:
        """How many connections to the database the server has."""
        with self._connection.cursor() as cursor:
            query = "select count(*) from pg_stat_activity where datname = %s"
            cursor.execute(query, (self._name,))
            return int(cursor.fetchone()[0])

    def do(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def wait(self, count: int) -> None:
        """A connection that is closed is gone a moment later."""
        until(lambda: self.connections() == count, f"the server has {count} connections")


def _separate(_user: object, _key: Any, create: Any) -> SharedEngine:
    return SharedEngine(create())


@pytest.mark.parametrize(
    ("is_shared", "at_rest"), [(True, 2), (False, 8)], ids=["shared", "control"]
)
def test_a_process_keeps_two_connections_whatever_it_had_under_load(
    url: str,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    is_shared: bool,
    at_rest: int,
) -> None:
    """Sixteen transactions at once, of four handles. With separate engines each keeps two."""
    if not is_shared:
        monkeypatch.setattr(database, "shared_engine", _separate)
    # No more are opened than the process may have until others were in use for that long.
    monkeypatch.setattr(PatientPool, "LAST_SECONDS", PatientPool.PATIENCE_SECONDS)
    handles = [Database(url) for _ in range(4)]
    all_begun = threading.Barrier(17)

    def begin(handle: Database) -> None:
        with handle.begin() as tx:
            tx.execute(_BACKEND)
            all_begun.wait(PATIENCE_SECONDS)
            all_begun.wait(PATIENCE_SECONDS)

    with ThreadPoolExecutor(16) as pool:
        ends = [pool.submit(begin, handle) for handle in handles * 4]
        # None waits for another one's end.
        all_begun.wait(PATIENCE_SECONDS)
        assert server.connections() == 16
        all_begun.wait(PATIENCE_SECONDS)
        for end in ends:
            end.result()
    server.wait(at_rest)
    for handle in handles:
        handle.close()
    server.wait(0)


def test_the_last_handle_closes_the_connections(url: str, server: Server) -> None:
    """One that is closed twice counts once; one that is used again connects again."""
    one, other = Database(url), Database(url)
    assert one.revision() is other.revision() is None
    assert server.connections() == 1
    one.close()
    one.close()
    assert other.revision() is None
    assert server.connections() == 1
    other.close()
    server.wait(0)
    assert one.revision() is None
    one.close()
    server.wait(0)


def test_a_handle_that_is_dropped_leaves_nothing(url: str, server: Server) -> None:
    """Neither its connections, nor a place among the users of the others' engine."""
    for _ in range(3):
        assert Database(url).revision() is None
    gc.collect()
    server.wait(0)
    one = Database(url)
    assert Database(url).revision() is None
    gc.collect()
    assert server.connections() == 1
    one.close()
    server.wait(0)


def test_a_handle_that_opens_while_the_last_one_closes_can_be_used(url: str) -> None:
    """Many threads open and close the only handle; each gets an answer."""

    def use(_: int) -> None:
        with closing(Database(url)) as opened, opened.read() as tx:
            assert tx.execute(sa.text("select 1")).scalar() == 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(40)))


def test_each_time_limit_and_each_database_has_an_engine(
    url: str, postgres_server: PostgresServer
) -> None:
    """The service and the run queue wait for less than others; drivers are all psycopg2."""
    with ExitStack() as stack:

        def engine(url: str, **options: float) -> sa.Engine:
            return stack.enter_context(closing(Database(url, **options))).engine

        assert engine(url) is engine(url)
        assert engine(url) is engine(url.replace("postgresql+psycopg2:", "postgresql:"))
        assert engine(url) is not engine(url, busy_seconds=5)
        assert engine(url) is not engine(postgres_server.url("postgres"))


def test_a_process_leaves_a_server_that_only_reads(
    url: str, server: Server, postgres_database: str
) -> None:
    """A session keeps the mode that it began with, as those to the former primary do."""
    with closing(Database(url)) as database:
        database.upgrade()
    server.do(f"alter database {postgres_database} set default_transaction_read_only = on")
    write = sa.text("insert into arctic_resources (name) values ('once')")
    with closing(Database(url)) as database:
        with (
            pytest.raises(DatabaseUnavailable, match="read-only transaction"),
            database.begin() as tx,
        ):
            tx.execute(write)
        server.do(f"alter database {postgres_database} reset default_transaction_read_only")
        with database.begin() as tx:
            tx.execute(write)
        server.wait(1)


def test_a_database_without_an_encoding_stores_all_text(
    server: Server, postgres_server: PostgresServer, postgres_database: str
) -> None:
    """As one of a server that was set up without a locale: it takes bytes as they come."""
    name = f"{postgres_database}_plain"
    server.do(f"create database {name} encoding 'SQL_ASCII' locale 'C' template template0")
    try:
        with closing(Database(postgres_server.url(name))) as database:
            database.upgrade()
            with database.begin() as tx:
                tx.execute(sa.text("insert into arctic_resources (name) values ('München 日本')"))
            with database.read() as tx:
                query = sa.text("select name from arctic_resources")
                assert tx.execute(query).scalar_one() == "München 日本"
    finally:
        server.do(f"drop database {name} with (force)")


def test_sqlite_is_not_shared(tmp_path: Path) -> None:
    """A file that was removed is made again by the next handle; the old one keeps its own."""
    file = tmp_path / "arctic.db"
    with closing(Database.open(f"sqlite:///{file}")) as old:
        file.unlink()
        with closing(Database.open(f"sqlite:///{file}")) as new:
            assert old.engine is not new.engine
            assert file.exists()
            assert (old.is_in_place(), new.is_in_place()) == (False, True)


def test_readers_of_dagsters_log_share_connections(
    dagster_instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its runs and of its events, of all sensors; the last one closes them."""
    instance = dagster_instance("postgres")
    # As in a code server, where Dagster's storages have engines of their own.
    monkeypatch.setattr(postgres_connections, "_engines", {})
    storages = [instance.event_log_storage, instance.run_storage, instance.event_log_storage]
    readers = [PostgresSql(storage) for storage in storages]
    backends = set()
    for reader in readers:
        with reader.session() as run:
            backends.add(run("select pg_backend_pid()")[0][0])
    assert len(backends) == 1
    for reader in readers[:2]:
        reader.close()
    with readers[2].session() as run:
        assert run("select pg_backend_pid()")[0][0] in backends
    readers[2].close()
    with readers[2].session() as run:
        assert run("select pg_backend_pid()")[0][0] not in backends
    readers[2].close()


def test_readers_share_the_connection_that_dagsters_storages_reuse(dagster_instance: Any) -> None:
    """As in the daemon: another for the readers would be one more."""
    instance = dagster_instance("postgres")
    postgres_connections.reuse_in_instance(instance)
    backends = set()
    for storage in postgres_storages_of(instance):
        with closing(PostgresSql(storage)) as reader, reader.session() as run:
            backends.add(run("select pg_backend_pid()")[0][0])
        backends.add(_backend(storage._engine))
    assert len(backends) == 1


def _backend(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(_BACKEND).scalar_one())


def _report(engines: list[sa.Engine], url: str, pipe: Any) -> None:
    with closing(Database(url)) as opened, opened.read() as tx:
        pipe.send([*map(_backend, engines), tx.execute(_BACKEND).scalar_one()])


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # which is the case here
def test_a_forked_process_connects_on_its_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a handle of its parent, too. Control: an engine that is not shared."""
    # Pools of earlier tests may have idle connections: none is closed for theirs.
    monkeypatch.setattr(PatientPool, "PROCESS_LIMIT", 100)
    inherited = Database(url)
    control = dialect.make_engine(address.parse(url))
    own, of_control = _backend(inherited.engine), _backend(control)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    engines = [inherited.engine, control]
    # A lock that a thread of the parent holds would never be released in the child.
    with inherited.begin() as tx, _held_by_another_thread(connections._lock):
        process = context.Process(target=_report, args=(engines, url, there))
        process.start()
        assert here.poll(60)
        by_handle, by_control, opened = here.recv()
        process.join()
        assert process.exitcode == 0
        assert tx.execute(_BACKEND).scalar_one() == own
    assert own not in (by_handle, opened)
    assert by_control == of_control
    assert _backend(inherited.engine) == own
    inherited.close()
    control.dispose()


@contextmanager
def _held_by_another_thread(lock: Any) -> Iterator[None]:
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            end.wait(PATIENCE_SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE_SECONDS)
    yield
    end.set()
    thread.join()
