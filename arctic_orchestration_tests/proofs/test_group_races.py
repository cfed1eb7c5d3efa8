"""Proof on Postgres: eight dispatchers that race for one group never exceed its limit.

``ARCTIC_PROOF=full`` runs 60 jobs in each of the eight locations, by default ten.
"""

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules import resources
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.postgres import PostgresServer
from arctic_orchestration_tests.proofs import group_tickers
from arctic_orchestration_tests.proofs.group_tickers import LIMIT, Place, Report, of_the_group

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

LOCATIONS = 8
JOBS = 60 if os.environ.get("ARCTIC_PROOF") == "full" else 10


def together(reports: list[Report]) -> Counter[int]:
    """How often a run of any location began beside how many others, itself counted."""
    return sum((report.together for report in reports), Counter())


def test_a_group_is_never_fuller_than_its_limit(race: Callable[..., Any]) -> None:
    """Eight locations, one group of three: each run begins as the third at most."""
    began = time.monotonic()
    reports = race(group_tickers.tick_until_done, LOCATIONS, jobs=JOBS, with_lock=True)
    seconds = time.monotonic() - began
    counted = together(reports)
    assert sum(counted.values()) == LOCATIONS * JOBS
    assert max(counted) == LIMIT
    assert [report.states for report in reports] == [{"succeeded": JOBS}] * LOCATIONS
    refused = sum(report.refused for report in reports)
    print(
        f"{LOCATIONS * JOBS} runs of {LOCATIONS} locations: {dict(counted)} began beside so many, "
        f"{refused} ticks refused, {seconds:.0f} s"
    )


def test_without_the_lock_a_group_is_fuller_than_its_limit(race: Callable[..., Any]) -> None:
    """The control: the same race, in which holders are counted without a lock."""
    reports = race(group_tickers.tick_until_done, LOCATIONS, jobs=JOBS, with_lock=False)
    counted = together(reports)
    print(f"without the lock: {dict(counted)}")
    assert max(counted) > LIMIT


def test_two_locations_that_give_back_a_slot_at_once_are_both_let_through(
    postgres_server: PostgresServer, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has changed its own waiting job when it wakes the other's: no tick is refused."""
    database = Database(postgres_server.url(postgres_database))
    database.upgrade()
    places = [
        Place(database, f"location{number}", constraints=[of_the_group(2)]) for number in range(2)
    ]
    for place in places:
        place.engine.tick(utc_now())
        place.feed.arrive("raw/a", "begins a run")
        assert place.dagster.submit(place.engine.tick(utc_now()).requests) == ["run-1"]
    for place in places:
        place.feed.arrive("raw/a", "makes a job that waits")
        assert not place.engine.tick(utc_now()).requests
        place.feed.arrive("raw/a", "changes the job that waits")
        place.dagster.end("run-1")
    met = threading.Barrier(2, timeout=5)
    release = resources.release

    def release_together(*args: Any) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):
            met.wait()
        return release(*args)

    monkeypatch.setattr(resources, "release", release_together)
    with ThreadPoolExecutor(2) as threads:
        ticks = [threads.submit(place.engine.tick, utc_now()) for place in places]
    refusals = [str(tick.exception()) for tick in ticks if tick.exception()]
    database.close()
    assert refusals == []
