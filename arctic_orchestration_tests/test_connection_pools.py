"""Threads wait for a connection in use; after a timeout, a thread gets one of its own.

A process keeps to its limit with all of its pools, and exceeds it after a second timeout alone.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration import connection_pools
from arctic_orchestration.connection_pools import PatientPool
from arctic_orchestration.state import dialect
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.postgres import PostgresServer

THREADS = 20
#: seconds; a test that waits that long is ended by the limit for tests
LONG = 600.0


@pytest.fixture(autouse=True)
def _own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of other tests, of which a thread may still use one, do not count."""
    monkeypatch.setattr(connection_pools, "_process", connection_pools._Process())


@pytest.fixture
def engine(postgres_server: PostgresServer, postgres_database: str) -> Iterator[sa.Engine]:
    engine = dialect.make_engine(sa.make_url(postgres_server.url(postgres_database)))
    yield engine
    engine.dispose()


@pytest.fixture
def other(postgres_server: PostgresServer, postgres_database: str) -> Iterator[sa.Engine]:
    """An engine of the same process, as for Dagster's storage."""
    engine = dialect.make_engine(sa.make_url(postgres_server.url(postgres_database)))
    yield engine
    engine.dispose()


class Peak:
    """Counts the connections of engines that are opened, and how many are open at once."""

    def __init__(self, *engines: sa.Engine) -> None:
        self.count = self.open = 0
        self._lock = threading.Lock()
        for engine in engines:
            sa.event.listen(engine, "connect", self._add)
            sa.event.listen(engine, "close", self._remove)

    def _add(self, *_: object) -> None:
        with self._lock:
            self.open += 1
            self.count = max(self.count, self.open)

    def _remove(self, *_: object) -> None:
        with self._lock:
            self.open -= 1


def be_patient(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, seconds: float, last: float | None = None
) -> None:
    """Sets the timeouts: of the pool, and of the process, which without one is the same."""
    assert isinstance(engine.pool, PatientPool)
    monkeypatch.setattr(PatientPool, "PATIENCE_SECONDS", seconds)
    monkeypatch.setattr(PatientPool, "LAST_SECONDS", seconds if last is None else last)


def flood(engine: sa.Engine) -> int:
    """The peak of connections while many threads run statements that take a moment."""
    peak = Peak(engine)
    begin = threading.Barrier(THREADS)

    def work(_: int) -> None:
        begin.wait()
        for _ in range(5):
            with engine.begin() as tx:
                tx.execute(sa.text("select pg_sleep(0.002)"))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    return peak.count


def test_threads_share_two_connections(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    be_patient(engine, monkeypatch, LONG)
    assert flood(engine) == 2
    assert caplog.text == ""
    assert engine.pool.checkedin() == 2  # type: ignore[attr-defined]


def test_without_patience_each_has_its_own(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a pool that opens more at once."""
    be_patient(engine, monkeypatch, 0)
    assert flood(engine) > PatientPool.PROCESS_LIMIT


def test_a_pool_takes_what_the_process_has_left(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The pool keeps two; the process may have four, and does not exceed them."""
    be_patient(engine, monkeypatch, 0, LONG)
    assert flood(engine) == PatientPool.PROCESS_LIMIT
    assert caplog.text == ""
    assert engine.pool.checkedin() == 2  # type: ignore[attr-defined]


def test_threads_that_wait_for_a_lock_do_not_stop_others(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a feature whose rows are locked, beside others of its process."""
    be_patient(engine, monkeypatch, 0.2)
    with engine.connect() as watch, engine.begin() as holder:
        holder.execute(sa.text("select pg_advisory_xact_lock(7)"))

        def wait_for_the_lock() -> None:
            with engine.begin() as tx:
                tx.execute(sa.text("select pg_advisory_xact_lock(7)"))

        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        threads = [threading.Thread(target=wait_for_the_lock) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: watch.execute(sa.text(waiting)).scalar() == 3, "all wait for the lock")
        assert in_thread(lambda: one(engine)) == 1
    for thread in threads:
        thread.join()
    assert "in use for 0.2 s (4, at most 4); it opens one more" in caplog.text
    # What was opened beyond the two is closed.
    assert in_thread(lambda: one(engine)) == 1
    assert engine.pool.checkedin() == 2  # type: ignore[attr-defined]


def test_pools_share_the_limit_of_the_process(
    engine: sa.Engine, other: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle connection is closed for one of another pool; the control has one more."""
    be_patient(engine, monkeypatch, LONG)

    def fill() -> int:
        peak = Peak(engine, other)
        with engine.connect(), engine.connect():
            pass
        with other.connect(), other.connect(), other.connect():
            pass
        with other.connect(), engine.connect(), engine.connect():
            return peak.count

    assert fill() == PatientPool.PROCESS_LIMIT
    for one_of_both in (engine, other):
        one_of_both.dispose()
    monkeypatch.setattr(PatientPool, "PROCESS_LIMIT", 100)
    assert fill() == 5


def test_pools_keep_the_limit_while_many_threads_use_both(
    engine: sa.Engine, other: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order: with one connection in use, and some that break or are closed."""
    be_patient(engine, monkeypatch, 0, LONG)
    peak = Peak(engine, other)
    begin = threading.Barrier(THREADS)

    def work(number: int) -> None:
        begin.wait()
        for turn in range(20):
            user = (engine, other)[(number + turn) % 2]
            if number == 0:
                user.pool.dispose()
            with user.connect() as connection:
                connection.execute(sa.text("select pg_sleep(0.001)"))
                if (number + turn) % 7 == 0:
                    connection.invalidate()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert peak.count == PatientPool.PROCESS_LIMIT
    assert in_thread(lambda: one(engine)) == in_thread(lambda: one(other)) == 1


def test_a_thread_that_is_interrupted_while_it_waits_takes_no_place(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_patient(engine, monkeypatch, LONG)
    first, second = engine.connect(), engine.connect()

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Event", Interrupted)
        with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt):
            pool.submit(engine.connect).result()
    first.close()
    second.close()
    assert flood(engine) == 0
    assert engine.pool.checkedin() == 2  # type: ignore[attr-defined]


def test_garbage_may_return_a_connection_while_another_one_is_granted(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a collection of garbage began just then: it is granted after that, and not twice."""
    be_patient(engine, monkeypatch, 0, LONG)
    garbage = [engine.connect(), engine.connect()]
    make_room = connection_pools._Process._make_room

    def collect_first(*arguments: Any) -> bool:
        if garbage:
            garbage.pop().close()
        return make_room(*arguments)

    monkeypatch.setattr(connection_pools._Process, "_make_room", collect_first)
    assert in_thread(lambda: one(engine)) == 1
    assert len(garbage) == 1
    assert in_thread(lambda: one(engine)) == 1
    garbage.clear()
    assert flood(engine) <= PatientPool.PROCESS_LIMIT
    assert engine.pool.checkedin() == 2  # type: ignore[attr-defined]


def test_a_thread_does_not_wait_for_itself(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_patient(engine, monkeypatch, LONG)
    with engine.connect(), engine.connect(), engine.connect() as third:
        assert third.execute(sa.text("select 1")).scalar() == 1


def test_a_returned_connection_goes_to_who_waits(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is returned: closed, broken, or kept by who took it out of the pool."""
    be_patient(engine, monkeypatch, LONG)
    for give_back in (
        sa.Connection.close, sa.Connection.invalidate, sa.Connection.detach,
    ):  # fmt: skip
        first, second = engine.connect(), engine.connect()
        with ThreadPoolExecutor(1) as pool:
            waiter = pool.submit(one, engine)
            give_back(first)
            second.close()
            assert waiter.result() == 1
        first.close()


def test_a_server_that_is_away_takes_no_place(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many failures as there are places, and more: the next one still tries at once."""
    url = sa.make_url(postgres_server.url("no_such_database"))
    engine = dialect.make_engine(url)
    be_patient(engine, monkeypatch, LONG)
    for _ in range(5):
        with pytest.raises(sa.exc.OperationalError, match="no_such_database"):
            in_thread(lambda: one(engine))


def test_a_connection_that_the_server_ended_keeps_no_place(
    engine: sa.Engine, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_patient(engine, monkeypatch, LONG)
    for _ in range(5):
        backend = in_thread(lambda: number(engine, "select pg_backend_pid()"))
        postgres_server.end_backend(backend)
    assert flood(engine) <= 2


PID = "select pg_backend_pid()"


def sent_to_a_used_connection(engine: sa.Engine, watch: sa.Engine) -> str:
    """The last statement of a connection that was taken out and returned after a transaction."""
    with engine.begin() as connection:
        backend = connection.execute(sa.text(PID)).scalar_one()
    engine.connect().close()
    query = f"select query from pg_stat_activity where pid = {backend}"
    with watch.connect() as connection:
        statement: str = connection.execute(sa.text(query)).scalar_one()
    assert number(engine, PID) == backend
    return statement


def test_a_connection_is_used_again_without_a_query(engine: sa.Engine, other: sa.Engine) -> None:
    assert sent_to_a_used_connection(engine, other) == "COMMIT"


def test_after_a_while_it_is_asked(
    engine: sa.Engine, other: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a router has dropped it; the query's transaction ends with a rollback."""
    monkeypatch.setattr(connection_pools, "_TRUSTED_SECONDS", -1.0)
    assert sent_to_a_used_connection(engine, other) == "ROLLBACK"


def test_a_message_of_the_server_is_no_reason_to_replace_it(
    engine: sa.Engine, other: sa.Engine
) -> None:
    with engine.begin() as connection:
        connection.execute(sa.text("listen news"))
    backend = number(engine, PID)
    for _ in range(3):
        with other.begin() as connection:
            connection.execute(sa.text("notify news"))
        assert number(engine, PID) == backend


def test_all_connections_that_ended_are_replaced(
    engine: sa.Engine, postgres_server: PostgresServer
) -> None:
    """As when the server was restarted: each is replaced before it is used."""
    for _ in range(3):
        with engine.connect() as first, engine.connect() as second:
            backends = [c.execute(sa.text(PID)).scalar_one() for c in (first, second)]
        for backend in backends:
            postgres_server.end_backend(backend)
        with engine.connect() as first, engine.connect() as second:
            new = [c.execute(sa.text(PID)).scalar_one() for c in (first, second)]
        assert len({*backends, *new}) == 4


def one(engine: sa.Engine) -> int:
    return number(engine, "select 1")


def number(engine: sa.Engine, statement: str) -> int:
    with engine.connect() as connection:
        return int(connection.execute(sa.text(statement)).scalar() or 0)


def in_thread(work: Callable[[], int]) -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
