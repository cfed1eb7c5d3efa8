"""What a pass of Dagster's daemon over its run queue costs, with 1,000 rules and without any.

``make bench-queue`` runs everything at once, on SQLite and on a Postgres of its own. Ours is
``ArcticRunCoordinator`` with 700 groups, 100 windows, 100 rates, 80 intervals and 20 queues; stock
is ``QueuedRunCoordinator`` without limits, over as many runs without our tags. Each has a storage
and a process of its own, and their passes alternate. Times are medians of wall time, with CPU
seconds of the daemon's process beside them.
"""

import argparse
import contextlib
import multiprocessing
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import dagster as dg
import sqlalchemy as sa
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from arctic_orchestration.clock import utc_now
from arctic_orchestration_tests.postgres import PostgresServer, running_server
from benchmarks import queue_daemon
from benchmarks.places import Cost, Place, place
from benchmarks.queue_daemon import OURS, STOCK, Pass
from benchmarks.queue_lake import SLOTS, Job, Lake, make_lake

SIZES = (1_000, 10_000)
GOAL = 1.2
#: runs that end, and runs that start, between two passes of a queue that moves
MOVING = 5


class Worker:
    """A process that has one coordinator and its daemon."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = stack.enter_context(ProcessPoolExecutor(max_workers=1, mp_context=spawn))

    def __call__(self, step: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return self._pool.submit(step, *args, **named).result()


@dataclass(frozen=True)
class Row:
    """One thing that was measured, for each contestant; ``note`` says what happened meanwhile."""

    backend: str
    size: int
    what: str
    costs: Mapping[str, Cost]
    note: str = ""

    def times(self, name: str = "ours") -> tuple[float, float]:
        """By how much it is dearer than stock, in wall and in CPU time."""
        ours, stock = self.costs[name], self.costs["stock"]
        return ours.wall / stock.wall, ours.cpu / stock.cpu


def cost(passes: Sequence[Pass]) -> Cost:
    return Cost(statistics.median(p.wall for p in passes), statistics.median(p.cpu for p in passes))


def alternating(
    workers: Mapping[str, Worker],
    times: int,
    *,
    launches: bool = False,
    between: Callable[[Worker, int], None] | None = None,
) -> dict[str, list[Pass]]:
    """Passes of each in turn; ``between`` is done before each of them, and not measured."""
    done: dict[str, list[Pass]] = {name: [] for name in workers}
    for turn in range(times):
        for name, worker in workers.items():
            if between is not None:
                between(worker, turn)
            done[name].append(worker(queue_daemon.one_pass, launches=launches))
    return done


@contextlib.contextmanager
def filled(
    lake: Lake, jobs: Sequence[Job], size: int, backend: str, server: PostgresServer | None
) -> Iterator[tuple[dict[str, Worker], Callable[[str, dict[str, Any]], Worker]]]:
    """Both coordinators, each with its runs; and a way to set another one beside ours."""
    slots = {"max_concurrent_runs": SLOTS}
    with contextlib.ExitStack() as stack:

        def open_(at: Place, name: str, coordinator: dict[str, Any], rules: Any) -> Worker:
            worker = Worker(stack)
            worker(queue_daemon.begin, at.home, at.database_url, name, coordinator, rules)
            stack.callback(worker, queue_daemon.end)
            return worker

        def beside(name: str, config: dict[str, Any]) -> Worker:
            return open_(ours_at, name, {**STOCK, "config": {**slots, **config}}, {})

        ours_at = stack.enter_context(place(backend, server))
        stock_at = stack.enter_context(place(backend, server))
        ours = {**OURS, "config": {**slots, **lake.config}}
        workers = {
            "stock": open_(stock_at, "stock", {**STOCK, "config": slots}, {}),
            "ours": open_(ours_at, "ours", ours, lake.config),
        }
        for worker in workers.values():
            worker(queue_daemon.fill, lake, jobs, size)
        yield workers, beside


def resting(
    size: int, passes: int, backend: str, server: PostgresServer | None, profile: bool
) -> tuple[list[Row], str]:
    """A queue in which nothing changes, because every run is held by a rule."""
    lake = make_lake(utc_now())
    with filled(lake, lake.held, size, backend, server) as (workers, beside):
        first = alternating(workers, 1)
        reported = first["ours"][0].reported
        rows = [
            Row(
                backend,
                size,
                "the first pass",
                {name: cost(done) for name, done in first.items()},
                f"{reported} runs informed",
            )
        ]
        workers["ours"](queue_daemon.settle)
        limits = workers["ours"](queue_daemon.limits)
        # What the difference is made of: the same daemon and queue, with more and more of ours.
        parts = {
            "stock": workers["stock"],
            "tags": beside("tags", {}),
            "limits": beside("limits", {"tag_concurrency_limits": limits}),
            "ours": workers["ours"],
        }
        for worker in parts.values():
            worker(queue_daemon.one_pass, launches=False)
        done = alternating(parts, passes)
        assert not any(p.chosen or p.reported for p in done["ours"]), "something changed after all"
        assert not any(p.chosen for p in done["limits"]), "the same limits hold less"
        costs = {name: cost(runs) for name, runs in done.items()}
        rows.append(Row(backend, size, "nothing changes", costs, f"{len(limits):,} limits"))
        text = workers["ours"](queue_daemon.profiled, 60) if profile else ""
        for worker in workers.values():
            worker(queue_daemon.occupy, lake)
            worker(queue_daemon.one_pass, launches=False)
        full = alternating(workers, passes)
        assert not any(p.chosen for done in full.values() for p in done), "a slot was free"
        costs = {name: cost(runs) for name, runs in full.items()}
        rows.append(Row(backend, size, "all slots taken", costs))
    return rows, text


def moving(size: int, passes: int, backend: str, server: PostgresServer | None) -> Row:
    """A queue that moves: half of it waits for slots, and a few runs end, start and come."""
    lake = make_lake(utc_now())
    jobs = [job for pair in zip(lake.held, lake.free, strict=True) for job in pair]
    with filled(lake, jobs, size, backend, server) as (workers, _):
        workers["ours"](queue_daemon.settle)

        def between(worker: Worker, turn: int) -> None:
            worker(queue_daemon.churn, lake, turn, MOVING)

        alternating(workers, 2, launches=True, between=between)
        done = alternating(workers, passes, launches=True, between=between)
        launched = {name: statistics.mean(p.chosen for p in runs) for name, runs in done.items()}
        reported = statistics.mean(p.reported for p in done["ours"])
        note = f"{reported:.1f} informed"
        assert launched["stock"] == launched["ours"] == MOVING, launched
        costs = {name: cost(runs) for name, runs in done.items()}
    return Row(backend, size, f"{MOVING} end, {MOVING} start", costs, note)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-queue", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--passes", type=int, default=11)
    parser.add_argument("--backends", nargs="+", default=["sqlite", "postgres"])
    parser.add_argument("--profile", action="store_true", help="show where the time of ours goes")
    given = parser.parse_args()
    os.environ["PYTHONWARNINGS"] = "ignore"
    console = Console(width=120)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    console.print(
        f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}, "
        f"Dagster {dg.__version__}, SQLAlchemy {sa.__version__}, load {os.getloadavg()[0]:.1f}"
    )
    rows: list[Row] = []
    with running_server() as server, Progress(console=console, transient=True) as progress:
        backends = [name for name in given.backends if name == "sqlite" or server]
        if server is None:
            console.print("no Postgres on this machine: its half is left out")
        todo = progress.add_task("measuring", total=2 * len(backends) * len(given.sizes))
        for backend in backends:
            for size in given.sizes:
                progress.update(todo, description=f"{backend}, {size:,} runs")
                still, text = resting(size, given.passes, backend, server, given.profile)
                progress.advance(todo)
                rows += [*still, moving(size, given.passes, backend, server)]
                progress.advance(todo)
                if text:
                    console.print(text, markup=False, highlight=False)
    console.print(_passes_table(rows))
    console.print(_parts_table(rows))
    console.print(
        f"Times are medians of {given.passes} passes (the first pass: one) in wall time, and in "
        "CPU time of the daemon's process in brackets. With all slots taken stock does not read "
        "its queue, and ours does, to say why runs wait."
    )
    sys.exit(0)


def _passes_table(rows: Sequence[Row]) -> Table:
    table = Table(
        title="A pass over the queue: ours with 1,000 rules beside stock without any",
        title_justify="left",
    )
    for name in ("backend", "queued", "pass"):
        table.add_column(name, justify="right" if name == "queued" else "left")
    for name in ("stock", "ours", "times stock", ""):
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        wall, cpu = row.times()
        table.add_row(
            row.backend,
            f"{row.size:,}",
            row.what,
            str(row.costs["stock"]),
            str(row.costs["ours"]),
            f"{wall:.2f} ({cpu:.2f})",
            row.note,
        )
    return table


def _parts_table(rows: Sequence[Row]) -> Table:
    table = Table(
        title="What the difference is made of, where nothing changes",
        title_justify="left",
    )
    for name in ("backend", "queued", "stock", "+ our tags", "+ our limits", "+ our pass = ours"):
        table.add_column(name, justify="left" if name == "backend" else "right")
    for row in rows:
        if "tags" not in row.costs:
            continue
        before = row.costs["stock"]
        cells = [str(before)]
        for name in ("tags", "limits", "ours"):
            after = row.costs[name]
            wall, cpu = ((after.wall - before.wall) * 1000, (after.cpu - before.cpu) * 1000)
            cells.append(f"{wall:+,.1f} ms ({cpu:+,.1f})")
            before = after
        table.add_row(row.backend, f"{row.size:,}", *cells)
    return table


if __name__ == "__main__":
    main()
