"""What is particular behind PgBouncer in transaction mode."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import psycopg2
import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.news import news_of
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.deployment.topology import PASSWORD, Topology, topology
from arctic_orchestration_tests.postgres import PostgresServer


@pytest.fixture
def made(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Topology]:
    with topology(tmp_path / "home", postgres_server) as services:
        for name, value in services.environment("daemon").items():
            monkeypatch.setenv(name, value)
        yield services


def _fetch(port: int, query: str) -> list[str]:
    connection = psycopg2.connect(
        host="127.0.0.1", port=port, user="dagster", password=PASSWORD, dbname="dagster"
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return [value for (value,) in cursor.fetchall()]
    finally:
        connection.close()


def test_news_are_found_and_no_shared_connection_listens(made: Topology) -> None:
    """The pooler gives its connections to the next one in turn: the same one, here."""
    with dg.DagsterInstance.get() as instance:
        news = news_of(instance)
        assert news is not None
        stop = threading.Event()
        assert news.wait(stop) == frozenset()
        instance.report_runless_asset_event(dg.AssetMaterialization("a"))
        assert news.wait(stop) == {"ASSET_MATERIALIZATION"}
        assert _fetch(made.port(6432), "select pg_listening_channels()") == []
        news.close()


def test_time_limits_are_those_of_a_transaction(made: Topology) -> None:
    """Those of the service, which listens to people: none is left on the pooler's connection."""
    url = made.environment("daemon")["ARCTIC_DATABASE_URL"]
    shown = sa.text("select current_setting('lock_timeout'), current_setting('statement_timeout')")
    with closing(Database(url, busy_seconds=7)) as limited, limited.begin() as tx:
        assert tuple(tx.execute(shown).one()) == ("7s", "7s")
    with closing(Database(url)) as database, database.begin() as tx:
        assert tuple(tx.execute(shown).one()) == ("0", "0")


def test_the_limit_of_dagsters_webserver_is_not_inherited(made: Topology) -> None:
    """It sets one for its session, which stays on the connection unless the pooler resets it."""
    port = made.port(6432)
    with dg.DagsterInstance.get() as instance:
        instance.optimize_for_webserver(15_000, 3_600, 20)
        instance.get_runs_count()
        assert _fetch(port, "select current_setting('statement_timeout')") == ["0"]
