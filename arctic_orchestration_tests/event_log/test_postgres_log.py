"""The exact method's statements on a real Postgres."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import DagsterInstance
from dagster_postgres.event_log import PostgresEventLogStorage

from arctic_orchestration.errors import DatabaseUnavailable, LogWentBack
from arctic_orchestration.event_log import postgres_log, watermark
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.feed import FeedMode, Position
from arctic_orchestration.event_log.postgres_log import PostgresLog
from arctic_orchestration_tests.event_log.writers import _insert, entry
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.templates import give_zone


class Lake:
    """An instance on Postgres, writers with transactions of their own, and a reader."""

    def __init__(self, instance: DagsterInstance, server: PostgresServer) -> None:
        self.server = server
        storage: Any = instance.event_log_storage
        self.storage = storage
        self.database = storage.postgres_url.rsplit("/", 1)[1]
        self.instance = instance
        self.log = DagsterLog(instance)
        self.stored: str | None = None

    def writer(self) -> Any:
        return self.server.connect(self.database)

    def insert(self, connection: Any, *partitions: str) -> None:
        with connection.cursor() as cursor:
            for partition in partitions:
                _insert(self.storage, cursor, partition)

    def arrive(self, *partitions: str) -> None:
        self.storage.store_event_batch([entry(partition) for partition in partitions])

    def copy(self, count: int) -> None:
        """Many rows at once, as copies of the first."""
        self.execute(
            'insert into event_logs (run_id, event, dagster_event_type, "timestamp", asset_key, '
            f'"partition") select run_id, event, dagster_event_type, "timestamp", asset_key, '
            f"'p' || i from (select * from event_logs order by id limit 1) as one, "
            f"generate_series(1, {count}) as i"
        )

    def execute(self, statement: str) -> None:
        self.server.execute(statement, self.database)

    def read(self, limit: int = 100) -> list[str]:
        """The partition keys that are new; the position goes through its stored form."""
        position = Position.from_json(self.stored) if self.stored else None
        batch = self.log.read(position, limit)
        self.stored = batch.position.to_json()
        return [event.partition or "" for event in batch.events]


@pytest.fixture
def lake(
    dagster_instance: Callable[[str], DagsterInstance], postgres_server: PostgresServer
) -> Lake:
    return Lake(dagster_instance("postgres"), postgres_server)


def test_a_late_commit_comes_late_and_once(lake: Lake) -> None:
    """1 is open while 2 is committed: 2 comes at once, 1 when it is committed."""
    writer = lake.writer()
    lake.insert(writer, "late")
    lake.arrive("early")
    assert lake.read() == ["early"]
    assert lake.read() == []
    writer.commit()
    assert lake.read() == ["late"]
    assert lake.read() == []


def test_a_rolled_back_id_holds_nothing_up(lake: Lake) -> None:
    """The id is gone; the position settles behind it."""
    writer = lake.writer()
    lake.insert(writer, "never")
    lake.arrive("a")
    assert lake.read() == ["a"]
    writer.rollback()
    assert lake.read() == []
    assert lake.stored is not None
    state = Position.from_json(lake.stored).state
    assert (state["settled"], state["zones"], state["seen"]) == (2, [], [])


def test_a_transaction_that_is_prepared_meanwhile_is_waited_for(lake: Lake) -> None:
    """PREPARE TRANSACTION changes its name in pg_locks; a hard restart does not end it."""
    writer = lake.writer()
    lake.insert(writer, "prepared")
    lake.arrive("a")
    assert lake.read() == ["a"]
    with writer.cursor() as cursor:
        cursor.execute("prepare transaction 'two-phase'")
    writer.close()
    assert lake.read() == []
    lake.server.restart(immediate=True)
    lake.arrive("b")
    assert lake.read() == ["b"]
    lake.execute("commit prepared 'two-phase'")
    assert lake.read() == ["prepared"]
    assert lake.read() == []


def test_one_page_after_the_other_beside_an_open_transaction(lake: Lake) -> None:
    """2,000 rows in pages of 300 while an older transaction is open; then its row comes."""
    lake.arrive("first")
    assert lake.read() == ["first"]
    writer = lake.writer()
    lake.insert(writer, "late")
    lake.copy(2000)
    pages = [lake.read(300) for _ in range(8)]
    assert [len(page) for page in pages] == [300] * 6 + [200, 0]
    assert len({partition for page in pages for partition in page}) == 2000
    assert lake.stored is not None
    assert len(lake.stored) < 300
    writer.commit()
    assert lake.read() == ["late"]


def test_an_idle_poll_behind_an_open_transaction_reads_no_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was delivered is not requested again as long as nobody ends."""
    lake.arrive("first")
    writer = lake.writer()
    lake.insert(writer, "late")
    lake.copy(500)
    assert len(lake.read(1000)) == 501
    queries: list[object] = []
    answer = PostgresLog._answer

    def spy(self: PostgresLog, run: Any, query: object) -> Any:
        queries.append(type(query))
        return answer(self, run, query)

    monkeypatch.setattr(PostgresLog, "_answer", spy)
    assert lake.read() == []
    assert queries == [watermark.HeadQuery, watermark.HoldersQuery]
    writer.rollback()


def test_from_now_on_leaves_out_the_past_and_keeps_what_is_open(lake: Lake) -> None:
    """Committed before: never delivered. Open at that moment: delivered, though its id is older."""
    lake.arrive("past")
    writer = lake.writer()
    lake.insert(writer, "open")
    lake.arrive("past too")
    lake.stored = lake.log.end().to_json()
    assert lake.read() == []
    lake.arrive("future")
    assert lake.read() == ["future"]
    writer.commit()
    assert lake.read() == ["open"]
    lake.stored = lake.log.end().to_json()
    assert lake.read() == []


def test_select_on_the_table_is_enough(lake: Lake) -> None:
    """A role that may read one table sees the locks of others and is exact."""
    lake.execute("drop role if exists reader")
    lake.execute("create role reader login")
    lake.execute("grant select on event_logs to reader")
    url = lake.server.url(lake.database, user="reader")
    log = PostgresLog(PostgresEventLogStorage(url, should_autocreate_tables=False))
    try:
        assert log.mode is FeedMode.EXACT
        writer = lake.writer()
        lake.insert(writer, "late")
        lake.arrive("early")
        rows, state, _ = log.read(None, 10)
        assert [row[4] for row in rows] == ["early"]
        writer.commit()
        rows, state, _ = log.read(state, 10)
        assert [row[4] for row in rows] == ["late"]
        # Not even the sequence may be read: a head below the position is then taken as it is.
        lake.execute("delete from event_logs")
        assert log.read(state, 10)[0] == []
    finally:
        log.sql.close()
        lake.execute("revoke all on event_logs from reader")
        lake.execute("drop role reader")


def test_ids_that_begin_again_stop_the_reader(lake: Lake) -> None:
    """After a DELETE nothing is new; after TRUNCATE ... RESTART IDENTITY a person decides."""
    lake.arrive("a", "b", "c")
    assert lake.read() == ["a", "b", "c"]
    lake.execute("delete from event_logs where id >= 2")
    assert lake.read() == []
    lake.execute("truncate event_logs restart identity")
    lake.arrive("d")
    with pytest.raises(LogWentBack, match="is not the one that was read"):
        lake.read()
    lake.stored = lake.log.before(1).to_json()
    assert lake.read() == ["d"]
    assert lake.read() == []


@pytest.mark.parametrize("since", [1, 70])
def test_a_restored_log_stops_the_reader(lake: Lake, since: int) -> None:
    """454 rows, of which the last 50 are lost; then one new row, or 70, under ids that were used.

    Without the remembered rows, one new row delivers all 405 again, and of 70 new ones 50 are lost.
    """
    lake.arrive("first")
    lake.copy(453)
    assert len(lake.read(limit=1_000)) == 454
    lake.execute("delete from event_logs where id > 404")
    lake.execute("select setval(pg_get_serial_sequence('event_logs', 'id'), 404)")
    lake.arrive(*(f"new {number}" for number in range(since)))
    before = lake.stored
    for _ in range(2):
        with pytest.raises(LogWentBack, match="Dagster's event log went back"):
            lake.read(limit=1_000)
    assert lake.stored == before
    lake.stored = lake.log.before(405).to_json()
    assert lake.read(limit=1_000) == [f"new {number}" for number in range(since)]
    assert lake.read() == []


def test_rows_that_are_wiped_or_deleted_do_not_stop_the_reader(lake: Lake) -> None:
    """The newest ones, all of them; also when the location begins from now."""
    lake.arrive(*map(str, range(20)))
    assert len(lake.read()) == 20
    lake.execute("delete from event_logs where id > 15")
    assert lake.read() == []
    lake.stored = lake.log.end().to_json()
    lake.execute("delete from event_logs")
    assert lake.read() == []
    lake.arrive("next")
    assert lake.read() == ["next"]


@pytest.mark.parametrize("event_id", [4, 1_000_000, 10**30])
def test_an_event_that_is_not_there_yet_begins_at_the_end(lake: Lake, event_id: int) -> None:
    """As on SQLite: ``arctic feed restart --from-event`` with a digit too many stops nothing."""
    lake.arrive("1", "2", "3")
    lake.stored = lake.log.before(event_id).to_json()
    assert lake.read() == []
    lake.arrive("4")
    assert lake.read() == ["4"]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_the_first_event_since_a_moment(lake: Lake, zone: str) -> None:
    """By the moments of events, whatever the server's time zone; none is younger than the last."""
    give_zone(lake.instance, lake.server, zone)
    begun = datetime.now(UTC) - timedelta(seconds=1)
    lake.arrive("a", "b")
    assert lake.log.first_since(begun) == 1
    assert lake.log.first_since(datetime.now(UTC) + timedelta(seconds=1)) is None


def test_a_sequence_with_a_cache_makes_the_feed_lagged(lake: Lake) -> None:
    """The mode and its reason say so; a late commit within the lag still comes, once."""
    lake.execute("alter sequence event_logs_id_seq cache 20")
    assert lake.log.mode is FeedMode.LAGGED
    assert "cache 20" in lake.log.mode_reason
    assert "120 s" in lake.log.mode_reason
    writer = lake.writer()
    lake.insert(writer, "late")
    lake.arrive("early")
    assert lake.read() == ["early"]
    writer.commit()
    assert lake.read() == ["late"]
    assert lake.read() == []


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("alter sequence event_logs_id_seq increment 2", "cache 1, increment 2, so ids are not"),
        ("alter sequence event_logs_id_seq cycle", "cache 1, increment 1 and cycles, so ids"),
        ("alter sequence event_logs_id_seq owned by none", "do not come from a sequence"),
        (
            "alter table event_logs rename to kept; create view event_logs as select * from kept",
            "is not an ordinary table (relkind v)",
        ),
    ],
)
def test_each_condition_of_the_exact_method_is_required(
    lake: Lake, statement: str, reason: str
) -> None:
    """Without one of them, a watermark could pass ids that are not committed yet."""
    lake.execute(statement)
    assert lake.log.mode is FeedMode.LAGGED
    assert reason in lake.log.mode_reason


def test_a_standby_makes_the_feed_lagged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not see the locks of the transactions that write on its primary."""
    for name in ("_PRECONDITIONS", "_HOLDERS"):
        statement = getattr(postgres_log, name)
        assert "pg_is_in_recovery()" in statement
        monkeypatch.setattr(postgres_log, name, statement.replace("pg_is_in_recovery()", "true"))
    assert lake.log.mode is FeedMode.LAGGED
    assert "the server is a standby" in lake.log.mode_reason


def test_after_the_lag_a_lagged_feed_forgets(lake: Lake) -> None:
    """With a lag of next to nothing, what is not committed by then is missed: not exact."""
    lake.execute("alter sequence event_logs_id_seq cache 20")
    log = PostgresLog(lake.storage, lag=timedelta(milliseconds=1))
    writer = lake.writer()
    lake.insert(writer, "late")
    lake.arrive("early")
    rows, state, _ = log.read(None, 10)
    assert [row[4] for row in rows] == ["early"]
    while state["zones"]:
        rows, state, _ = log.read(state, 10)
        assert rows == []
    writer.commit()
    assert log.read(state, 10)[0] == []
    log.sql.close()


def test_going_from_lagged_to_exact_keeps_what_is_open(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The basis changes, so everyone who writes at that moment is waited for."""
    monkeypatch.setattr(postgres_log, "_why_inexact", lambda run: "a standby")
    writer = lake.writer()
    lake.insert(writer, "late")
    lake.arrive("early")
    assert lake.read() == ["early"]
    monkeypatch.setattr(postgres_log, "_why_inexact", lambda run: None)
    lake.log = DagsterLog(lake.instance)
    assert lake.read() == []
    assert lake.log.mode is FeedMode.EXACT
    writer.commit()
    assert lake.read() == ["late"]


def test_a_server_that_does_not_answer_changes_nothing(lake: Lake) -> None:
    """The error says what did not answer; afterwards reading goes on from the same position."""
    lake.arrive("a")
    assert lake.read() == ["a"]
    lake.server.stop(immediate=True)
    try:
        with pytest.raises(DatabaseUnavailable, match="Dagster's Postgres"):
            lake.read()
    finally:
        lake.server.start()
    lake.arrive("b")
    assert lake.read() == ["b"]
