"""All differences between SQLite and Postgres.

SQLite has one writer: each transaction begins as ``IMMEDIATE``, so the transaction itself replaces
the row locks of Postgres, and ``FOR UPDATE`` has no effect.
"""

import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect as SqlDialect

from arctic_orchestration import private_files
from arctic_orchestration.connection_pools import PatientPool, leave_read_only_servers

#: How many connections to Postgres a pool has, and how many more while these wait for locks: all
#: parts of a process share one, in which a dozen threads may do so at once.
_LIMIT, _MORE = 2, 28
#: how long a SQLite writer waits for another one, and any caller for a connection to Postgres
BUSY_SECONDS = 60.0


class UtcTime(sa.types.TypeDecorator[datetime]):
    """An aware UTC moment: ``timestamptz`` on Postgres, sortable text on SQLite."""

    impl = sa.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: SqlDialect) -> sa.types.TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(postgresql.TIMESTAMP(timezone=True))
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: datetime | None, dialect: SqlDialect) -> Any:
        if value is None:
            return None
        check_aware(value)
        return value if dialect.name == "postgresql" else utc_text(value)

    def process_result_value(self, value: Any, dialect: SqlDialect) -> datetime | None:
        if value is None:
            return None
        if isinstance(value, str):
            return datetime.fromisoformat(value + "+00:00")
        return value.astimezone(UTC)  # type: ignore[no-any-return]


class EscapedText(sa.types.TypeDecorator[str]):
    """Text for people; characters that no database can store are replaced.

    Errors of other software may contain anything, and an unstorable reason must not prevent the
    write of what it explains.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: SqlDialect) -> str | None:
        return None if value is None else storable(value)


def storable(text: str) -> str:
    """Returns the text with a mark in place of each NUL and of each lone surrogate."""
    return _UNSTORABLE.sub("\ufffd", text)


_UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")


def check_aware(value: datetime) -> None:
    if value.tzinfo is None:
        raise TypeError(f"a naive datetime cannot be stored: {value!r}")


#: options of a transaction that only reads: its statements see one snapshot, and wait for no writer
READS: Mapping[str, Mapping[str, Any]] = {
    "postgresql": {"isolation_level": "REPEATABLE READ"},
    "sqlite": {"arctic_begin": "DEFERRED"},
}
#: the length of a moment in SQLite, without the zone, which is always UTC
_NAIVE = len("2026-01-01 00:00:00.000000")


def utc_text(value: datetime) -> str:
    check_aware(value)
    moment = value if value.tzinfo is UTC else value.astimezone(UTC)
    return moment.isoformat(" ", "microseconds")[:_NAIVE]


def make_engine(url: sa.URL, busy_seconds: float = BUSY_SECONDS) -> sa.Engine:
    """Creates an engine whose transactions behave alike on both databases, from a URL of either."""
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url, busy_seconds)
    url = with_driver(url)
    engine = sa.create_engine(
        url,
        poolclass=PatientPool,
        pool_size=_LIMIT,
        max_overflow=_MORE,
        # libpq has no time limit of its own: it would wait for a host that drops packets. The
        # default encoding is the database's: of SQL_ASCII, as made without a locale, only ASCII.
        connect_args={**_patience(url, busy_seconds), "client_encoding": "utf8"},
        isolation_level="READ COMMITTED",
        # Sends a thousand updates in ten round trips.
        executemany_mode="values_plus_batch",
    )
    leave_read_only_servers(engine)
    if busy_seconds < BUSY_SECONDS:
        _limit_transactions(engine, int(busy_seconds * 1000))
    return engine


def driver_errors() -> tuple[type[Exception], ...]:
    """Returns the errors of Postgres's driver about the server, if the driver is loaded.

    SQLAlchemy raises them as they are when a connection ends while its isolation level is set.
    """
    driver: Any = sys.modules.get("psycopg2")
    return () if driver is None else (driver.OperationalError, driver.InterfaceError)


def with_driver(url: sa.URL) -> sa.URL:
    """Returns a URL of Postgres with the driver's name, which users need not write."""
    # A bare postgresql:// means psycopg 3 since SQLAlchemy 2.1; dagster-postgres uses psycopg2.
    return url.set(drivername="postgresql+psycopg2")


def _limit_transactions(engine: sa.Engine, milliseconds: int) -> None:
    """Ends waits for locks and statements that take longer.

    For each transaction: a pooler refuses such options of a connection, and settings of a session
    would stay on a connection that it gives to others.
    """
    limits = ", ".join(
        f"set_config('{name}', '{milliseconds}', true)"
        for name in ("lock_timeout", "statement_timeout")
    )

    @sa.event.listens_for(engine, "begin")
    def limit(connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"select {limits}")


def _patience(url: sa.URL, busy_seconds: float) -> dict[str, Any]:
    """Returns the time limits of a connection to Postgres, unless its URL sets them.

    A shorter limit also applies to waits for a lock or a lost network.
    """
    arguments: dict[str, Any] = {"connect_timeout": max(int(busy_seconds), 2)}
    if busy_seconds < BUSY_SECONDS:
        arguments["tcp_user_timeout"] = int(busy_seconds * 1000)
    return {name: value for name, value in arguments.items() if name not in url.query}


def _sqlite_engine(url: sa.URL, busy_seconds: float) -> sa.Engine:
    if is_file(url):
        with suppress(OSError):  # without the folder SQLite reports that it cannot open the file
            Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(url, connect_args={"timeout": busy_seconds})

    def make_file(*_: object) -> None:
        with suppress(OSError):  # which SQLite reports itself; the files beside it get its mode
            private_files.make(str(url.database))

    def connect(connection: sqlite3.Connection, _record: object) -> None:
        # The driver's own BEGIN comes too late, after the first SELECT: two readers that both go on
        # to write would then deadlock. So BEGIN is sent explicitly.
        connection.isolation_level = None
        _use_write_ahead_log(connection)
        # A commit lost by a power failure would forget a job whose run Dagster has started.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    def begin(connection: sa.Connection) -> None:
        mode = connection.get_execution_options().get("arctic_begin", "IMMEDIATE")
        connection.exec_driver_sql(f"BEGIN {mode}")

    if is_file(url):
        sa.event.listen(engine, "do_connect", make_file)
    sa.event.listen(engine, "connect", connect)
    sa.event.listen(engine, "begin", begin)
    return engine


def is_file(url: sa.URL) -> bool:
    """Returns whether a database is a SQLite file that is named by its path."""
    path = url.database or ":memory:"
    return url.get_backend_name() == "sqlite" and not path.startswith((":memory:", "file:"))


def absolute(url: sa.URL) -> sa.URL:
    """Returns the URL of a SQLite file as it is in any working directory, and others unchanged."""
    return url.set(database=str(Path(str(url.database)).absolute())) if is_file(url) else url


def file_of(url: sa.URL) -> tuple[int, int] | None:
    """Returns the identity of a SQLite file, whatever its name; none: missing, or no file."""
    if not is_file(url):
        return None
    try:
        found = os.stat(str(url.database))
    except OSError:
        return None
    return found.st_dev, found.st_ino


_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Lets readers and the writer work concurrently; the mode stays with the file."""
    give_up_at = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # SQLite does not wait here when two connections switch a new file at once. Any other
            # error, as of a full disk, is reported at once. The lowest byte has no cause.
            if error.sqlite_errorcode & 0xFF not in _LOCKED or time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)


def insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Returns an ``INSERT`` with ``ON CONFLICT``."""
    return insert_for(connection.dialect.name, table)


def insert_for(backend: str, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Like :func:`insert`, for a statement that is built once for each backend."""
    return sqlite.insert(table) if backend == "sqlite" else postgresql.insert(table)


def among(
    connection: sa.Connection, column: sa.ColumnElement[Any], values: Iterable[Any]
) -> sa.ColumnElement[bool]:
    """Returns that ``column`` is one of ``values``, passed as one parameter whatever their number.

    Postgres scans the table for an ``IN`` of some hundred values, SQLite limits parameters, and a
    statement of one shape is compiled once.
    """
    if connection.dialect.name == "postgresql":
        array = postgresql.ARRAY(column.type)
        return _equals_any(column, sa.cast(sa.literal(list(values), array), array))
    items = sa.func.json_each(json.dumps(list(values))).table_valued("value")
    return column.in_(sa.select(items.c.value))


def text_in_json(
    connection: sa.Connection, column: sa.ColumnElement[str], name: str
) -> sa.ColumnElement[str]:
    r"""Returns the text under a name in the JSON objects of ``column``; null: there is none.

    Of an object without the name, Postgres returns that of a nested one; of a text with escapes,
    their form in JSON. So no row fails a statement: Postgres's functions refuse ``\u0000``, and
    SQLite's ``NaN``.
    """
    if connection.dialect.name == "postgresql":
        return sa.func.substring(column, f'"{name}": ?"([^"]*)"', type_=sa.Text)
    value = sa.func.json_extract(column, f"$.{name}", type_=sa.Text)
    return sa.case((sa.func.json_valid(column) == 1, value))


def among_given(backend: str, column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Like :func:`among`, for a statement that is built once for each backend.

    Each execution passes the values as the parameter ``name``, in the form of :func:`given`.
    Building a statement costs five times what SQLite needs to answer a small one.
    """
    if backend == "postgresql":
        array = postgresql.ARRAY(column.type)
        return _equals_any(column, sa.cast(sa.bindparam(name, type_=array), array))
    items = sa.func.json_each(sa.bindparam(name, type_=sa.Text)).table_valued("value")
    return column.in_(sa.select(items.c.value))


def _equals_any(column: sa.ColumnElement[Any], array: Any) -> sa.ColumnElement[bool]:
    # SQLAlchemy 2.0 negates its own == as != any(array): unlike one of them, and not unlike all.
    return column.op("=", is_comparison=True)(sa.func.any(array))


def given(connection: sa.Connection, values: Iterable[Any]) -> Any:
    """Returns several values as one parameter of a statement with :func:`among_given`."""
    if connection.dialect.name == "postgresql":
        return list(values)
    return to_json(list(values)).decode()


def lock(connection: sa.Connection, name: str) -> None:
    """Locks a name until the end of the transaction; on SQLite, a writing one locks everything."""
    if connection.dialect.name == "postgresql":
        query = sa.text("select pg_advisory_xact_lock(hashtext(:name))")
        connection.execute(query, {"name": f"arctic_{name}"})


def migrates_on_first_use(url: sa.URL) -> bool:
    """Returns true for SQLite, which belongs to one machine; Postgres is upgraded explicitly."""
    return url.get_backend_name() == "sqlite"


def database_time(connection: sa.Connection) -> datetime:
    """Returns the database's present time, not that of the beginning of the transaction.

    It decides about leases: the clocks of workers may differ. To the microsecond on Postgres, to
    the millisecond on SQLite.
    """
    now: datetime = connection.execute(_TIME[connection.dialect.name]).scalar_one()
    return now


def not_ahead(connection: sa.Connection, now: datetime) -> datetime:
    """Returns ``now``, or the database's time if that is earlier.

    By it ages are judged: on a host whose clock is ahead, nothing is older than it is.
    """
    return min(now, database_time(connection))


_TIME = {
    "postgresql": sa.select(sa.func.clock_timestamp(type_=UtcTime)),
    "sqlite": sa.select(sa.func.strftime("%Y-%m-%d %H:%M:%f", "now", type_=UtcTime)),
}


def has_row_locks(connection: sa.Connection) -> bool:
    """Returns whether rows are locked one by one, or the whole database by the transaction."""
    return connection.dialect.name == "postgresql"
