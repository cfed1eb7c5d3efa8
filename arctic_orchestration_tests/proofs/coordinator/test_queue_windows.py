"""Proof with real processes: a run under a closed window waits, and starts when it opens.

The daemon's clock is put shortly before an opening, and passes it.
"""

from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from dagster import DagsterRunStatus

from arctic_orchestration_tests.proofs.coordinator.run_queue import STOCK, RunQueue

pytestmark = [pytest.mark.proof, pytest.mark.timeout(300)]

BERLIN = ZoneInfo("Europe/Berlin")
#: over midnight, and from midnight on
WINDOWS = {
    "night": {
        "start": "22:00",
        "end": "06:00",
        "timezone": "Europe/Berlin",
        "match": {"job": "bill"},
    },
    "early": {
        "start": "00:00",
        "end": "04:00",
        "timezone": "Europe/Berlin",
        "match": {"job": "close"},
    },
}
#: within so many seconds a run must start: two passes of the daemon, and slow machines
_SOON = 6


def at(text: str) -> datetime:
    """A moment on the clock of Berlin."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


def shown_at_start(queue: RunQueue, run_id: str) -> datetime:
    """What the daemon's clock showed when the run left the queue."""
    return queue.time.of(queue.places([run_id])[0].begun_at)


def assert_began_at(queue: RunQueue, run_id: str, opening: datetime) -> None:
    """The run began when the window opened, not before."""
    queue.wait_until_begun(run_id)
    late = (shown_at_start(queue, run_id) - opening).total_seconds()
    assert 0 <= late < _SOON, f"it began {late} s after the opening"


def test_a_run_that_a_person_launches_waits_until_the_evening(
    run_queue: Callable[..., RunQueue],
) -> None:
    """The mutation of the UI's button puts the run into the queue, until the window opens."""
    queue = run_queue(windows=WINDOWS)
    queue.start_webserver()
    queue.time.set(at("2026-11-20 21:30:00"))
    waiting = queue.launch_in_ui("bill", {"asked": "by hand"})
    queue.let_pass()
    assert queue.is_queued(waiting)

    queue.time.set(at("2026-11-20 21:59:58"))
    assert_began_at(queue, waiting, at("2026-11-20 22:00:00"))
    assert queue.run(waiting).tags["asked"] == "by hand"


def test_midnight_opens_one_window_and_closes_no_other(run_queue: Callable[..., RunQueue]) -> None:
    """At 00:00 the early window opens; the night's is open on either side, and closes at 06:00."""
    queue = run_queue(windows=WINDOWS)
    queue.time.set(at("2026-11-20 23:30:00"))
    early = queue.submit("close")
    before_midnight = queue.submit("bill")
    queue.wait_until_begun(before_midnight)
    queue.let_pass()
    assert queue.is_queued(early)

    queue.time.set(at("2026-11-20 23:59:58"))
    assert_began_at(queue, early, at("2026-11-21 00:00:00"))
    after_midnight = queue.submit("bill")
    queue.wait_until_begun(after_midnight, _SOON)

    queue.time.set(at("2026-11-21 06:00:00"))
    queue.let_pass(1)  # in it the window may have been open still
    by_day = queue.submit("bill")
    queue.let_pass()
    assert queue.is_queued(by_day)
    # What is in progress when a window closes goes on.
    assert queue.status(before_midnight) is DagsterRunStatus.STARTED
    assert queue.status(early) is DagsterRunStatus.STARTED

    queue.time.set(at("2026-11-21 21:59:58"))
    assert_began_at(queue, by_day, at("2026-11-21 22:00:00"))


def test_dagsters_own_coordinator_does_not_wait(run_queue: Callable[..., RunQueue]) -> None:
    """The control: the stock class starts the same run long before the evening."""
    queue = run_queue(coordinator=STOCK)
    queue.time.set(at("2026-11-20 12:00:00"))
    run = queue.submit("bill", {"arctic/window": "night"})
    queue.wait_until_begun(run)
    assert shown_at_start(queue, run) < at("2026-11-20 12:01:00")
