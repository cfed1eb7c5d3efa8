"""What a tick of the dispatcher costs, beside what stock Dagster offers for the same work.

``make bench-dispatch`` runs everything in one process, on SQLite and on a Postgres of its own.
Times are medians of wall time, with CPU seconds of this process beside them.
"""

import argparse
import contextlib
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sa
from dagster._core.storage.event_log import SqlEventLogStorageTable
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration.clock import utc_now
from arctic_orchestration.database.engine import Database
from arctic_orchestration.events.dagster_log import DagsterLog
from arctic_orchestration.scheduling.engine import Engine
from arctic_orchestration_tests.postgres import PostgresServer, running_server
from arctic_orchestration_tests.scheduling.simulated import AnyTargets
from arctic_orchestration_tests.templates import write_dagster_yaml

SIZES = (100, 1_000, 10_000, 100_000)
EVENTS = 20_000


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


def schedules(count: int) -> list[Schedule]:
    """One schedule an asset, none of which fires during the measurement."""
    return [
        Schedule(
            name=f"schedule_{number}",
            target="job",
            trigger=on.partitions(f"raw/{number}", count=1_000_000),
            enabled=True,
        )
        for number in range(count)
    ]


def engine(at: Place, count: int) -> tuple[Engine, DagsterLog]:
    log = DagsterLog(at.instance)
    made = Engine(
        database=Database.open(at.database_url),
        cluster="bench",
        location="bench",
        feed=log,
        lookup=log,
        targets=AnyTargets(),
        declared=schedules(count),
    )
    made.tick(utc_now())
    return made, log


def arrive(at: Place, asset: str, partition: str) -> None:
    at.instance.report_runless_asset_event(
        dg.AssetMaterialization(["raw", asset], partition=partition, metadata={"bytes": 1000})
    )


def ticks(at: Place, count: int) -> tuple[Cost, Cost]:
    """An idle tick, and one with one event."""
    made, log = engine(at, count)
    arrive(at, "0", "warm")
    made.tick(utc_now())
    idle = median(lambda: made.tick(utc_now()), 100)
    numbers = iter(range(1000))
    one = median(lambda: made.tick(utc_now()), 30, lambda: arrive(at, "1", f"p{next(numbers)}"))
    log.close()
    made.database.close()
    return idle, one


def fill(at: Place, schedules_count: int, first: int, count: int) -> None:
    """Copies one real materialization into many, for assets in turn; a writer is not measured."""
    storage = at.instance.event_log_storage
    table = SqlEventLogStorageTable
    with storage.index_connection() as connection:
        query = sa.select(table).order_by(table.c.id.desc()).limit(1)
        row = dict(connection.execute(query).mappings().one())
        del row["id"]
        rows = []
        for number in range(first, first + count):
            asset, partition = str(number % schedules_count), f"p{number}"
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


def throughput(at: Place, count: int) -> tuple[float, float]:
    """Events a second of wall time and of CPU time, from Dagster's log to stored jobs."""
    made, log = engine(at, count)
    arrive(at, "template", "@")
    fill(at, count, 0, count)
    while made.tick(utc_now()).counts["events"]:
        pass
    fill(at, count, count, EVENTS)
    wall, cpu, taken = time.perf_counter(), time.process_time(), 0
    while seen := made.tick(utc_now()).counts["events"]:
        taken += seen
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert taken == EVENTS, taken
    log.close()
    made.database.close()
    return taken / wall, taken / cpu


def context(at: Place, repository: dg.RepositoryDefinition, cursor: str | None = None) -> object:
    return dg.SensorEvaluationContext(
        instance_ref=at.instance.get_ref(),
        last_tick_completion_time=None,
        last_run_key=None,
        cursor=cursor,
        log_key=None,
        repository_name=None,
        repository_def=repository,
    )


def dispatcher_sensor(at: Place, count: int) -> Cost:
    """The whole sensor, as Dagster calls it, for a tick with one event."""
    os.environ["ARCTIC_DATABASE_URL"] = at.database_url

    @dg.op
    def nothing() -> None: ...

    @dg.job
    def job() -> None:
        nothing()

    assets = [dg.AssetSpec(["raw", str(number)]) for number in range(count)]
    arctic = Arctic(schedules=schedules(count))
    merged = dg.Definitions.merge(dg.Definitions(assets=assets, jobs=[job]), arctic.definitions())
    repository = merged.get_repository_def()
    sensor = repository.get_sensor_def("arctic_dispatcher")
    sensor.evaluate_tick(context(at, repository))
    numbers = iter(range(1000))
    return median(
        lambda: sensor.evaluate_tick(context(at, repository)),
        20,
        lambda: arrive(at, "1", f"s{next(numbers)}"),
    )


def eager(at: Place, count: int) -> Cost:
    """One tick of Dagster's declarative automation over assets that are eager, with one event."""

    def made(number: int) -> dg.AssetsDefinition:
        @dg.asset(
            name=f"eager_{number}",
            deps=[dg.AssetKey(["raw", str(number)])],
            automation_condition=dg.AutomationCondition.eager(),
        )
        def asset() -> None: ...

        return asset

    sources = [dg.AssetSpec(["raw", str(number)]) for number in range(count)]
    defs = dg.Definitions(assets=[*sources, *(made(number) for number in range(count))])
    result = dg.evaluate_automation_conditions(defs=defs, instance=at.instance)
    numbers = iter(range(1000))

    def tick() -> None:
        nonlocal result
        result = dg.evaluate_automation_conditions(
            defs=defs, instance=at.instance, cursor=result.cursor
        )

    return median(tick, 3, lambda: arrive(at, "1", f"e{next(numbers)}"))


def asset_sensors(at: Place, count: int) -> Cost:
    """One tick of each of many stock asset sensors, with one event."""

    @dg.op
    def nothing() -> None: ...

    @dg.job
    def job() -> None:
        nothing()

    def made(number: int) -> dg.SensorDefinition:
        @dg.asset_sensor(
            asset_key=dg.AssetKey(["raw", str(number)]), job=job, name=f"sensor_{number}"
        )
        def sensor(context: dg.SensorEvaluationContext, event: dg.EventLogEntry) -> dg.RunRequest:
            return dg.RunRequest(run_key=context.cursor)

        return sensor

    repository = dg.Definitions(
        jobs=[job], sensors=[made(number) for number in range(count)]
    ).get_repository_def()
    sensors = [repository.get_sensor_def(f"sensor_{number}") for number in range(count)]
    cursors: dict[str, str | None] = {}
    numbers = iter(range(1000))

    def tick() -> None:
        for sensor in sensors:
            data = sensor.evaluate_tick(context(at, repository, cursors.get(sensor.name)))
            cursors[sensor.name] = data.cursor

    return median(tick, 3, lambda: arrive(at, "1", f"a{next(numbers)}"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-dispatch", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    given = parser.parse_args()
    os.environ["PYTHONWARNINGS"] = "ignore"
    console = Console(width=120)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    console.print(
        f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}, "
        f"Dagster {dg.__version__}, SQLAlchemy {sa.__version__}, load {os.getloadavg()[0]:.1f}"
    )
    with running_server() as server, Progress(console=console, transient=True) as progress:
        backends = ["sqlite", *(["postgres"] if server else [])]
        if server is None:
            console.print("no Postgres on this machine: its half is left out")
        todo = progress.add_task("measuring", total=len(backends) * (len(given.sizes) + 4))
        tables = [
            _ticks_table(backends, given.sizes, server, lambda: progress.advance(todo)),
            _throughput_table(backends, server, lambda: progress.advance(todo)),
            _stock_table(backends, server, lambda: progress.advance(todo)),
        ]
    for table in tables:
        console.print(table)
    console.print("Times are medians of wall time, and of CPU time of this process in brackets.")
    sys.exit(0)


def _ticks_table(
    backends: Sequence[str],
    sizes: Sequence[int],
    server: PostgresServer | None,
    advance: Callable[[], None],
) -> Table:
    table = Table("schedules", title="A tick of the engine", title_justify="left")
    measured: dict[str, list[tuple[Cost, Cost]]] = {}
    for backend in backends:
        table.add_column(f"{backend}: idle", justify="right")
        table.add_column("one event", justify="right")
        measured[backend] = []
        for size in sizes:
            measured[backend].append(measure(ticks, backend, server, size))
            advance()
    for index, size in enumerate(sizes):
        row = [f"{size:,}"]
        for backend in backends:
            row.extend(map(str, measured[backend][index]))
        table.add_row(*row)
    ratios = [f"{sizes[-1]:,} to {sizes[0]:,}"]
    for backend in backends:
        (idle_first, one_first), (idle_last, one_last) = measured[backend][0], measured[backend][-1]
        ratios.append(f"{idle_last.wall / idle_first.wall:.2f}")
        ratios.append(f"{one_last.wall / one_first.wall:.2f}")
    table.add_row(*ratios)
    return table


def _throughput_table(
    backends: Sequence[str], server: PostgresServer | None, advance: Callable[[], None]
) -> Table:
    table = Table(
        "backend",
        "events/s",
        "events a CPU second",
        title=f"Subscribing {EVENTS:,} events at 10,000 schedules, from Dagster's log to jobs "
        "(median of 3)",
        title_justify="left",
    )
    for backend in backends:
        runs = [measure(throughput, backend, server, 10_000) for _ in range(3)]
        wall = statistics.median(run[0] for run in runs)
        cpu = statistics.median(run[1] for run in runs)
        table.add_row(backend, f"{wall:,.0f}", f"{cpu:,.0f}")
        advance()
    return table


def _stock_table(
    backends: Sequence[str], server: PostgresServer | None, advance: Callable[[], None]
) -> Table:
    table = Table("", title="The same tick, one event, beside stock Dagster", title_justify="left")
    columns: dict[str, list[Cost]] = {}
    for backend in backends:
        table.add_column(backend, justify="right")
        table.add_column("times ours", justify="right")
        columns[backend] = []
        for step, count in ((dispatcher_sensor, 1_000), (eager, 1_000), (asset_sensors, 100)):
            columns[backend].append(measure(step, backend, server, count))
            advance()
    names = (
        "arctic dispatcher sensor, 1,000 schedules",
        "AutomationCondition.eager(), 1,000 assets",
        "100 stock asset sensors",
    )
    for index, name in enumerate(names):
        row = [name]
        for backend in backends:
            cost, ours = columns[backend][index], columns[backend][0]
            row.extend([str(cost), f"{cost.wall / ours.wall:,.0f}"])
        table.add_row(*row)
    return table


if __name__ == "__main__":
    main()
