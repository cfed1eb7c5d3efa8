"""What is particular behind PgBouncer in transaction mode."""

import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psycopg2
import pytest

from arctic_orchestration.event_log.news import news_of
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


def _channels(port: int) -> list[str]:
    connection = psycopg2.connect(
        host="127.0.0.1", port=port, user="dagster", password=PASSWORD, dbname="dagster"
    )
    try:
        with connection.cursor() as cursor:
            cursor.execute("select pg_listening_channels()")
            return [channel for (channel,) in cursor.fetchall()]
    finally:
        connection.close()


def test_news_are_found_and_nobody_listens_on_a_connection_of_all(made: Topology) -> None:
    """The pooler gives its connections to the next one in turn: the same one, here."""
    with dg.DagsterInstance.get() as instance:
        news = news_of(instance)
        assert news is not None
        stop = threading.Event()
        assert news.wait(stop) == frozenset()
        instance.report_runless_asset_event(dg.AssetMaterialization("a"))
        assert news.wait(stop) == {"ASSET_MATERIALIZATION"}
        assert _channels(made.port(6432)) == []
        news.close()
