"""Connections to Dagster's Postgres are reused, replaced when they break, and not kept for long."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg2
import pytest
import sqlalchemy

from arctic_orchestration import postgres_connections
from arctic_orchestration.dagster_internals import (
    create_postgres_engine,
    postgres_storages_of,
    replace_engine_factory,
)
from arctic_orchestration.event_log.announcement import Announcer, Arrival
from arctic_orchestration_tests.patience import until
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.templates import write_dagster_yaml
from arctic_orchestration_tests.test_connection_pools import Peak


@pytest.fixture
def instance(
    postgres_server: PostgresServer, postgres_database: str, tmp_path: Path
) -> Iterator[dg.DagsterInstance]:
    """Its engines are Dagster's own, whatever the other tests of the process use."""
    write_dagster_yaml(tmp_path, server=postgres_server, database_name=postgres_database)
    replace_engine_factory(create_postgres_engine)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance
    postgres_connections.reuse_in_process()


@pytest.fixture
def reusing(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dg.DagsterInstance]:
    """Its connections are idle for as long as a test takes on a slow machine."""
    reset(monkeypatch, idle_seconds=600)
    postgres_connections.reuse_in_instance(instance)
    yield instance
    for engine in postgres_connections._engines.values():
        engine.dispose()


def reset(monkeypatch: pytest.MonkeyPatch, *, idle_seconds: float) -> None:
    """As in a new process, with another time."""
    monkeypatch.setattr(postgres_connections, "_IDLE_SECONDS", idle_seconds)
    monkeypatch.setattr(postgres_connections, "_engines", {})
    monkeypatch.setattr(postgres_connections, "_used", threading.Event())
    monkeypatch.setattr(postgres_connections, "_closer", None)


def backends(instance: dg.DagsterInstance) -> list[int]:
    """The processes of the server that answer the three storages, one after another, twice."""
    return [backend(storage) for storage in [*postgres_storages_of(instance)] * 2]


def backend(storage: Any) -> int:
    with storage._engine.connect() as connection:
        return int(connection.execute(sqlalchemy.text("select pg_backend_pid()")).scalar())


@contextmanager
def cursor_on(server: PostgresServer, name: str) -> Iterator[Any]:
    connection = psycopg2.connect(server.url(name).replace("+psycopg2", ""))
    connection.autocommit = True
    with connection.cursor() as cursor:
        yield cursor
    connection.close()


def test_the_storages_of_a_process_share_a_connection(reusing: dg.DagsterInstance) -> None:
    assert len(set(backends(reusing))) == 1


def test_without_reuse_each_use_opens_a_connection(instance: dg.DagsterInstance) -> None:
    """The control: Dagster's own engines."""
    assert len(set(backends(instance))) == 6


def test_an_instance_that_is_created_later_reuses_connections(
    postgres_server: PostgresServer, postgres_database: str, tmp_path: Path
) -> None:
    """As in the process of a hosted run, where Dagster creates the instance."""
    write_dagster_yaml(tmp_path, server=postgres_server, database_name=postgres_database)
    code = f"""
from dagster import DagsterInstance
import dagster_postgres.storage
from arctic_orchestration import postgres_connections
from arctic_orchestration_tests.test_postgres_connections import backends
postgres_connections.reuse_in_process()
with DagsterInstance.from_config({str(tmp_path)!r}) as instance:
    print(len(set(backends(instance))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def test_long_statements_of_the_webserver_are_ended(
    monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    """Those of all its storages, which share a connection; without a limit, none is."""
    for milliseconds in (None, 200):
        reset(monkeypatch, idle_seconds=600)
        postgres_connections.reuse_in_instance(instance, statement_milliseconds=milliseconds)
        assert len(set(backends(instance))) == 1
        for storage in postgres_storages_of(instance):
            with storage._engine.connect() as connection:
                limit = connection.execute(sqlalchemy.text("show statement_timeout")).scalar()
                assert limit == ("0" if milliseconds is None else "200ms")
        postgres_storages_of(instance)[0]._engine.dispose()


@pytest.mark.parametrize(("by", "most"), [("announcement", 1), ("Dagster", 2)])
def test_an_announcement_needs_one_connection(
    reusing: dg.DagsterInstance, by: str, most: int
) -> None:
    """Control: what Dagster reports itself needs another one within its first transaction."""
    peak = Peak(postgres_storages_of(reusing)[0]._engine)
    if by == "Dagster":
        reusing.report_runless_asset_event(dg.AssetMaterialization("orders", partition="monday"))
    else:
        Announcer(reusing).announce([Arrival(asset="orders", partition="monday")], "a1", 0)
    assert reusing.get_latest_materialization_event(dg.AssetKey("orders")) is not None
    assert peak.count == most


def test_a_connection_that_the_server_has_closed_is_replaced(
    reusing: dg.DagsterInstance, postgres_server: PostgresServer
) -> None:
    """As after a restart of the server: the next statement does not fail."""
    (first,) = set(backends(reusing))
    postgres_server.end_backend(first)
    assert reusing.get_runs() == []
    (second,) = set(backends(reusing))
    assert second != first


def test_a_connection_to_a_server_that_only_reads_is_replaced(
    reusing: dg.DagsterInstance, postgres_server: PostgresServer, postgres_database: str
) -> None:
    """A session keeps the mode that it began with, as those to the former primary do."""
    run = dg.DagsterRun(job_name="load", run_id="1b0c7d5e-0000-4000-8000-000000000000")
    change = f"alter database {postgres_database}"
    with cursor_on(postgres_server, postgres_database) as cursor:
        cursor.execute(f"{change} set default_transaction_read_only = on")
        for engine in postgres_connections._engines.values():
            engine.dispose()
        with pytest.raises(sqlalchemy.exc.InternalError):
            reusing.add_run(run)
        cursor.execute(f"{change} reset default_transaction_read_only")
    reusing.add_run(run)
    assert reusing.has_run(run.run_id)


def test_threads_that_work_at_once_have_connections_of_their_own(
    reusing: dg.DagsterInstance,
) -> None:
    engine = postgres_storages_of(reusing)[0]._engine
    with engine.connect() as one, engine.connect() as other:
        found = {each.execute(sqlalchemy.text("select pg_backend_pid()")).scalar()
                 for each in (one, other)}  # fmt: skip
    assert len(found) == 2


def test_an_idle_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch,
    instance: dg.DagsterInstance,
    postgres_server: PostgresServer,
    postgres_database: str,
) -> None:
    """A run of hours, which reports nothing for most of them, holds none."""
    reset(monkeypatch, idle_seconds=0.2)
    postgres_connections.reuse_in_instance(instance)
    storage = postgres_storages_of(instance)[0]
    first = backend(storage)
    with cursor_on(postgres_server, postgres_database) as cursor:

        def is_gone() -> bool:
            cursor.execute("select count(*) from pg_stat_activity where pid = %s", (first,))
            return bool(cursor.fetchone() == (0,))

        until(is_gone, "the idle connection is closed")
        first = backend(storage)
        until(is_gone, "so is the next one")


def test_a_connection_in_use_while_others_are_closed_is_closed_later(
    monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    """It goes back to the pool that the next round closes, not to one that nobody has."""
    reset(monkeypatch, idle_seconds=0.05)
    postgres_connections.reuse_in_instance(instance)
    engine = postgres_storages_of(instance)[0]._engine
    pool = engine.pool
    with engine.connect():
        with engine.connect():
            pass
        until(lambda: engine.pool.checkedin() == 0, "the other one is closed")
    assert engine.pool is pool
    until(lambda: pool.checkedin() == 0, "so is this one")


def test_a_forked_process_does_not_use_the_connection_of_its_parent(
    reusing: dg.DagsterInstance,
) -> None:
    (first,) = set(backends(reusing))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(backend(postgres_storages_of(reusing)[0])).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    assert int(os.read(reading, 100)) != first
    assert set(backends(reusing)) == {first}
    os.close(reading)


def test_other_storages_are_left_alone(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        postgres_connections.reuse_in_instance(instance)
        assert instance.get_runs() == []
