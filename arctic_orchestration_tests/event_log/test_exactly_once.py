"""Proof on a real Postgres: many writers, one reader, nothing lost and nothing doubled.

``ARCTIC_PROOF=full`` writes more than 20,000 events; by default it is a small version of the
same. The control, a cursor that remembers the largest id it saw, reads in the same loop.
"""

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

import psycopg2
import pytest
from dagster import DagsterInstance

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.feed import Feed, FeedMode, Position
from arctic_orchestration.event_log.log_rows import TYPES
from arctic_orchestration_tests.event_log.writers import late_commit, write
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.postgres import PostgresServer

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
#: (way of writing, processes, events of each process)
WRITERS = (
    # 20,000 through Dagster's storage, and beside them transactions that are held open, rolled
    # back and committed late, which that has no way to make.
    [("api", 4, 1000), ("batch", 2, 8000), ("raw", 6, 2000)]
    if FULL
    else [("api", 2, 40), ("batch", 1, 300), ("raw", 5, 150)]
)
SQLITE_WRITERS = (
    [("api", 4, 500), ("batch", 4, 4500)] if FULL else [("api", 2, 15), ("batch", 2, 100)]
)
SECONDS_AT_MOST = 1200 if FULL else PATIENCE_SECONDS


@dataclass
class Readers:
    """Our feed and the naive cursor, reading side by side."""

    instance: DagsterInstance
    dsn: str
    stored: str | None = None
    ours: list[int] = field(default_factory=list)
    naive: list[int] = field(default_factory=list)
    refusals: int = 0
    largest_position: int = 0
    polls: int = 0
    _log: DagsterLog | None = None
    _connection: Any = None

    def poll(self) -> bool:
        """Both read once; returns whether ours has more at once."""
        self.polls += 1
        if self._log is None or self.polls % 20 == 0:
            # A new reader, as after a restart of the process: only the stored text carries over.
            if self._log is not None:
                self._log.close()
            self._log = DagsterLog(self.instance)
        more = False
        try:
            position = Position.from_json(self.stored) if self.stored else None
            batch = self._log.read(position, limit=97)
            assert batch.mode is FeedMode.EXACT
            self.ours += [event.storage_id for event in batch.events]
            self.stored = batch.position.to_json()
            self.largest_position = max(self.largest_position, len(self.stored))
            more = batch.more
        except DatabaseUnavailable:
            self.refusals += 1
        self._poll_naive()
        return more

    def _poll_naive(self) -> None:
        try:
            if self._connection is None:
                self._connection = psycopg2.connect(self.dsn)
                self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                cursor.execute(
                    "select id from event_logs where id > %s and dagster_event_type = any(%s) "
                    "order by id limit 97",
                    (self.naive[-1] if self.naive else 0, list(TYPES)),
                )
                self.naive += [number for (number,) in cursor.fetchall()]
        except psycopg2.Error:
            self._connection = None

    def drain(self) -> None:
        """Reads until there is nothing more, when all writers have ended."""
        quiet = 0
        while quiet < 3:
            before = len(self.ours), len(self.naive)
            more = self.poll()
            quiet = 0 if more or before != (len(self.ours), len(self.naive)) else quiet + 1
        assert self._log is not None
        self._log.close()
        self._connection.close()


@contextmanager
def writers(
    home: str, dsn: str, kinds: Sequence[tuple[str, int, int]] = WRITERS
) -> Iterator[list[BaseProcess]]:
    """The writer processes; those that are left at the end are ended."""
    processes = forkserver()
    started: list[BaseProcess] = [
        processes.Process(target=write, args=(way, home, count, f"{way}{number}", dsn))
        for way, number_of_processes, count in kinds
        for number in range(number_of_processes)
    ]
    for process in started:
        process.start()
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.join()


def committed(dsn: str) -> list[int]:
    """The ids that the table has in the end."""
    with psycopg2.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(
            "select id from event_logs where dagster_event_type = any(%s)", (list(TYPES),)
        )
        return [number for (number,) in cursor.fetchall()]


@pytest.fixture
def log_on_postgres(
    dagster_instance: Callable[[str], DagsterInstance], postgres_server: PostgresServer
) -> tuple[DagsterInstance, str]:
    """An instance on Postgres, and the connection string of its database."""
    instance = dagster_instance("postgres")
    name = instance.event_log_storage.postgres_url.rsplit("/", 1)[1]  # type: ignore[attr-defined]
    return instance, postgres_server.dsn(name)


def test_writers_that_race_lose_no_event(log_on_postgres: tuple[DagsterInstance, str]) -> None:
    """Interleaved, late and rolled back transactions of several processes: each event once.

    The naive cursor, over the same rows in the same loop, loses some.
    """
    instance, dsn = log_on_postgres
    readers = Readers(instance, dsn)
    deadline = time.monotonic() + SECONDS_AT_MOST
    with writers(instance.root_directory, dsn) as processes:
        with late_commit(instance, dsn) as later:
            while not readers.naive or readers.naive[-1] < later:
                assert time.monotonic() < deadline, "the later event was not read"
                readers.poll()
        while any(process.is_alive() for process in processes):
            assert time.monotonic() < deadline, "the writers did not end"
            readers.poll()
        assert all(process.exitcode == 0 for process in processes)
    readers.drain()
    truth = committed(dsn)
    assert len(truth) >= sum(processes * count for _, processes, count in WRITERS)
    assert Counter(readers.ours) == Counter(truth)
    lost = set(truth) - set(readers.naive)
    print(f"{len(truth)} events, ours lost none, the naive cursor lost {len(lost)}, "
          f"largest position {readers.largest_position} characters")  # fmt: skip
    # One is made above; at full counts the writers make others.
    assert len(lost) > FULL, "the control saw no late commit: this run proves nothing"


def test_a_killed_backend_and_a_restart_lose_no_event(
    log_on_postgres: tuple[DagsterInstance, str], postgres_server: PostgresServer
) -> None:
    """A writer's backend dies by SIGKILL, later the server is ended hard; each event comes once."""
    instance, dsn = log_on_postgres
    readers = Readers(instance, dsn)
    total = sum(processes * count for _, processes, count in WRITERS)
    breaks = [postgres_server.restart, lambda: _kill_a_writer(postgres_server, dsn)]
    deadline = time.monotonic() + SECONDS_AT_MOST
    with writers(instance.root_directory, dsn) as processes:
        while any(process.is_alive() for process in processes):
            assert time.monotonic() < deadline, "the writers did not end"
            readers.poll()
            if breaks and len(readers.ours) > total * (3 - len(breaks)) / 3:
                breaks.pop()()
        assert all(process.exitcode == 0 for process in processes)
    readers.drain()
    assert not breaks
    truth = committed(dsn)
    assert Counter(readers.ours) == Counter(truth)
    lost = set(truth) - set(readers.naive)
    print(f"{len(truth)} events, ours lost none, refused {readers.refusals} times, "
          f"the naive cursor lost {len(lost)}")  # fmt: skip
    assert lost, "the control saw no late commit: this run proves nothing"


def test_writers_that_race_on_sqlite_lose_no_event(
    dagster_instance: Callable[[str], DagsterInstance],
) -> None:
    """One writer at a time: a plain cursor is exact while several processes take turns."""
    instance = dagster_instance("sqlite")
    log: Feed = DagsterLog(instance)
    ours: list[int] = []
    stored: str | None = None
    deadline = time.monotonic() + SECONDS_AT_MOST
    with writers(instance.root_directory, "", SQLITE_WRITERS) as processes:
        alive = more = True
        while alive or more:
            assert time.monotonic() < deadline, "the writers did not end"
            alive = any(process.is_alive() for process in processes)
            batch = log.read(Position.from_json(stored) if stored else None, limit=97)
            stored, more = batch.position.to_json(), batch.more
            ours += [event.storage_id for event in batch.events]
        assert all(process.exitcode == 0 for process in processes)
    path = instance.event_log_storage.path_for_shard("index")  # type: ignore[attr-defined]
    connection = sqlite3.connect(path)
    truth = [number for (number,) in connection.execute("select id from event_logs")]
    connection.close()
    assert len(truth) >= sum(processes * count for _, processes, count in SQLITE_WRITERS)
    assert Counter(ours) == Counter(truth)


def _kill_a_writer(server: PostgresServer, dsn: str) -> None:
    with psycopg2.connect(dsn) as connection, connection.cursor() as cursor:
        while True:
            cursor.execute(
                "select pid from pg_locks where relation = 'event_logs'::regclass "
                "and mode = 'RowExclusiveLock' and pid is not null"
            )
            holders = cursor.fetchall()
            if holders:
                break
    server.kill_backend(holders[0][0])
    server.wait_until_it_answers()
