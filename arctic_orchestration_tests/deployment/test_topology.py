"""The deployment of ``deploy/compose.yaml`` does its work, as processes on loopback.

Postgres behind PgBouncer in transaction mode, the daemon, the webserver, two code servers, the
service, two workers, and a standalone cluster of Spark. The code locations have small assets in
place of the flights lake. ``ARCTIC_PROOF=full`` has all of it, by the commands themselves; by
default processes of Python are forked with everything imported, one of Spark's workers is left out,
and no run host keeps runs warm.
"""

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg2
import pytest

from arctic_orchestration.compaction.commit.records import records
from arctic_orchestration.compaction.work.workers import live_workers
from arctic_orchestration.lake import open_catalog
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.views.overview import overview
from arctic_orchestration.service import tokens
from arctic_orchestration.service.scopes import parse_scopes
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.compaction.small_lake import rows_of
from arctic_orchestration_tests.deployment.orders import FILES, TABLE
from arctic_orchestration_tests.deployment.topology import (
    CATALOG,
    STATE,
    Connections,
    Topology,
    User,
    compose,
    topology,
    wait,
)
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.postgres import PostgresServer

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
#: how many ask at once, and how often each question is asked
CLIENTS, TIMES = 40, 200
SPARK_WORKERS = 2 if FULL else 1
_HERE = "arctic_orchestration_tests.deployment"
_MODULES = {
    "arctic_orchestration.definitions": f"{_HERE}.orders",
    "arctic_orchestration.flights.reports": f"{_HERE}.totals",
}
_LOCATIONS = ("flights", "reports")
#: what a process has at most, and what it keeps at most by use
CONNECTIONS = 4
KEPT = {STATE: 2, CATALOG: 1}
#: the services that always have a connection to the state database
_USERS = {"code-flights", "code-reports", "daemon", "service", "worker"}
#: workers that claim what there never is
_IDLE = ("idle-1", "idle-2")
_RUNS = "{ runsOrError { ... on Runs { results { status tags { key value } } } } }"


@pytest.fixture
def made(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Topology]:
    with topology(
        tmp_path / "home",
        postgres_server,
        modules=_MODULES,
        launcher={"hosts": FULL},
        forked=not FULL,
    ) as services:
        for name, value in services.environment("daemon").items():
            monkeypatch.setenv(name, value)
        services.start("spark-master")
        wait(
            services,
            lambda: _spark(services) is not None,
            "Spark's master answers",
        )
        for name, service in compose()["services"].items():
            if "command" in service and name not in ("setup", "spark-master"):
                services.start(name, SPARK_WORKERS if name == "spark-worker" else None)
        yield services


def test_all_parts_do_their_work_behind_a_pooler(made: Topology) -> None:
    """An arrival makes one run in each location, and a worker merges what the first one wrote."""
    settings = Settings.from_environment()
    with (
        closing(Database(settings.database_url)) as database,
        _service(made, database) as service,
        _peaks(made) as peaks,
    ):

        def all_ready() -> bool:
            with database.read() as tx:
                views = [overview(tx, settings.cluster, location) for location in _LOCATIONS]
                # With two workers, compaction requests no run that works.
                ready = all(view.following for view in views) and len(live_workers(tx)) == 2
            return ready and bool(_spark(made)["aliveworkers"] == SPARK_WORKERS)

        wait(
            made,
            all_ready,
            "locations follow the event log, and all workers live",
        )
        wait(
            made,
            lambda: _answer(service, "GET", "/schedules"),
            "the service answers",
        )
        arrival = {"arrivals": [{"asset": "raw/orders", "partition": "monday"}]}
        key = {"Idempotency-Key": "monday"}
        assert _answer(service, "POST", "/events", json=arrival, headers=key)

        def all_done() -> bool:
            with database.read() as tx:
                views = [overview(tx, settings.cluster, location) for location in _LOCATIONS]
                states = [schedule.jobs for view in views for schedule in view.schedules]
                return bool(records(tx, table=TABLE)) and states == [{JobState.SUCCEEDED: 1}] * 2

        wait(
            made,
            all_done,
            "a run of each location succeeded, the table is merged",
        )
        with database.read() as tx:
            (record,) = records(tx, table=TABLE)
        listed = _answer(service, "GET", "/schedules")["schedules"]
        assert {schedule["name"] for schedule in listed} == {"orders", "totals"}
        _ask_all_at_once(made, service)
        with closing(made.console()) as console:
            what = "each process keeps few connections"
            wait(made, lambda: _are_few(made.connections(console)), what)

    totals = {user: count for user, count in peaks.items() if user.service and not user.use}
    above = {user.pid for user, count in totals.items() if count > CONNECTIONS}
    assert {user: count for user, count in peaks.items() if user.pid in above} == {}
    assert {user.service for user in totals} >= {*_USERS, "webserver"}
    # Four files of ten rows, by an executor of the cluster.
    assert (record.files_in, record.files_out, record.rows) == (FILES, 1, 40)
    assert record.ways == {"decode": 1}
    table = open_catalog(settings).load_table(TABLE)
    assert len(list(table.scan().plan_files())) == 1
    assert [row[0] for row in rows_of(table)] == [
        number * 1000 + row for number in range(FILES) for row in range(10)
    ]
    assert len(list((made.home / "spark-work").glob("app-*/*"))) >= 1
    assert len(_spark(made)["activeapps"]) >= 2
    # Each run once.
    assert sorted(_runs(made)) == [("orders", "SUCCESS"), ("totals", "SUCCESS")]


def _ask_all_at_once(made: Topology, service: httpx2.Client) -> None:
    """Many clients ask everything that needs one of the databases, while claims wait."""
    for worker in _IDLE:
        form = {"name": worker, "queues": ["nobody's"]}
        assert _answer(service, "PUT", f"/workers/{worker}", json=form)

    def claim(number: int) -> Any:
        form = {"key": f"key {number}", "wait_seconds": 10}
        return _answer(service, "POST", f"/workers/{_IDLE[number % len(_IDLE)]}/claim", json=form)

    def announce(number: int) -> Any:
        form = {"arrivals": [{"asset": "raw/unheard", "partition": str(number)}], "force": True}
        key = {"Idempotency-Key": f"unheard-{number}"}
        return _answer(service, "POST", "/events", json=form, headers=key)

    def plan(_: int) -> Any:
        answer = service.get(f"/compaction/tables/{TABLE}/plan")
        # 429: another one is being made.
        return answer if answer.is_success or answer.status_code == 429 else None

    def list_jobs(_: int) -> Any:
        return _answer(service, "GET", "/jobs")

    def list_runs(_: int) -> Any:
        return _runs(made)

    with ThreadPoolExecutor(CLIENTS) as clients, ThreadPoolExecutor(len(_IDLE)) as idle:
        claims = [idle.submit(claim, number) for number in range(len(_IDLE))]
        asked = [
            clients.submit(question, number)
            for number in range(TIMES)
            for question in (list_jobs, list_runs, announce, plan)
        ]
        assert all(one.result() is not None for one in [*asked, *claims])


@contextmanager
def _peaks(made: Topology) -> Iterator[Connections]:
    """The most connections of each process that were seen at once, by use and in all (``""``)."""
    peaks: Connections = Counter()
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            try:
                with closing(made.console()) as console:
                    while not ended.wait(0.02):
                        seen = made.connections(console)
                        for user, count in list(seen.items()):
                            seen[User(user.service, user.pid, "")] += count
                        for user, count in seen.items():
                            peaks[user] = max(peaks[user], count)
            except psycopg2.OperationalError:
                ended.wait(0.5)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peaks
    finally:
        ended.set()
        watcher.join()


def _are_few(connections: Connections) -> bool:
    """Whether all processes have as many as idle ones keep; others are closed after their use."""
    total: Counter[int] = Counter()
    for user, count in connections.items():
        if count > KEPT.get(user.use, count):
            return False
        total[user.pid] += count
    is_few = max(total.values()) <= CONNECTIONS
    return is_few and {user.service for user in connections if user.use == STATE} >= _USERS


def _service(made: Topology, database: Database) -> httpx2.Client:
    """A client of the service, with a token."""
    with database.begin() as tx:
        me = Actor(name="me", cluster="default")
        token = tokens.create(tx, me, "me", parse_scopes(["*:write"]), None)
    return httpx2.Client(
        base_url=f"http://127.0.0.1:{made.port(3001)}/api/v1",
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=PATIENCE_SECONDS,
    )


def _answer(client: httpx2.Client, method: str, path: str, **values: Any) -> Any:
    """The answer to a request that succeeds; none: nobody listens yet."""
    try:
        answer = client.request(method, path, **values)
    except httpx2.ConnectError:
        return None
    assert answer.is_success, answer.text
    return answer.json()


def _spark(made: Topology) -> Any:
    """What the page of Spark's master has; none: there is no page yet."""
    page = re.search(r"MasterWebUI.* http://[\w.]+:(\d+)", made.log("spark-master").read_text())
    return httpx2.get(f"http://127.0.0.1:{page[1]}/json/", trust_env=False).json() if page else None


def _runs(made: Topology) -> list[tuple[str, str]]:
    """The schedules of their runs, with the status, as Dagster's webserver has them."""
    url = f"http://127.0.0.1:{made.port(3000)}"
    with httpx2.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS) as client:
        wait(
            made,
            lambda: _answer(client, "GET", "/server_info"),
            "the webserver answers",
        )
        found = _answer(client, "POST", "/graphql", json={"query": _RUNS})["data"]["runsOrError"]
    tags = [{tag["key"]: tag["value"] for tag in run["tags"]} for run in found["results"]]
    return [
        (each["arctic/schedule"], run["status"])
        for each, run in zip(tags, found["results"], strict=True)
        if "arctic/schedule" in each
    ]
