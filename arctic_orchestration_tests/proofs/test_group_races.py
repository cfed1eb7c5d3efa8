"""Proof on Postgres: eight dispatchers that race for one group never exceed its limit.

``ARCTIC_PROOF=full`` runs 60 jobs in each of the eight locations, by default ten.
"""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from arctic_orchestration.database.engine import Database
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.proofs import group_tickers
from arctic_orchestration_tests.proofs.group_tickers import LIMIT, Report

LOCATIONS = 8
JOBS = 60 if os.environ.get("ARCTIC_PROOF") == "full" else 10
_SECONDS = 300


@pytest.fixture
def race(postgres_server: PostgresServer, postgres_database: str) -> Iterator[Any]:
    """Lets eight processes race, and returns what they report."""
    processes: list[BaseProcess] = []

    def run(*, with_lock: bool) -> list[Report]:
        url = postgres_server.url(postgres_database)
        database = Database(url)
        database.upgrade()
        group_tickers.metadata.create_all(database.engine)
        database.close()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["arctic_orchestration_tests.proofs.dagster_commands"])
        reports = context.Queue()
        all_together = context.Barrier(LOCATIONS, timeout=_SECONDS)
        for number in range(LOCATIONS):
            process = context.Process(
                target=group_tickers.tick_until_done,
                args=(url, f"location{number}", JOBS, all_together, reports),
                kwargs={"with_lock": with_lock},
            )
            process.start()
            processes.append(process)
        found = [reports.get(timeout=_SECONDS) for _ in processes]
        for process in processes:
            process.join(_SECONDS)
            assert process.exitcode == 0
        return found

    yield run
    for process in processes:
        process.kill()
        process.join()


def together(reports: list[Report]) -> Counter[int]:
    """How often a run of any location began beside how many others, itself counted."""
    return sum((report.together for report in reports), Counter())


def test_a_group_is_never_fuller_than_its_limit(race: Any) -> None:
    """Eight locations, one group of three: each run begins as the third at most."""
    began = time.monotonic()
    reports = race(with_lock=True)
    seconds = time.monotonic() - began
    counted = together(reports)
    assert sum(counted.values()) == LOCATIONS * JOBS
    assert max(counted) == LIMIT
    assert [report.states for report in reports] == [{"succeeded": JOBS}] * LOCATIONS
    print(f"{LOCATIONS * JOBS} runs of {LOCATIONS} locations: {dict(counted)}, {seconds:.0f} s")


def test_without_the_lock_a_group_is_fuller_than_its_limit(race: Any) -> None:
    """The control: the same race, in which holders are counted without a lock."""
    counted = together(race(with_lock=False))
    print(f"without the lock: {dict(counted)}")
    assert max(counted) > LIMIT
