"""What a tick of the dispatcher costs, beside what stock Dagster offers for the same work.

``make bench-dispatch`` runs everything in one process, on SQLite and on a Postgres of its own.
Times are medians of wall time, with CPU seconds of this process beside them.
"""

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence

import dagster as dg
import sqlalchemy as sa
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration.clock import utc_now
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.schedules.engine import Engine
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.postgres import PostgresServer, running_server
from arctic_orchestration_tests.schedules.simulated import AnyTargets
from benchmarks.dispatch_partitions import partitions_table
from benchmarks.places import Cost, Place, arrive, fill, measure, median, subscribe

SIZES = (100, 1_000, 10_000, 100_000)
EVENTS = 20_000


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


def throughput(at: Place, count: int) -> tuple[float, float]:
    """Events a second of wall time and of CPU time; each schedule has a waiting job before."""
    made, log = engine(at, count)
    fill(at, ((str(number % count), f"p{number}") for number in range(count)))
    subscribe(made, count)
    fill(at, ((str(number % count), f"p{number}") for number in range(count, count + EVENTS)))
    rates = subscribe(made, EVENTS)
    log.close()
    made.database.close()
    return rates


def context(
    at: Place, repository: dg.RepositoryDefinition, cursor: str | None = None
) -> dg.SensorEvaluationContext:
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
        todo = progress.add_task("measuring", total=len(backends) * (len(given.sizes) + 5))
        tables = [
            _ticks_table(backends, given.sizes, server, lambda: progress.advance(todo)),
            _throughput_table(backends, server, lambda: progress.advance(todo)),
            partitions_table(backends, server, lambda: progress.advance(todo)),
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
