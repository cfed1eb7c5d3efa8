"""Dagster's event log in Postgres: the statements for the queries of ``watermark``."""

import time
import zlib
from collections.abc import Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy
from dagster_postgres import PostgresEventLogStorage, PostgresRunStorage
from sqlalchemy.exc import DBAPIError

from arctic_orchestration import postgres_connections
from arctic_orchestration.connection_pools import PatientPool
from arctic_orchestration.dagster_internals import connect_postgres, token_provider_of
from arctic_orchestration.errors import ConfigurationError, DatabaseUnavailable, LogWentBack
from arctic_orchestration.event_log import watermark
from arctic_orchestration.event_log.feed import FeedMode
from arctic_orchestration.event_log.log_rows import COLUMNS, TYPES
from arctic_orchestration.event_log.ranges import IdRanges
from arctic_orchestration.event_log.watermark import ReaderState, Row
from arctic_orchestration.state.connections import SharedEngine, shared_engine

#: In lagged mode, how long a late commit is waited for.
LAG = timedelta(minutes=2)
_BUCKETS = 4
_PAUSE_SECONDS = 0.005

_HEAD = "select coalesce(max(id), 0) from event_logs"
_HOLDERS = """
    select array(
        select virtualtransaction from pg_locks
        where locktype = 'relation' and granted and relation = 'event_logs'::regclass
          and database = (select oid from pg_database where datname = current_database())
          and mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
                       'AccessExclusiveLock')),
        pg_postmaster_start_time()::text, pg_is_in_recovery(),
        extract(epoch from clock_timestamp())
"""
_PRECONDITIONS = """
    select s.seqcache, s.seqincrement, s.seqcycle, pg_is_in_recovery(), c.relkind::text
    from pg_class c left join pg_sequence s
      on s.seqrelid = pg_get_serial_sequence('event_logs', 'id')::regclass
    where c.oid = 'event_logs'::regclass
"""
_SEQUENCE = """
    select pg_get_serial_sequence('event_logs', 'id'),
           has_sequence_privilege(pg_get_serial_sequence('event_logs', 'id'), 'SELECT')
"""
_VISIBLE = """
    select min(id), max(id) from (
        select id, id - row_number() over (order by id) as island from (
            select id from event_logs where id > %s and id <= %s order by id limit %s
        ) as numbers
    ) as numbered
    group by island
"""
_ROWS_OF_ONE_RANGE = f"""
    select {COLUMNS} from event_logs
    where id >= %s and id <= %s and dagster_event_type = any(%s) order by id limit %s
"""
_ROWS = f"""
    select {COLUMNS} from unnest(%s::bigint[], %s::bigint[]) as piece(low, high)
    join event_logs on id >= low and id <= high
    where dagster_event_type = any(%s) order by id limit %s
"""


#: the zone of sessions, and whether it has the time of UTC in winter and in summer
_ZONE = """
    select current_setting('TimeZone'),
           bool_and(at at time zone current_setting('TimeZone') = at at time zone 'UTC')
    from unnest(array['2026-01-01', '2026-07-01']::timestamp[]) as moments(at)
"""
#: the number of last rows that a position keeps, to detect reused ids
_TAIL = 8
_MARKED = """
    select id, run_id, dagster_event_type, extract(epoch from "timestamp")::text, asset_key,
           "partition" from event_logs
"""
_LAST = f"{_MARKED} where id <= %s order by id desc limit %s"
_SAME = f"{_MARKED} where id = any(%s)"
#: id and fingerprint of a row
Mark = tuple[int, int]
_SINCE = """select min(id) from event_logs where "timestamp" at time zone 'UTC' >= %s"""


class PostgresSql:
    """Runs statements on one Postgres database, each in a transaction of its own on the primary.

    All of a process that read one database share a connection: Dagster's storages, too, where
    these reuse theirs.
    """

    placeholder = "%s"
    #: whether the row ``e`` is from before its asset ``k`` was wiped. Events are in UTC, the column
    #: of the wipe in the zone of the session that wrote it: within a day of it, the details decide,
    #: which takes 25 microseconds. A cast to JSON might fail.
    is_wiped = (
        "(k.wipe_timestamp - interval '1 day' >= e.\"timestamp\" "
        "or k.wipe_timestamp + interval '1 day' >= e.\"timestamp\" "
        "and to_timestamp(substring(k.asset_details from "
        """'"last_wipe_timestamp": *([0-9]+[.]*[0-9]*)')::float8) """
        "at time zone 'UTC' >= e.\"timestamp\")"
    )

    def __init__(self, storage: PostgresEventLogStorage | PostgresRunStorage) -> None:
        self._shared: SharedEngine | None = None
        if reused := postgres_connections.reused(storage.postgres_url):
            self._engine = reused
        else:
            key = ("event log", storage.postgres_url, token_provider_of(storage))
            self._shared = shared_engine(self, key, partial(_engine, storage))
            self._engine = self._shared.engine

    @contextmanager
    def session(self) -> Any:
        """A function that runs a statement and returns its rows, on one connection.

        Errors:
            DatabaseUnavailable: the server did not answer, or ended the connection.
        """
        try:
            with self._engine.connect() as connection:
                raw: Any = connection.connection

                def run(statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
                    with raw.cursor() as cursor:
                        cursor.execute(statement, parameters)
                        return list(cursor.fetchall())

                try:
                    yield run
                except raw.dbapi_connection.Error as error:
                    connection.invalidate()
                    raise DatabaseUnavailable(f"Dagster's Postgres: {error}") from error
        except (DBAPIError, sqlalchemy.exc.TimeoutError) as error:
            raise DatabaseUnavailable(f"Dagster's Postgres: {error}") from error

    def rows_in(self, statement: str, values: Sequence[str], *before: Any) -> list[Row]:
        """Returns rows of a statement whose ``{in}`` stands for a membership test in ``values``."""
        with self.session() as run:
            return list(run(statement.replace("{in}", "= any(%s)"), [*before, list(values)]))

    @staticmethod
    def table_of(values: Sequence[Any]) -> tuple[str, Any]:
        """Returns a table ``(value)`` of some values for a statement, and its parameter."""
        kind = "bigint" if values and isinstance(values[0], int) else "text"
        return f"(select value from unnest(%s::{kind}[]) as given(value))", list(values)

    @staticmethod
    def whole_number(text: str) -> str:
        """Returns an expression for the number that a text column has; 0 if it has none."""
        return f"case when {text} ~ '^[-+]?[0-9]{{1,18}}$' then {text}::bigint else 0 end"

    @staticmethod
    def version() -> object:
        """Never equal to an earlier one: Postgres has no cheap way to detect changed rows."""
        return object()

    @staticmethod
    def moment_before(at: datetime) -> datetime:
        """Returns a moment in the form of Dagster's timestamp columns, or an earlier one.

        The columns have no zone, and the zone of Dagster's session converts what it writes: in New
        York they are five hours behind UTC.
        """
        return at.astimezone(UTC).replace(tzinfo=None) - timedelta(days=1)

    def close(self) -> None:
        """Closes the connections, unless others share them."""
        if self._shared is not None:
            self._shared.remove(self)


def _engine(storage: PostgresEventLogStorage | PostgresRunStorage) -> sqlalchemy.Engine:
    # Dagster's own engine opens a connection for each statement; this one keeps one.
    return connect_postgres(
        storage,
        isolation_level="AUTOCOMMIT",
        poolclass=PatientPool,
        pool_size=1,
        max_overflow=14,
        pool_recycle=1800,
    )


class PostgresLog:
    """Reads ``event_logs`` in Postgres, with the exact method where the server allows it."""

    kind = "postgres"

    def __init__(self, storage: PostgresEventLogStorage, *, lag: timedelta = LAG) -> None:
        self.sql = PostgresSql(storage)
        self._lag = lag
        self._inexact_because: str | None = None
        self._checked = ""

    @property
    def mode(self) -> FeedMode:
        """Whether the exact method can be used; queries the server the first time."""
        if not self._checked:
            with self.sql.session() as run:
                self._holders(run)
        return FeedMode.LAGGED if self._inexact_because else FeedMode.EXACT

    @property
    def mode_reason(self) -> str:
        """The reason of the mode, as a sentence."""
        if self.mode is FeedMode.EXACT:
            return "ids are handed out one by one and the locks of writers are visible"
        seconds = int(self._lag.total_seconds())
        return (
            f"{self._inexact_because}; what is committed more than {seconds} s after later "
            f"rows may be missed"
        )

    @property
    def lag(self) -> timedelta | None:
        """How long late commits are waited for; None: without limit."""
        return self._lag if self._inexact_because else None

    def read(self, state: Any, limit: int) -> tuple[list[Row], dict[str, Any], bool]:
        """Returns rows, next state, and whether more is there now."""
        start = ReaderState.from_json(state) if state is not None else ReaderState()
        tail = _tail_of(state)
        with self.sql.session() as run:
            self._check_tail(run, tail)
            outcome = self._result_of(run, watermark.poll(start, limit))
            if outcome.state.top != start.top or not tail:
                tail = _tail(run, outcome.state.top)
        return list(outcome.rows), _state_of(outcome.state, tail), outcome.more

    def end(self) -> dict[str, Any]:
        """Returns the state "from now on"."""
        with self.sql.session() as run:
            state: ReaderState = self._result_of(run, watermark.from_now())
            return _state_of(state, _tail(run, state.top))

    def before(self, event_id: int) -> dict[str, Any]:
        """Returns the state whose next reading begins with the event with this id."""
        with self.sql.session() as run:
            # Above the largest id it would look as if the ids had started again.
            state = ReaderState(watermark=max(min(event_id - 1, run(_HEAD)[0][0]), 0))
            return _state_of(state, _tail(run, state.watermark))

    def delivered(self, state: Any) -> tuple[int, IdRanges]:
        """Returns the id up to which all rows were delivered, and the delivered ids above it."""
        reached = ReaderState.from_json(state) if state is not None else ReaderState()
        return reached.watermark, reached.seen

    def first_since(self, moment: datetime) -> int | None:
        """Returns the id of the first event that is not older than a moment, or None."""
        with self.sql.session() as run:
            found = run(_SINCE, (moment,))[0][0]
        return None if found is None else int(found)

    def other_zone(self) -> str | None:
        """Returns the server's time zone, or None if it is UTC, which Dagster assumes."""
        with self.sql.session() as run:
            zone, is_utc = run(_ZONE)[0]
        return None if is_utc else str(zone)

    def _check_tail(self, run: Any, tail: Sequence[Mark]) -> None:
        """Checks that the last rows are unchanged, as far as they still exist.

        An id is never reused, unless the sequence went back. A missing row was wiped, or deleted
        with its run.

        Errors:
            LogWentBack: one of them was replaced.
        """
        if not tail:
            return
        known = dict(tail)
        for row in run(_SAME, (list(known),)):
            if _mark(row)[1] != known[row[0]]:
                raise LogWentBack(f"the event with id {row[0]} is not the one that was read")

    def _result_of(self, run: Any, queries: Any) -> Any:
        try:
            query = next(queries)
            while True:
                query = queries.send(self._answer(run, query))
        except StopIteration as end:
            return end.value

    def _answer(self, run: Any, query: Any) -> Any:
        match query:
            case watermark.HeadQuery():
                return run(_HEAD)[0][0]
            case watermark.HoldersQuery():
                return self._holders(run)
            case watermark.VisibleQuery(after, upto, limit):
                return IdRanges(run(_VISIBLE, (after, upto, limit)))
            case watermark.RowsQuery(ranges, limit):
                return self._rows(run, list(ranges), limit)
            case watermark.LastIssuedQuery():
                return self._last_issued(run)
            case watermark.Pause():
                time.sleep(_PAUSE_SECONDS)
        return None

    def _rows(self, run: Any, ranges: list[tuple[int, int]], limit: int) -> Any:
        if len(ranges) == 1:
            low, high = ranges[0]
            return run(_ROWS_OF_ONE_RANGE, (low, high, list(TYPES), limit))
        lows, highs = [low for low, _ in ranges], [high for _, high in ranges]
        return run(_ROWS, (lows, highs, list(TYPES), limit))

    def _holders(self, run: Any) -> watermark.Holders:
        names, boot, in_recovery, now = run(_HOLDERS)[0]
        if self._checked != f"{boot}/{in_recovery}":
            self._inexact_because = _why_inexact(run)
            self._checked = f"{boot}/{in_recovery}"
        if not self._inexact_because:
            return watermark.Holders(basis=boot, present=frozenset(names))
        # Spans of time take the place of transactions: each is a holder until the lag is over.
        current = int(float(now) / self._lag.total_seconds() * _BUCKETS)
        spans = frozenset(f"span {current - age}" for age in range(_BUCKETS + 1))
        return watermark.Holders(basis="lagged", present=spans, complete=False)

    def _last_issued(self, run: Any) -> int | None:
        name, readable = run(_SEQUENCE)[0]
        if not name or not readable:
            return None
        value, is_called = run(f"select last_value, is_called from {name}")[0]
        return int(value) if is_called else int(value) - 1


def _mark(row: Row) -> Mark:
    return row[0], zlib.crc32(repr(tuple(row)).encode())


def _tail(run: Any, top: int) -> list[Mark]:
    """Returns the last rows up to an id, of any type."""
    return [_mark(row) for row in run(_LAST, (top, _TAIL))]


def _state_of(state: ReaderState, tail: Sequence[Mark]) -> dict[str, Any]:
    return {**state.to_json(), "tail": [list(mark) for mark in tail]}


def _tail_of(state: Any) -> list[Mark]:
    found = state.get("tail", ()) if state is not None else ()
    return [(int(number), int(fingerprint)) for number, fingerprint in found]


def _why_inexact(run: Any) -> str | None:
    found = run(_PRECONDITIONS)
    if not found:
        raise ConfigurationError("Dagster's Postgres has no table event_logs; run dagster once")
    cache, increment, cycle, in_recovery, relkind = found[0]
    if in_recovery:
        return "the server is a standby, which does not see the locks of its primary"
    if relkind != "r":
        return f"event_logs is not an ordinary table (relkind {relkind})"
    if cache is None:
        return "the ids of event_logs do not come from a sequence"
    if cache != 1 or increment != 1 or cycle:
        return (
            f"the sequence of event_logs has cache {cache}, increment {increment}"
            f"{' and cycles' if cycle else ''}, so ids are not handed out in order"
        )
    return None
