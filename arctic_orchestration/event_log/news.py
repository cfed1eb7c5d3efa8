"""Detects writes to Dagster's event log within milliseconds.

Only a hint: regular polling, every few seconds, finds what it misses.
"""

import selectors
from contextlib import suppress
from typing import Any, Protocol

from dagster import DagsterInstance

from arctic_orchestration.connection_pools import PatientPool
from arctic_orchestration.dagster_internals import (
    connect_postgres,
    event_log_storage_of,
    sqlite_event_log,
)
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.event_log.sqlite_log import SqliteSql

#: how often SQLite is polled, which wakes a thread: soon after news, and later
_SQLITE_SECONDS = 0.05
_SQLITE_QUIET_SECONDS = 0.2
#: the number of polls without news after which it is quiet
_SQLITE_POLLS = 100
#: Not all writers notify: batches do not. Behind a pooler nothing is announced at all.
_POSTGRES_SECONDS = 1.0
#: the channel to which dagster-postgres sends the id of each event that it stores
_CHANNEL = "run_events"
_SINCE = "select max(id), dagster_event_type from event_logs where id > {} group by 2"
_LAST = "select coalesce(max(id), 0) from event_logs"


class LogNews(Protocol):
    """Waits for new events in an event log."""

    def wait(self, stop: Any) -> frozenset[str]:
        """Returns the types of events since the last call; empty after a timeout.

        Errors:
            DatabaseUnavailable: the log cannot be read.
        """
        ...

    def close(self) -> None:
        """Closes all connections."""
        ...


def news_of(instance: DagsterInstance) -> LogNews | None:
    """Returns the news of an instance's event log; None: neither SQLite nor Postgres."""
    storage = event_log_storage_of(instance)
    sqlite = sqlite_event_log(storage)
    if sqlite is not None:
        return _SqliteNews(SqliteSql(sqlite))
    if hasattr(storage, "postgres_url"):
        return _PostgresNews(storage)
    return None


class _SqliteNews:
    def __init__(self, sql: SqliteSql) -> None:
        self._sql = sql
        self._version: object = None
        self._last: int | None = None
        self._polls = 0

    def wait(self, stop: Any) -> frozenset[str]:
        is_quiet = self._polls >= _SQLITE_POLLS
        stop.wait(_SQLITE_QUIET_SECONDS if is_quiet else _SQLITE_SECONDS)
        version = self._sql.version()
        if version == self._version:
            self._polls += 1
            return frozenset()
        self._version = version
        self._polls = 0
        with self._sql.session() as run:
            if self._last is None:
                self._last = int(run(_LAST)[0][0])
            found = run(_SINCE.format("?"), (self._last,))
        self._last = max((row[0] for row in found), default=self._last)
        return frozenset(row[1] for row in found)

    def close(self) -> None:
        self._sql.close()


class _PostgresNews:
    def __init__(self, storage: Any) -> None:
        self._engine = connect_postgres(
            storage,
            isolation_level="AUTOCOMMIT",
            # Of the limited kind: it counts among the connections of the process.
            poolclass=PatientPool,
            pool_size=1,
        )
        self._connection: Any = None
        self._last: int | None = None

    def wait(self, stop: Any) -> frozenset[str]:  # noqa: ARG002 - waits for the socket
        try:
            raw = self._listening()
            if self._last is not None:
                # Not of `select`, which refuses descriptors from 1024 on.
                with selectors.DefaultSelector() as selector:
                    selector.register(raw, selectors.EVENT_READ)
                    selector.select(_POSTGRES_SECONDS)
            raw.poll()
            raw.notifies.clear()
            with raw.cursor() as cursor:
                if self._last is None:
                    cursor.execute(_LAST)
                    self._last = int(cursor.fetchone()[0])
                cursor.execute(_SINCE.format("%s"), (self._last,))
                found = cursor.fetchall()
        except Exception as error:
            self.close()
            raise DatabaseUnavailable(f"Dagster's Postgres: {error}") from error
        self._last = max((row[0] for row in found), default=self._last)
        return frozenset(row[1] for row in found if row[1] is not None)

    def _listening(self) -> Any:
        if self._connection is None:
            self._connection = self._engine.connect()
            with self._connection.connection.cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                # Behind a pooler of transactions, LISTEN would stay with the server's connection,
                # and every process that gets it later would collect the notifications.
                if cursor.fetchone()[0] == cursor.connection.info.backend_pid:
                    cursor.execute(f"listen {_CHANNEL}")
        return self._connection.connection.dbapi_connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()
            self._engine.dispose()
