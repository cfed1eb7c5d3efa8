"""What means the same on both databases: times, membership tests, and writers at once."""

import multiprocessing
import resource
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.state import bulk_rows, dialect
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import EscapedText, UtcTime
from arctic_orchestration.state.tables import locations, schedules
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.postgres import PostgresServer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

_moments = sa.Table(
    "moments", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", UtcTime), sa.Column("word", sa.Text),
)  # fmt: skip


@pytest.fixture
def database(empty_url: str) -> Iterator[Database]:
    """A database with one table of moments and words."""
    made = Database(empty_url)
    with made.begin() as tx:
        _moments.metadata.create_all(tx)
    yield made
    made.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    at=st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)),
    offset=st.integers(-14 * 60, 14 * 60),
)
def test_a_moment_is_read_back_to_the_microsecond(
    database: Database, at: datetime, offset: int
) -> None:
    """Whatever zone it was written in, it comes back in UTC."""
    moment = at.replace(tzinfo=timezone(timedelta(minutes=offset)))
    with database.begin() as tx:
        tx.execute(sa.delete(_moments))
        tx.execute(sa.insert(_moments).values(id=1, at=moment))
        read = tx.execute(sa.select(_moments.c.at)).scalar_one()
    assert read == moment
    assert read.tzinfo is UTC


def test_moments_sort_and_compare_as_moments(database: Database) -> None:
    """Text on SQLite: with and without microseconds, and across zones."""
    later = [NOON + timedelta(microseconds=n) for n in (0, 1, 10, 999_999, 1_000_000)]
    berlin = NOON.astimezone(timezone(timedelta(hours=1))) - timedelta(minutes=1)
    with database.begin() as tx:
        rows = [{"id": n, "at": at} for n, at in enumerate([*reversed(later), berlin])]
        tx.execute(sa.insert(_moments), rows)
        ordered = tx.execute(sa.select(_moments.c.at).order_by(_moments.c.at)).scalars().all()
        assert ordered == [berlin, *later]
        due = sa.select(sa.func.count()).where(_moments.c.at <= NOON)
        assert tx.execute(due).scalar_one() == 2


def test_nothing_is_nothing(database: Database) -> None:
    """A moment that is not known yet."""
    with database.begin() as tx:
        tx.execute(sa.insert(_moments).values(id=1, at=None))
        assert tx.execute(sa.select(_moments.c.at)).scalar_one() is None


def test_a_naive_moment_is_refused(database: Database) -> None:
    """It could mean any of 24 hours."""
    with pytest.raises(sa.exc.StatementError, match="naive"), database.begin() as tx:
        tx.execute(sa.insert(_moments).values(id=1, at=datetime(2026, 1, 1)))
    with database.read() as tx:
        assert tx.execute(sa.select(sa.func.count()).select_from(_moments)).scalar_one() == 0


WORDS = ["plain", "it's", 'quote"d', "back\\slash", "ünïcode", "{brace}", "a,b", "", "null", "%s"]


def test_membership_holds_for_any_text(database: Database) -> None:
    """What would break an array or a JSON list if it were pasted into one."""
    with database.begin() as tx:
        rows = [{"id": n, "word": word} for n, word in enumerate([*WORDS, "other"])]
        tx.execute(sa.insert(_moments), rows)
        query = sa.select(_moments.c.word).order_by(_moments.c.id)
        found = tx.execute(query.where(dialect.among(tx, _moments.c.word, WORDS))).scalars().all()
        assert found == WORDS
        assert tx.execute(query.where(dialect.among(tx, _moments.c.word, []))).all() == []
        for these, others in (([], [*WORDS, "other"]), (WORDS, ["other"])):
            not_these = ~dialect.among(tx, _moments.c.word, these)
            assert tx.execute(query.where(not_these)).scalars().all() == others
        numbers = dialect.among(tx, _moments.c.id, range(3, 100_000))
        assert len(tx.execute(query.where(numbers)).all()) == 8


def test_membership_of_many_is_found_by_the_index(database: Database) -> None:
    """Five hundred of forty thousand schedules: the plan names the index and scans no table."""
    database.upgrade()
    with database.begin() as tx:
        tx.execute(sa.insert(locations).values(cluster="c", name="l"))
        columns = ["id", "location_id", "name", "version", "origin", "status", "spec",
                   "created_at", "updated_at", "status_at"]  # fmt: skip
        rows = [
            (f"{n:026}", 1, f"s{n}", 1, "code", "enabled", "x" * 400, NOON, NOON, NOON)
            for n in range(40_000)
        ]
        bulk_rows.insert_rows(tx, schedules, columns, rows)
        tx.execute(sa.text("analyze"))
        wanted = [f"{n:026}" for n in range(0, 40_000, 80)]
        query = sa.select(schedules.c.name).where(dialect.among(tx, schedules.c.id, wanted))
        plan = _plan(tx, query)
        assert "Index" in plan or "USING INDEX" in plan
        assert "Seq Scan" not in plan
        assert "SCAN arctic_schedules" not in plan
        assert len(tx.execute(query).all()) == 500


def test_rows_in_bulk_are_stored_as_they_are(database: Database) -> None:
    """Also what means something to ``COPY``; and changed in bulk by their ids."""
    berlin = (NOON + timedelta(microseconds=1)).astimezone(timezone(timedelta(hours=1)))
    words = [*WORDS, "tab\tnew\nline\r\\N", "\\N", "\\.", None]
    rows = [(n, berlin if n % 2 else None, word) for n, word in enumerate(words)]
    stored = sa.select(_moments).order_by(_moments.c.id)
    with database.begin() as tx:
        if tx.dialect.name == "postgresql":
            tx.execute(sa.text("set local time zone 'America/New_York'"))
        bulk_rows.insert_rows(tx, _moments, ["id", "at", "word"], rows)
        bulk_rows.insert_rows(tx, _moments, ["id", "at", "word"], [])
        assert [tuple(row) for row in tx.execute(stored)] == rows
        changed = [(NOON, word, n) for n, _, word in reversed(rows)]
        bulk_rows.update_rows(tx, _moments, ["at", "word"], changed)
        assert [tuple(row) for row in tx.execute(stored)] == [(n, NOON, w) for n, _, w in rows]


def test_a_naive_moment_in_bulk_is_refused(database: Database) -> None:
    """It would be read in the time zone of the session, or of the machine."""
    naive = datetime(2026, 1, 1)
    with pytest.raises(TypeError, match="naive"), database.begin() as tx:
        bulk_rows.insert_rows(tx, _moments, ["id", "at"], [(1, naive)])
    with pytest.raises(TypeError, match="naive"), database.begin() as tx:
        tx.execute(sa.insert(_moments).values(id=1))
        bulk_rows.update_rows(tx, _moments, ["at"], [(naive, 1)])


def test_a_connection_lost_in_bulk_is_the_same_error(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    """Whatever part of the driver notices."""
    database = Database(postgres_server.url(postgres_database))
    writes: list[Callable[[sa.Connection], object]] = [
        lambda tx: bulk_rows.insert_rows(tx, _moments, ["id"], [(1,)]),
        lambda tx: bulk_rows.update_rows(tx, _moments, ["word"], [("w", 1)]),
    ]
    for write in writes:
        with pytest.raises(DatabaseUnavailable), database.begin() as tx:
            own = tx.execute(sa.text("select pg_backend_pid()")).scalar_one()
            postgres_server.end_backend(own)
            write(tx)
    assert database.revision() is None, "the pool has forgotten the lost connections"
    database.close()


def test_text_for_people_is_stored_whatever_is_in_it(database: Database) -> None:
    """What no database holds is replaced; other text is left as it is."""
    odd, even = "a\0b\ud800c\udcff", "a\ufffdb\ufffdc\ufffd"
    fine = "ü 😀 \\ \t"
    texts = sa.Table(
        "texts", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("word", EscapedText),
    )  # fmt: skip
    with database.begin() as tx:
        texts.create(tx)
        tx.execute(sa.insert(texts), [{"id": 1, "word": odd}, {"id": 2, "word": fine}])
        bulk_rows.insert_rows(tx, texts, ["id", "word"], [(3, odd), (4, fine), (5, None)])
        tx.execute(sa.insert(texts), [{"id": 6, "word": "x"}])
        bulk_rows.update_rows(tx, texts, ["word"], [(odd, 6)])
        found = list(tx.execute(sa.select(texts.c.word).order_by(texts.c.id)).scalars())
    assert found == [even, fine, even, fine, None, even]


def test_a_server_that_may_not_write_any_more_does_not_answer(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    """As after a failover: whoever waits for the database waits for the new one."""
    database = Database(postgres_server.url(postgres_database))
    with database.begin() as tx:
        _moments.metadata.create_all(tx)
    for write in (
        lambda tx: tx.execute(sa.insert(_moments).values(id=1)),
        lambda tx: bulk_rows.insert_rows(tx, _moments, ["id"], [(1,)]),
    ):
        with pytest.raises(DatabaseUnavailable, match="read-only"), database.begin() as tx:
            tx.execute(sa.text("set transaction read only"))
            write(tx)
    # A statement after one that failed is a fault of ours, and not one of the server.
    with pytest.raises(sa.exc.InternalError), database.begin() as tx:
        with pytest.raises(sa.exc.ProgrammingError):
            tx.execute(sa.text("select * from nothing"))
        tx.execute(sa.text("select 1"))
    database.close()


def test_no_connection_that_is_free_is_no_answer(database: Database) -> None:
    """Who waits for the database tries again."""
    with pytest.raises(DatabaseUnavailable, match="free: QueuePool limit"), database.begin():
        raise sa.exc.TimeoutError("QueuePool limit of size 5 overflow 10 reached")


def _plan(tx: sa.Connection, query: sa.Select[Any]) -> str:
    compiled = query.compile(tx.engine)
    prefix = "explain query plan " if tx.dialect.name == "sqlite" else "explain "
    parameters: Any = compiled.params
    if compiled.positional:
        parameters = tuple(compiled.params[name] for name in compiled.positiontup or ())
    return "\n".join(str(row) for row in tx.exec_driver_sql(prefix + str(compiled), parameters))


def test_a_block_that_fails_leaves_nothing_behind(database: Database) -> None:
    """All of a block, or nothing of it."""
    with pytest.raises(ZeroDivisionError), database.begin() as tx:
        tx.execute(sa.insert(_moments).values(id=1))
        raise ZeroDivisionError
    with database.read() as tx:
        assert tx.execute(sa.select(_moments.c.id)).all() == []


def _add_up(url: str, times: int, barrier: Any, failed: Any) -> None:
    try:
        database = Database(url)
        barrier.wait(PATIENCE_SECONDS)
        for _ in range(times):
            with database.begin() as tx:
                query = sa.select(_moments.c.word).where(_moments.c.id == 1).with_for_update()
                value = int(tx.execute(query).scalar_one())
                tx.execute(sa.update(_moments).values(word=str(value + 1)))
    except Exception as error:
        failed.put(repr(error))


def test_two_writers_at_once_lose_no_update(database: Database, empty_url: str) -> None:
    """Each reads, adds one and writes, in processes of their own; a busy database is waited for."""
    with database.begin() as tx:
        tx.execute(sa.insert(_moments).values(id=1, word="0"))
    database.close()
    context = multiprocessing.get_context("fork")
    barrier, failed = context.Barrier(3), context.Queue()
    processes = [
        context.Process(target=_add_up, args=(empty_url, 100, barrier, failed)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE_SECONDS)
    assert failed.empty(), failed.get()
    with database.read() as tx:
        assert tx.execute(sa.select(_moments.c.word)).scalar_one() == "300"


@pytest.mark.parametrize(("name", "waits"), [("x", True), ("y", False)], ids=["same", "control"])
@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
def test_a_locked_name_is_waited_for(database: Database, name: str, waits: bool) -> None:
    """Until its transaction ends; another name is free. SQLite locks everything anyway."""
    done = threading.Event()

    def lock() -> None:
        with database.begin() as tx:
            dialect.lock(tx, name)
        done.set()

    waiting = sa.text("select count(*) from pg_locks where locktype = 'advisory' and not granted")
    with database.begin() as tx:
        dialect.lock(tx, "x")
        other = threading.Thread(target=lock)
        other.start()
        while not done.is_set() and tx.execute(waiting).scalar_one() == 0:
            done.wait(0.01)
        assert done.is_set() is not waits
    other.join(20)
    assert done.is_set()


def test_a_reader_waits_for_no_writer(database: Database, empty_url: str) -> None:
    """While a writer's block is open, a reader sees what was before it."""
    other = Database(empty_url)
    with database.begin() as tx:
        tx.execute(sa.insert(_moments).values(id=1))
        with other.read() as reading:
            assert reading.execute(sa.select(_moments.c.id)).all() == []
    with other.read() as reading:
        assert len(reading.execute(sa.select(_moments.c.id)).all()) == 1
    other.close()


@pytest.mark.usefixtures("with_fsync")
def test_sqlite_keeps_what_was_committed(tmp_path: Any) -> None:
    """Write-ahead log, full synchronisation, foreign keys: on every connection of the pool."""
    database = Database(f"sqlite:///{tmp_path / 'arctic.db'}")
    with database.read() as one, database.read() as two:
        for tx in (one, two):
            pragmas = ("journal_mode", "synchronous", "foreign_keys")
            assert [tx.exec_driver_sql(f"pragma {name}").scalar_one() for name in pragmas] == [
                "wal",
                2,
                1,
            ]
    database.close()


def test_sqlite_does_not_wait_for_what_is_no_lock(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, where it cannot make the files beside the database."""

    def sleep(seconds: float) -> None:
        raise AssertionError("it waits for a lock")

    url = f"sqlite:///{tmp_path / 'arctic.db'}"
    made = Database(url)
    made.upgrade()
    made.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr("arctic_orchestration.state.dialect.time.sleep", sleep)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(DatabaseUnavailable, match="disk I/O error"), Database(url).read():
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
