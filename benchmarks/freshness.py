"""What freshness dependencies cost: to resolve a graph of tasks, and to submit.

``make bench-freshness`` runs everything at once, each measurement in a process of its own. The
graph has 10,000 tasks with 50,000 edges, each task needing five of the 200 before it. Beside it
stands what one would use instead: ``graphlib`` for the order alone, Dagster's own asset graph, and
one evaluation of ``AutomationCondition.eager()``, which decides what has to run, as we do.
Loading is what each process of a code location does first, up to the repository, imports apart;
beside it stand as many assets under Dagster's own decorator.
Submissions, one in a transaction, stand beside runs that are created in Dagster's storage.
Times are medians of wall time, with CPU seconds of the process in brackets.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from arctic_orchestration import Freshness, fresh_parents
from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.freshness import definitions, submissions
from arctic_orchestration.freshness.criteria import Parent, TaskSpec
from arctic_orchestration.freshness.graph import TaskGraph
from arctic_orchestration.freshness.lifecycle import Lifecycle
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.postgres import PostgresServer, running_server
from benchmarks.places import Cost, Place, measure, median

TASKS = 10_000
PARENTS = 5
#: what AutomationCondition.eager() is asked about; at 10,000 it would take minutes
EAGER = 1_000
#: tasks of a code location that is loaded
LOADED = 2_000
SUBMISSIONS = 500
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)

Edges = list[list[int]]


def edges(count: int) -> Edges:
    """The parents of each task by number: five of the 200 before it, as many as there are."""
    chosen = random.Random(7)
    return [
        chosen.sample(range(max(0, number - 200), number), min(number, PARENTS))
        for number in range(count)
    ]


def specs(count: int) -> list[TaskSpec]:
    hours = (None, 1.0, 6.0, 24.0, 48.0)
    return [
        TaskSpec(
            name=f"task_{number}",
            target=f"task_{number}",
            batch=f"batch_{number % 100}",
            freshness_hours=hours[number % 5],
            parents=tuple(
                Parent(name=f"task_{parent}", hours=hours[(number + parent) % 5])
                for parent in parents
            ),
        )
        for number, parents in enumerate(edges(count))
    ]


def ages(count: int) -> dict[str, datetime | None]:
    """Last successes of up to two days ago; of one task in ten none."""
    chosen = random.Random(8)
    return {
        f"task_{number}": NOW - timedelta(hours=chosen.uniform(0, 48)) if number % 10 else None
        for number in range(count)
    }


def built(at: Place, count: int) -> Cost:
    """From specs to the order of all tasks, a cycle ruled out."""
    declared = specs(count)
    return median(lambda: TaskGraph(declared).order(), 7)


def resolved(at: Place, count: int) -> Cost:
    """From specs to what has to run."""
    declared, made = specs(count), ages(count)
    return median(lambda: TaskGraph(declared).resolve(made, NOW), 7)


def resolved_again(at: Place, count: int) -> Cost:
    """What has to run, of a graph that is there."""
    graph, made = TaskGraph(specs(count)), ages(count)
    graph.order()
    return median(lambda: graph.resolve(made, NOW), 7)


def with_graphlib(at: Place, count: int) -> Cost:
    parents = {
        f"task_{number}": [f"task_{parent}" for parent in found]
        for number, found in enumerate(edges(count))
    }
    return median(lambda: list(TopologicalSorter(parents).static_order()), 7)


def with_dagster(at: Place, count: int) -> Cost:
    """Dagster's graph of as many assets, and its order."""
    made = [
        dg.AssetsDefinition(
            specs=[dg.AssetSpec(f"task_{number}", deps=[f"task_{parent}" for parent in found])]
        )
        for number, found in enumerate(edges(count))
    ]
    return median(lambda: AssetGraph.from_assets(made).toposorted_asset_keys, 3)


def eager(at: Place, count: int) -> Cost:
    """One evaluation over assets that were all materialized once."""

    def asset_of(number: int, parents: list[int]) -> dg.AssetsDefinition:
        @dg.asset(
            name=f"task_{number}",
            deps=[f"task_{parent}" for parent in parents],
            automation_condition=dg.AutomationCondition.eager(),
        )
        def made() -> None: ...

        return made

    whole = dg.Definitions([asset_of(*one) for one in enumerate(edges(count))])
    for number in range(count):
        at.instance.report_runless_asset_event(dg.AssetMaterialization(f"task_{number}"))
    cursor = dg.evaluate_automation_conditions(whole, instance=at.instance).cursor
    return median(
        lambda: dg.evaluate_automation_conditions(whole, instance=at.instance, cursor=cursor), 3
    )


def loaded_batches(at: Place, count: int) -> Cost:
    """A location whose tasks stand in batch files of a hundred."""
    parents = edges(count)
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / f"batch_{number}.json" for number in range((count + 99) // 100)]
        for number, file in enumerate(files):
            tasks = [
                {"name": f"task_{one}", "python": "os:getcwd",
                 "dependencies": [f"task_{parent}" for parent in parents[one]]}
                for one in range(number * 100, min(count, number * 100 + 100))
            ]  # fmt: skip
            file.write_text(json.dumps({"name": file.stem, "tasks": tasks}))
        spark = dg.Definitions(resources={"pyspark": object()})
        return median(
            lambda: dg.Definitions.merge(
                Freshness(batches=files).definitions(), spark
            ).get_repository_def(),
            3,
        )


def _asset(number: int, parents: list[int]) -> dg.AssetsDefinition:
    @dg.asset(name=f"task_{number}", deps=[f"task_{parent}" for parent in parents])
    def made() -> None: ...

    return made


def loaded_decorated(at: Place, count: int) -> Cost:
    """A location whose tasks are assets under the decorator."""

    def tasks() -> list[dg.AssetsDefinition]:
        return [
            fresh_parents({f"task_{parent}": 24 for parent in parents})(_asset(number, parents))
            for number, parents in enumerate(edges(count))
        ]

    return median(lambda: Freshness(tasks=tasks()).definitions().get_repository_def(), 3)


def loaded_plain(at: Place, count: int) -> Cost:
    """A location of assets that are no tasks."""
    return median(
        lambda: dg.Definitions([_asset(*one) for one in enumerate(edges(count))])
        .get_repository_def(),
        3,
    )  # fmt: skip


def registered(at: Place, count: int) -> Database:
    """A state database in which a location has declared so many tasks."""
    database = Database.open(at.database_url)
    with database.begin() as tx:
        definitions.register(tx, "bench", "bench", specs(count), database_time(tx))
    return database


def submitted(at: Place, count: int) -> tuple[float, float]:
    """Submissions a second, and a CPU second of the process: one in a transaction."""
    database = registered(at, count)
    chosen = random.Random(9)

    def submit() -> None:
        with database.begin() as tx:
            name = f"task_{chosen.randrange(count)}"
            submissions.submit(tx, [name], cluster="bench", by="a benchmark")

    return _rate(submit)


def looked_at(at: Place, count: int) -> tuple[float, float]:
    """Submissions that a location's tick takes on a second, of as many different tasks."""
    database = registered(at, count)
    names = [f"task_{number}" for number in range(SUBMISSIONS)]
    with database.begin() as tx:
        submissions.submit(tx, names, cluster="bench", by="a benchmark")
    life = Lifecycle(
        database=database, cluster="bench", location="bench", runs=DagsterLog(at.instance)
    )
    begun = time.perf_counter(), time.process_time()
    counts = life.tick().counts
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    done = counts["acquired"] + counts["waits_for_parents"]
    assert done >= SUBMISSIONS, counts
    return SUBMISSIONS / wall, SUBMISSIONS / cpu


def created(at: Place, count: int) -> tuple[float, float]:
    """Runs that are created in Dagster's storage a second; nobody starts them."""

    @dg.op
    def nothing() -> None: ...

    @dg.job
    def work() -> None:
        nothing()

    instance = at.instance
    return _rate(lambda: instance.create_run_for_job(work))


def _rate(step: Callable[[], object]) -> tuple[float, float]:
    step()
    begun = time.perf_counter(), time.process_time()
    for _ in range(SUBMISSIONS):
        step()
    wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    return SUBMISSIONS / wall, SUBMISSIONS / cpu


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-freshness", description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--eager", type=int, default=EAGER, help="assets for eager(); 0: none")
    parser.add_argument("--backend", choices=("sqlite", "postgres"), action="append")
    given = parser.parse_args()
    os.environ["PYTHONWARNINGS"] = "ignore"
    console = Console(width=120)
    backends: Sequence[str] = given.backend or ("sqlite", "postgres")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_server()) if "postgres" in backends else None
        if "postgres" in backends and server is None:
            sys.exit("no Postgres binaries (initdb, postgres): --backend sqlite measures without")
        load = os.getloadavg()[0]
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        bar = progress.add_task("measuring", total=10 + 3 * len(backends))
        tables = [
            _graph_table(given.tasks, given.eager, lambda: progress.advance(bar)),
            _rates_table(given.tasks, backends, server, lambda: progress.advance(bar)),
        ]
    console.print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, Dagster {dg.__version__}, "
        f"load {load:.1f} before and {os.getloadavg()[0]:.1f} after"
    )
    for table in tables:
        console.print(table)
    console.print("Times are medians of wall time, and of CPU time of the process in brackets.")


def _graph_table(tasks: int, assets: int, advance: Callable[[], None]) -> Table:
    table = Table(title=f"Resolving {tasks:,} tasks, five parents each", title_justify="left")
    for column in ("", "time", "times ours, wall", "CPU"):
        table.add_column(column, justify="right" if column else "left")

    def row(name: str, step: Callable[[Place, int], Cost], count: int, ours: Cost | None) -> Cost:
        cost: Cost = measure(step, "sqlite", None, count)
        advance()
        if ours is None:
            table.add_row(name, str(cost), "1", "1")
        else:
            ratios = (cost.wall / ours.wall, cost.cpu / ours.cpu)
            table.add_row(name, str(cost), *(f"{ratio:,.2f}" for ratio in ratios))
        return cost

    whole = row("ours: graph, no cycle, what has to run", resolved, tasks, None)
    row("ours: what has to run, of a graph that is there", resolved_again, tasks, whole)
    row("ours: graph, no cycle, order", built, tasks, whole)
    row("graphlib: order", with_graphlib, tasks, whole)
    row("Dagster: asset graph, order", with_dagster, tasks, whole)
    if assets:
        table.add_section()
        small = row(f"ours, of {assets:,} tasks", resolved, assets, None)
        row(f"Dagster: eager(), of {assets:,} assets", eager, assets, small)
    table.add_section()
    loaded = row(f"ours: loading {LOADED:,} tasks of batches", loaded_batches, LOADED, None)
    row(f"ours: loading {LOADED:,} decorated assets", loaded_decorated, LOADED, loaded)
    row(f"Dagster: loading {LOADED:,} assets", loaded_plain, LOADED, loaded)
    return table


def _rates_table(
    tasks: int,
    backends: Sequence[str],
    server: PostgresServer | None,
    advance: Callable[[], None],
) -> Table:
    table = Table(
        title=f"{SUBMISSIONS:,} of each, one after another, with {tasks:,} tasks declared: "
        "a second (a CPU second of the process)",
        title_justify="left",
    )
    for column in ("", *backends):
        table.add_column(column, justify="right" if column else "left")
    steps: dict[str, Callable[[Place, int], Any]] = {
        "submissions": submitted,
        "submissions that a tick takes on": looked_at,
        "runs created in Dagster's storage": created,
    }
    for name, step in steps.items():
        cells = []
        for backend in backends:
            wall, cpu = measure(step, backend, server, tasks)
            cells.append(f"{wall:,.0f} ({cpu:,.0f})")
            advance()
        table.add_row(name, *cells)
    return table


if __name__ == "__main__":
    main()
