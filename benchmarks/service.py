"""What the questions of people cost that many pages and clients ask again and again.

``make bench-service`` asks what waits, grouped by cause and as a page, in a state database with
100,000 schedules, 10,000 waiting jobs of ten causes and 10,000 queued runs of ten causes, on SQLite
and on a Postgres of its own. Beside the waiting jobs stand 100,000 that have ended. Each question
is a transaction of its own; times are wall times, and beside the median CPU times of this process,
without that of Postgres' server.

Then it posts 10,000 arrivals in one request, beside Dagster's own way to report them one by one.
Last, workers wait for tasks over HTTP: from a task that is stored to the claim that has it, and the
share of a core that a thousand of them cost.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from arctic_orchestration.run_queue.waits import cause_of
from arctic_orchestration.schedules.checker import BY_SUSPENSION, SUSPENDED
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.run_queue_tables import queue_waits
from arctic_orchestration.state.tables import jobs, locations, schedules
from arctic_orchestration.waiting.reader import waiting, waiting_by_cause
from arctic_orchestration.waiting.wait_filter import WaitFilter
from arctic_orchestration_tests.postgres import PostgresServer, running_server
from benchmarks import service_workers
from benchmarks.service_arrivals import homed, rows_of_arrivals

SCHEDULES, JOBS, RUNS, ENDED = 100_000, 10_000, 10_000, 100_000
#: milliseconds in which what waits is grouped, in 95 of 100 cases
GOAL = 50
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
#: the constraints that hold the jobs; a tenth waits for its trigger, a tenth is suspended
CONSTRAINTS = (
    "window", "concurrency", "rate", "fresh", "load", "delay", "minimum_interval", "checks_passed",
)  # fmt: skip
GATES = (
    "window:night:2026-03-02 22:00:00+00:00:False", "group:spark", "group:etl", "rate:hourly",
    "interval:calm:rollup", "program:spark:rollup", "paused:queue:low:2026-03-02 08:00:00+00:00",
    "turn", "dagster", "tag:team=ops:False",
)  # fmt: skip


def verdicts(constraint: str, number: int) -> str:
    """Three verdicts, the second of which holds; the reason differs from job to job."""
    recheck = (NOW + timedelta(minutes=number % 600)).isoformat()
    admits = (
        '{"constraint": "%s", "decision": "admit", "reason": "1 of 9 runs", "recheck_at": null}'
    )
    holds = '{"constraint": "%s", "decision": "hold", "reason": "opens at %s", "recheck_at": "%s"}'
    return f"[{admits % 'rate'}, {holds % (constraint, recheck, recheck)}, {admits % 'load'}]"


def job_rows(location: int) -> Iterator[dict[str, Any]]:
    """Jobs that wait, each of another schedule, then jobs that have ended."""
    spec: dict[str, Any] = {"location_id": location, "schedule_version": 1, "arrivals": "[]"}
    for number in range(JOBS + ENDED):
        made = NOW - timedelta(seconds=7 * number % 86_400, microseconds=number)
        ended = number >= JOBS
        cause = number % 10
        row = {
            **spec,
            "id": f"job{number:023d}",
            "schedule_id": f"schedule{number % SCHEDULES:018d}",
            "priority": 0,
            "attempt": 0,
            "requests": 0,
            "created_at": made,
            "state": "succeeded" if ended else "waiting_constraints",
            "reason": f"reason {number % 1000}",
            "waiting_for": None if ended else "",
            "satisfied_at": made,
            "next_check_at": None if ended else NOW,
            "ended_at": NOW if ended else None,
            "verdicts": verdicts(CONSTRAINTS[cause % 8], number),
            "cause": CONSTRAINTS[cause % 8],
        }
        if not ended and cause == 8:
            row |= {"state": "waiting_trigger", "cause": None, "satisfied_at": None}
        if not ended and cause == 9:
            row |= {"cause": BY_SUSPENSION, "reason": SUSPENDED}
        yield row


def fill(database: Database) -> None:
    """Stores schedules, jobs and reported waits of queued runs."""
    spec = Schedule(name="s", target="rollup", trigger=on.partitions("raw/feed", count=2))
    with database.begin() as tx:
        tx.execute(sa.insert(locations).values(cluster="default", name="lake", ticked_at=NOW))
        location = tx.execute(sa.select(locations.c.id)).scalar_one()
        stored = {
            "location_id": location, "version": 1, "origin": "api", "status": "enabled",
            "spec": spec.model_dump_json(), "created_at": NOW, "updated_at": NOW, "status_at": NOW,
        }  # fmt: skip
        in_batches(
            tx,
            schedules,
            ({**stored, "id": f"schedule{n:018d}", "name": f"schedule {n}"}
             for n in range(SCHEDULES)),
        )  # fmt: skip
        in_batches(tx, jobs, job_rows(location))
        in_batches(
            tx,
            queue_waits,
            ({"cluster": "default", "run_id": f"run-{n:06d}", "gate": GATES[n % 10],
              "reason": f"reason {n % 1000}", "since": NOW - timedelta(seconds=n),
              "cause": cause_of(GATES[n % 10])}
             for n in range(RUNS)),
        )  # fmt: skip
    if database.engine.dialect.name == "postgresql":
        # As autovacuum does it within a minute.
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as raw:
            raw.execute(sa.text("vacuum analyze"))


def in_batches(tx: sa.Connection, table: sa.Table, rows: Iterator[dict[str, Any]]) -> None:
    """Inserts rows, some at once."""
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == 5_000:
            tx.execute(sa.insert(table), batch)
            batch = []
    if batch:
        tx.execute(sa.insert(table), batch)


def questions() -> Mapping[str, Callable[[sa.Connection], object]]:
    """What people ask; the first one has the goal."""
    return {
        "grouped by cause": lambda tx: waiting_by_cause(tx, "default", NOW),
        "grouped, one location": lambda tx: waiting_by_cause(
            tx, "default", NOW, WaitFilter(location="lake")
        ),
        "grouped, a text": lambda tx: waiting_by_cause(
            tx, "default", NOW, WaitFilter(text="reason 77")
        ),
        "a page of 50": lambda tx: waiting(tx, "default", NOW),
        "a page of one cause": lambda tx: waiting(
            tx, "default", NOW, WaitFilter(cause="concurrency")
        ),
    }


def measured(database: Database, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds of wall and CPU time of each question, in turn, after a round for the caches."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in questions()}
    for number in range(rounds + 1):
        for name, ask in questions().items():
            begin, cpu = time.perf_counter(), time.process_time()
            with database.read() as tx:
                ask(tx)
            if number:
                wall = time.perf_counter() - begin
                taken[name].append((wall * 1000, (time.process_time() - cpu) * 1000))
    return taken


@contextmanager
def opened(backend: str, server: PostgresServer | None) -> Iterator[Database]:
    """A state database that is filled."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'state.db'}"
        if backend == "postgres":
            assert server is not None
            server.create_database("service")
            url = server.url("service")
        database = Database(url)
        database.upgrade()
        fill(database)
        try:
            yield database
        finally:
            database.close()
            if backend == "postgres" and server is not None:
                server.drop_database("service")


def p95(taken: Sequence[float]) -> float:
    """The time that 95 of 100 do not exceed."""
    return statistics.quantiles(taken, n=20, method="inclusive")[-1]


def main() -> None:
    """Measures all questions on both databases, and prints the table."""
    parser = argparse.ArgumentParser(prog="make bench-service", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--backends", nargs="+", default=["sqlite", "postgres"])
    given = parser.parse_args()
    console = Console(width=100)
    console.print(
        f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, SQLAlchemy {sa.__version__}, "
        f"load {os.getloadavg()[0]:.1f}\n"
    )
    table = Table("backend", "question", title="What waits, ms", title_justify="left")
    for column in ("median (CPU)", "p95", "most"):
        table.add_column(column, justify="right")
    arrivals = Table("backend", "10,000 arrivals", title="Arrivals", title_justify="left")
    for column in ("seconds (CPU)", "a second"):
        arrivals.add_column(column, justify="right")
    workers = Table("backend", title="Idle workers", title_justify="left")
    for column in ("idle → claim, median ms", "p95", "1,000 idle, share of a core"):
        workers.add_column(column, justify="right")
    late = []
    with running_server() as server:
        for backend in given.backends:
            if backend == "postgres" and server is None:
                console.print("no Postgres on this machine: its half is left out")
                continue
            with opened(backend, server) as database:
                taken = measured(database, given.rounds)
            for name, times in taken.items():
                walls, cpus = zip(*times, strict=True)
                median = f"{statistics.median(walls):.1f} ({statistics.median(cpus):.1f})"
                table.add_row(backend, name, median, f"{p95(walls):.1f}", f"{max(walls):.1f}")
                if name == "grouped by cause" and p95(walls) > GOAL:
                    late.append(f"grouped by cause, {backend}")
            with homed(backend, server) as home:
                for row in rows_of_arrivals(home):
                    arrivals.add_row(backend, *row)
                url = os.environ["ARCTIC_DATABASE_URL"]
                database = Database(url)
                claims, share = service_workers.measured(database, url, home)
                database.close()
            median = f"{statistics.median(claims):.1f}"
            workers.add_row(backend, median, f"{p95(claims):.1f}", f"{share:.1%}")
            if p95(claims) > service_workers.CLAIM_GOAL:
                late.append(f"idle → claim, {backend}")
            if share > service_workers.IDLE_GOAL:
                late.append(f"1,000 idle workers, {backend}")
    console.print(table)
    console.print(arrivals)
    console.print(workers)
    if late:
        raise SystemExit(f"more than its goal: {', '.join(late)}")


if __name__ == "__main__":
    main()
