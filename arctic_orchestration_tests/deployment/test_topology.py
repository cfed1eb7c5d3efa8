"""The deployment of ``deploy/compose.yaml`` makes the tables of the flights lake.

Real processes on loopback: Postgres behind PgBouncer in transaction mode, the daemon, the
webserver, two code servers, the service, two workers, and a standalone cluster of Spark with two
workers, over seven days. That is ``ARCTIC_PROOF=full``; by default it is the weather of one day,
with a Spark of its own, one code server and no worker.
"""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from arctic_orchestration.flights.demo_compaction import progress
from arctic_orchestration.flights.feeding import DagsterAnnouncements, feed_days
from arctic_orchestration.flights.feeds import FEEDS, first_days
from arctic_orchestration.flights.landing import Landing
from arctic_orchestration.flights.source import FlightsSource
from arctic_orchestration.flights.totals import TABLES, compare, totals_of
from arctic_orchestration.lake import open_catalog
from arctic_orchestration.schedules.views.overview import overview
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.deployment.topology import (
    Topology,
    compose,
    topology,
    wait,
)
from arctic_orchestration_tests.postgres import PostgresServer

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
SECONDS = 1800 if FULL else 60
if FULL:
    DAYS, FED, MADE = 7, FEEDS, TABLES
    SERVICES = tuple(name for name, it in compose()["services"].items() if "command" in it)
else:
    DAYS, FED, MADE = 1, FEEDS[-1:], ("weather",)
    SERVICES = ("code-flights", "daemon", "webserver", "service")
#: what a process may have
CONNECTIONS = 4


class Watch:
    """The most connections that each process ever had at a time."""

    def __init__(self, made: Topology) -> None:
        self.most: dict[int, int] = {}
        self._made = made
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._end.wait(0.2):
            for process, count in self._made.connections().items():
                self.most[process] = max(count, self.most.get(process, 0))

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self.most.pop(os.getpid(), None)


@pytest.fixture
def made(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Topology]:
    master = None if FULL else "local[1]"
    with topology(tmp_path / "home", postgres_server, master) as services:
        for name, value in services.environment("daemon").items():
            monkeypatch.setenv(name, value)
        for name in SERVICES:
            if name != "setup":
                services.start(name)
        yield services


def _answer(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as page:
        return str(page.read().decode())


def test_the_tables_are_made_by_all_parts_behind_a_pooler(made: Topology) -> None:
    """No process has more than four connections, and none of the server's is held for one."""
    watch = Watch(made)
    settings = Settings.from_environment()
    database = Database(settings.database_url)

    def followed() -> bool:
        with database.read() as tx:
            return overview(tx, settings.cluster, "flights").following is not None

    wait(made, followed, 120, "the dispatcher follows the event log")
    days = first_days(DAYS)
    totals = totals_of(days)
    with dg.DagsterInstance.get() as instance:
        announcements = DagsterAnnouncements(instance)
        source, landing = FlightsSource.installed(), Landing.of(settings)
        for _ in feed_days(source, landing, announcements, days, FED):
            pass
        catalog = open_catalog(settings)
        wait(made, lambda: not compare(catalog, totals, MADE), SECONDS, "the tables agree")

        def at_rest() -> bool:
            names = [f"nyc.{name}" for name in MADE]
            with database.read() as tx:
                return not progress(tx, catalog, instance, names).restless

        if FULL:
            wait(made, at_rest, SECONDS, "compaction is at rest")
            assert compare(catalog, totals, MADE) == []
    command = [str(Path(sys.executable).with_name("arctic")), "tokens", "create", "me"]
    token = subprocess.run(
        [*command, "--scope", "*:read", "--json"], capture_output=True, text=True, check=True
    )
    bearer = f"Bearer {json.loads(token.stdout)['token']}"
    for root in (
        f"http://127.0.0.1:{made.port(3001)}",
        f"http://127.0.0.1:{made.port(3000)}/arctic",
    ):
        listed = json.loads(_answer(f"{root}/api/v1/schedules", Authorization=bearer))
        assert "flights" in {schedule["name"] for schedule in listed["items"]}
    assert "Dagster" in _answer(f"http://127.0.0.1:{made.port(3000)}/")
    database.close()
    watch.close()
    assert watch.most
    too_many = {process: count for process, count in watch.most.items() if count > CONNECTIONS}
    assert not too_many
