"""Proof on Postgres: eight dispatchers of one location keep a minimum interval between runs.

Eight schedules share one target, and are dispatched by eight processes at once, as when a code
location is replaced while the old one still ticks. ``ARCTIC_PROOF=full`` makes 80 runs.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from arctic_orchestration_tests.proofs import interval_tickers
from arctic_orchestration_tests.proofs.interval_tickers import INTERVAL, ROUNDS_A_RUN, RUN, Report
from arctic_orchestration_tests.proofs.shared_dagster import TimedRun, schedule_of

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

DISPATCHERS = 8
RUNS = 80 if os.environ.get("ARCTIC_PROOF") == "full" else 8


def gaps(runs: list[TimedRun]) -> list[timedelta]:
    """From the end of each run to the beginning of the next; negative where they overlap."""
    return [
        later.begun_at - (run.ended_at or later.begun_at + RUN) for run, later in pairwise(runs)
    ]


def test_the_runs_of_a_target_neither_overlap_nor_follow_too_closely(
    race: Callable[..., Any],
) -> None:
    """From the end of each run to the beginning of the next it is one second, never less.

    Nor more, since there is always a job that waits.
    """
    began = time.monotonic()
    rounds = RUNS * ROUNDS_A_RUN
    reports: list[Report] = race(
        interval_tickers.tick_through_rounds, DISPATCHERS, rounds=rounds, with_lock=True
    )
    seconds = time.monotonic() - began
    (runs,) = [list(report.runs) for report in reports if report.runs]
    refused = sum(report.refused for report in reports)
    of = Counter(schedule_of(run) for run in runs)
    admitted = {report.dispatcher: report.counts["admitted"] for report in reports}
    print(
        f"{len(runs)} runs of {dict(of)}, admitted by {admitted}, "
        f"{refused} ticks refused, {seconds:.0f} s"
    )
    assert set(gaps(runs)) == {INTERVAL}
    assert len(runs) == RUNS
    assert sum(admitted.values()) == RUNS
    assert len(of) > 1
    assert len(+Counter(admitted)) > 1


def test_without_the_locks_the_runs_of_a_target_overlap(race: Callable[..., Any]) -> None:
    """The control: each dispatcher counts before the others have written what they admitted."""
    reports: list[Report] = race(
        interval_tickers.tick_through_rounds, DISPATCHERS, rounds=1, with_lock=False
    )
    (runs,) = [list(report.runs) for report in reports if report.runs]
    print(f"without the locks: {len(runs)} runs at once")
    assert min(gaps(runs)) < timedelta(0)
