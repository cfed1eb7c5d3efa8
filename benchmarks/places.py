"""What the benchmarks of the dispatcher share: a place on each database, events, and costs."""

import contextlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sa
from dagster._core.storage.event_log import SqlEventLogStorageTable

from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.templates import write_dagster_yaml


@dataclass(frozen=True)
class Cost:
    """Medians of a step: seconds of wall time, and of CPU time of this process."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall * 1000:,.1f} ms ({self.cpu * 1000:,.1f})"


@dataclass(frozen=True)
class Place:
    """A fresh Dagster instance and a fresh state database on one backend."""

    home: str
    database_url: str

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        return dg.DagsterInstance.from_config(self.home)


@contextlib.contextmanager
def place(backend: str, server: PostgresServer | None) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        name = f"bench_{time.monotonic_ns()}"
        if backend == "sqlite":
            write_dagster_yaml(home)
            url = f"sqlite:///{home / 'arctic.db'}"
        else:
            assert server is not None
            server.create_database(name)
            write_dagster_yaml(home, server=server, database_name=name)
            url = server.url(name)
        Database(url).upgrade()
        try:
            yield Place(str(home), url)
        finally:
            if backend == "postgres" and server is not None:
                server.drop_database(name)


def measure(
    step: Callable[..., Any], backend: str, server: PostgresServer | None, count: int
) -> Any:
    """Runs one measurement in a fresh process: what it leaves in memory slows no other."""
    spawn = multiprocessing.get_context("spawn")
    with (
        place(backend, server) as at,
        ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool,
    ):
        return pool.submit(step, at, count).result()


def median(
    step: Callable[[], object], times: int, before: Callable[[], object] | None = None
) -> Cost:
    walls, cpus = [], []
    for _ in range(times):
        if before is not None:
            before()
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return Cost(statistics.median(walls), statistics.median(cpus))


def arrive(at: Place, asset: str, partition: str) -> None:
    at.instance.report_runless_asset_event(
        dg.AssetMaterialization(["raw", asset], partition=partition, metadata={"bytes": 1000})
    )


def fill(at: Place, arrivals: Iterable[tuple[str, str]]) -> None:
    """Copies a real materialization for each asset and partition; a writer is not measured."""
    arrive(at, "template", "@")
    storage: Any = at.instance.event_log_storage
    table = SqlEventLogStorageTable
    with storage.index_connection() as connection:
        query = sa.select(table).order_by(table.c.id.desc()).limit(1)
        row = dict(connection.execute(query).mappings().one())
        del row["id"]
        rows = []
        for asset, partition in arrivals:
            text = row["event"].replace('"template"', f'"{asset}"').replace("@", partition)
            rows.append(
                {
                    **row,
                    "asset_key": f'["raw", "{asset}"]',
                    "partition": partition,
                    "event": text,
                }
            )
        connection.execute(sa.insert(table), rows)


def subscribe(made: Engine, events: int) -> tuple[float, float]:
    """Events a second of wall time and of CPU time, from Dagster's log to stored jobs.

    ``events`` were filled in, and the template that they were copied from comes before them.
    """
    wall, cpu, taken = time.perf_counter(), time.process_time(), 0
    while seen := made.tick(utc_now()).counts["events"]:
        taken += seen
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert taken == events + 1, taken
    return events / wall, events / cpu
