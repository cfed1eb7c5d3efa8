"""Proof on Postgres: two dispatchers of one location lose nothing and double nothing.

``ARCTIC_PROOF=full`` is 1,000 schedules and 10,000 events; by default a tenth of both.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import sqlalchemy as sa
from dagster import DagsterInstance

from arctic_orchestration.clock import utc_now
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.tables import events, job_events, jobs, schedules
from arctic_orchestration_tests.forking import forkserver
from arctic_orchestration_tests.patience import PATIENCE_SECONDS
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.proofs import arrivals, dispatchers, run_table
from arctic_orchestration_tests.proofs.dispatchers import OF_AN_ASSET, Report

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

FULL = os.environ.get("ARCTIC_PROOF") == "full"
ASSETS = 100 if FULL else 10
WRITERS = 4
EVENTS_OF_A_WRITER = 2_500 if FULL else 250
_SECONDS = 900 if FULL else PATIENCE_SECONDS


@dataclass
class Race:
    """Writers and dispatchers at once, over one Dagster instance and one state database."""

    home: str
    dsn: str
    url: str
    processes: list[BaseProcess]

    def run(self, *, with_lock: bool) -> list[Report]:
        """Runs it to the end; returns what the two dispatchers report."""
        database = Database(self.url)
        database.upgrade()
        run_table.metadata.create_all(database.engine)
        # The first tick deploys, and begins at the end of the log.
        dispatchers.engine(self.home, database, ASSETS).tick(utc_now())
        database.close()
        context = forkserver()
        stop, reports = context.Event(), context.Queue()
        together = context.Barrier(2 + WRITERS, timeout=_SECONDS)
        two = [
            context.Process(
                target=dispatchers.dispatch,
                args=(self.home, self.url, ASSETS, together, stop, reports),
                kwargs={"with_lock": with_lock},
            )
            for _ in range(2)
        ]
        writers = [
            context.Process(
                target=arrivals.write,
                args=(self.home, self.dsn, writer, EVENTS_OF_A_WRITER, ASSETS, together),
            )
            for writer in range(WRITERS)
        ]
        self.processes += [*two, *writers]
        for process in self.processes:
            process.start()
        for writer in writers:
            writer.join(_SECONDS)
            assert writer.exitcode == 0
        stop.set()
        found: list[Any] = [reports.get(timeout=_SECONDS) for _ in two]
        for process in two:
            process.join(_SECONDS)
            assert process.exitcode == 0
        return found

    def deliveries(self) -> Counter[tuple[str, str]]:
        """How often each schedule took each partition."""
        query = (
            sa.select(schedules.c.name, events.c.partition)
            .select_from(job_events)
            .join(jobs, jobs.c.id == job_events.c.job_id)
            .join(schedules, schedules.c.id == jobs.c.schedule_id)
            .join(
                events,
                (events.c.location_id == job_events.c.location_id)
                & (events.c.number == job_events.c.number),
            )
        )
        return Counter((row.name, row.partition) for row in self._rows(query))

    def runs_of_jobs(self) -> Counter[str]:
        """How many runs each job has."""
        return Counter(row.job_id for row in self._rows(sa.select(run_table.runs.c.job_id)))

    def jobs(self) -> list[Any]:
        """Id, state, schedule's name and number of events of every job."""
        query = (
            sa.select(jobs.c.id, jobs.c.state, schedules.c.name, sa.func.count().label("events"))
            .join(schedules, schedules.c.id == jobs.c.schedule_id)
            .join(job_events, job_events.c.job_id == jobs.c.id)
            .group_by(jobs.c.id, jobs.c.state, schedules.c.name)
        )
        return self._rows(query)

    def _rows(self, query: sa.Select[Any]) -> list[Any]:
        engine = sa.create_engine(self.url)
        with engine.begin() as tx:
            rows = list(tx.execute(query))
        engine.dispose()
        return rows


@pytest.fixture
def race(
    dagster_instance: Callable[[str], DagsterInstance],
    postgres_server: PostgresServer,
    postgres_database: str,
) -> Iterator[Race]:
    """Everything on Postgres, nothing started."""
    instance = dagster_instance("postgres")
    name = instance.event_log_storage.postgres_url.rsplit("/", 1)[1]  # type: ignore[attr-defined]
    made = Race(
        home=instance.root_directory,
        dsn=postgres_server.dsn(name),
        url=postgres_server.url(postgres_database),
        processes=[],
    )
    yield made
    for process in made.processes:
        if process.is_alive():
            process.kill()
        process.join()


def expected_deliveries() -> Counter[tuple[str, str]]:
    """Each arrival once for each schedule that it concerns, from how the writers make them."""
    return Counter(
        (schedule, partition)
        for writer in range(WRITERS)
        for asset, partition in arrivals.arrivals_of(writer, EVENTS_OF_A_WRITER, ASSETS)
        for schedule in dispatchers.concerned(asset, partition)
    )


def test_two_dispatchers_lose_nothing_and_double_nothing(race: Race) -> None:
    """Each event is once with each schedule that it concerns, each admitted job has one run."""
    began = time.monotonic()
    reports = race.run(with_lock=True)
    seconds = time.monotonic() - began
    assert race.deliveries() == expected_deliveries()
    assert [report.errors for report in reports] == [[], []]
    assert all(report.counts["events"] for report in reports), "only one of them had work"
    launched = [job for job in race.jobs() if job.state == "succeeded"]
    waiting = [job for job in race.jobs() if job.state == "waiting_trigger"]
    assert len(launched) + len(waiting) == len(race.jobs())
    assert race.runs_of_jobs() == {job.id: 1 for job in launched}
    assert all(job.events >= dispatchers.wanted(job.name) for job in launched)
    assert all(job.events < dispatchers.wanted(job.name) for job in waiting)
    total = WRITERS * EVENTS_OF_A_WRITER
    assert sum(report.counts["events"] for report in reports) == total
    shares = [f"{r.counts['events']} events in {r.busy_ticks} of {r.ticks} ticks" for r in reports]
    print(
        f"{ASSETS * OF_AN_ASSET} schedules, {total} events, {len(expected_deliveries())} "
        f"deliveries, {len(launched)} runs, none lost, none double, {seconds:.0f} s: {shares}"
    )


def test_without_the_lock_two_dispatchers_get_into_each_others_way(race: Race) -> None:
    """The control: the same race, in which the location's row is only read."""
    reports = race.run(with_lock=False)
    doubles = race.deliveries() - expected_deliveries()
    lost = expected_deliveries() - race.deliveries()
    errors = Counter(error.split("\n")[0][:90] for report in reports for error in report.errors)
    print(f"without the lock: {len(doubles)} double, {len(lost)} lost, errors {dict(errors)}")
    assert errors or doubles or lost
