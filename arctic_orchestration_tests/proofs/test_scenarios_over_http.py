"""Proof with real processes: the scenarios of ``acceptance`` over HTTP, with Dagster's own daemon.

All changes are requests to ``arctic serve``; the runs that count are those in Dagster's storage.
One daemon has all eight side by side. The minutes of a scenario do not pass: the clock of the
processes jumps, with half a minute to spare on either side of a moment that decides, so that a slow
machine changes nothing. Dagster's own timestamps stay real. The moments themselves, and all of
them for each constraint, are those of ``acceptance/test_scenarios.py`` on a virtual clock.
"""

import heapq
from collections.abc import Callable, Iterator

import pytest
from dagster import DagsterInstance

from arctic_orchestration_tests.proofs.scenarios_over_http import BEFORE, SCENARIOS
from arctic_orchestration_tests.proofs.served_lake import ServedLake

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]


@pytest.fixture
def lake(
    backend: str,
    dagster_instance: Callable[[str], DagsterInstance],
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[ServedLake]:
    # What a run was given is read as the run reads it.
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    made = ServedLake(dagster_instance(backend), database_url, BEFORE)
    yield made
    made.close()


def test_the_eight_scenarios_over_http(lake: ServedLake) -> None:
    """Each runs what it is to run, and nothing else until the last minute."""
    stories = [scenario(lake) for scenario in SCENARIOS]
    due = [(0.0, number) for number in range(len(stories))]
    now = 0.0
    while due:
        minute, number = heapq.heappop(due)
        if minute > now:
            lake.advance(minute)
            now = minute
        following = next(stories[number], None)
        if following is not None:
            heapq.heappush(due, (following, number))
