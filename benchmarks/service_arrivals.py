"""What it costs to post 10,000 arrivals, beside Dagster's own way to report them.

A request is a call of the application in this process, with its checks, the state database and
Dagster's event log, on the same kind of database. Sent again, it writes nothing.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from starlette.testclient import TestClient

from arctic_orchestration.service.access import AccessRules
from arctic_orchestration.service.app import create_app
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.templates import write_dagster_yaml

ARRIVALS = 10_000
#: how many Dagster reports; its time for all is extrapolated
_REPORTED = 500
_ROUNDS = 3


@contextmanager
def homed(backend: str, server: PostgresServer | None) -> Iterator[Path]:
    """A folder with a ``dagster.yaml``, and a state database beside it, in the environment."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        url = f"sqlite:///{home / 'arctic.db'}"
        if backend == "postgres":
            assert server is not None
            for name in ("arrivals_state", "arrivals_dagster"):
                server.create_database(name)
            url = server.url("arrivals_state")
            write_dagster_yaml(home, server=server, database_name="arrivals_dagster")
        else:
            write_dagster_yaml(home)
        os.environ.update(DAGSTER_HOME=str(home), ARCTIC_DATABASE_URL=url)
        try:
            yield home
        finally:
            os.environ.clear()
            os.environ.update(before)
            if backend == "postgres" and server is not None:
                for name in ("arrivals_state", "arrivals_dagster"):
                    server.drop_database(name)


def rows_of_arrivals(home: Path) -> list[tuple[str, str, str]]:
    """The best of some requests, the best of the same sent again, and Dagster's loop."""
    settings = Settings.from_environment()
    database = Database(settings.database_url)
    database.upgrade()
    client = TestClient(
        create_app(settings, database, AccessRules()),
        base_url="http://localhost/api/v1",
        client=("127.0.0.1", 50_000),
    )
    first: list[tuple[float, float]] = []
    again: list[tuple[float, float]] = []
    for number in range(_ROUNDS + 1):
        body = {
            "arrivals": [
                {"asset": f"raw/{place % 10}", "partition": f"{number}-{place}", "bytes": place}
                for place in range(ARRIVALS)
            ]
        }
        headers = {"Idempotency-Key": str(number)}
        # The first request also imports Dagster.
        for taken in (first, again):
            with _timed(taken):
                answer = client.post("/events", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
    database.close()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        loop: list[tuple[float, float]] = []
        with _timed(loop):
            for place in range(_REPORTED):
                instance.report_runless_asset_event(
                    dg.AssetMaterialization("raw", partition=str(place), metadata={"bytes": place})
                )
    ways = (
        ("POST /events", 1, min(first[1:])),
        ("the same again", 1, min(again[1:])),
        ("report_runless_asset_event in a loop", ARRIVALS / _REPORTED, loop[0]),
    )
    return [
        (name, f"{wall * times:.2f} ({cpu * times:.2f})", f"{ARRIVALS / wall / times:,.0f}")
        for name, times, (wall, cpu) in ways
    ]


@contextmanager
def _timed(taken: list[tuple[float, float]]) -> Iterator[None]:
    """Adds the seconds of wall time and of CPU time of this process."""
    begin, cpu = time.perf_counter(), time.process_time()
    yield
    taken.append((time.perf_counter() - begin, time.process_time() - cpu))
