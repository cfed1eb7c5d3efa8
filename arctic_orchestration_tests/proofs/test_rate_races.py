"""Proof on Postgres: eight locations that share a rate of five a second never launch a sixth.

``ARCTIC_PROOF=full`` runs 60 jobs in each of the eight locations, by default five.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from arctic_orchestration_tests.proofs import rate_tickers
from arctic_orchestration_tests.proofs.rate_tickers import LIMIT, ROUNDS_A_SPAN, Report

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

LOCATIONS = 8
JOBS = 60 if os.environ.get("ARCTIC_PROOF") == "full" else 5
#: the rounds that the jobs need at the full rate, and two spans more
ROUNDS = (LOCATIONS * JOBS // LIMIT + 2) * ROUNDS_A_SPAN


def most_within_a_span(reports: list[Report]) -> int:
    """The most launches of all locations that lie in one sliding span."""
    begun = Counter(round for report in reports for round in report.begun)
    return max(
        sum(begun[round] for round in range(last - ROUNDS_A_SPAN + 1, last + 1)) for last in begun
    )


def test_a_rate_is_kept_over_all_locations(race: Callable[..., Any]) -> None:
    """No second, wherever it begins, has more than five launches; and all jobs get their turn."""
    began = time.monotonic()
    reports = race(
        rate_tickers.tick_through_rounds, LOCATIONS, jobs=JOBS, rounds=ROUNDS, with_lock=True
    )
    seconds = time.monotonic() - began
    refused = sum(report.refused for report in reports)
    print(
        f"{LOCATIONS * JOBS} launches of {LOCATIONS} locations, at most "
        f"{most_within_a_span(reports)} in a second, {refused} ticks refused, {seconds:.0f} s"
    )
    assert most_within_a_span(reports) == LIMIT
    assert [sum(report.states.values()) for report in reports] == [JOBS] * LOCATIONS
    assert sum(len(report.begun) for report in reports) == LOCATIONS * JOBS


def test_without_the_lock_a_rate_is_exceeded(race: Callable[..., Any]) -> None:
    """The control: all locations count before one of them has written what it launches."""
    reports = race(rate_tickers.tick_through_rounds, LOCATIONS, jobs=5, rounds=1, with_lock=False)
    print(f"without the lock: {most_within_a_span(reports)} in a second")
    assert most_within_a_span(reports) > LIMIT
