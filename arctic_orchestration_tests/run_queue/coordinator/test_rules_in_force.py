"""What the rules of ``dagster.yaml`` hold back and let go, by the daemon's own passes."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from dagster import DagsterRun
from dagster import DagsterRunStatus as Status

from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import RunQueue
from arctic_orchestration_tests.run_queue.coordinator.listening import Clock, reported_waits

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
_CALM = {"calm": {"duration": "10m", "match": {"job": "*"}}}


@pytest.fixture
def clock(clock: Clock) -> Clock:
    clock.now = NOON
    return clock


def _run(queue: RunQueue, run: DagsterRun) -> None:
    queue.report(run, Status.STARTED)
    queue.report(run, Status.SUCCESS)


def _comes_after_ten_minutes(queue: RunQueue, clock: Clock, run: DagsterRun) -> None:
    assert queue.iterate() == []
    clock.pass_(minutes=9)
    assert queue.iterate() == []
    clock.pass_(minutes=2)
    assert queue.iterate() == [run.run_id]


def test_a_run_waits_until_its_window_opens(ruled: Callable[..., RunQueue], clock: Clock) -> None:
    queue = ruled(windows={"night": {"start": "22:00", "end": "06:00", "match": {"job": "load"}}})
    held, free = queue.submit("load"), queue.submit("bill")
    assert queue.iterate() == [free.run_id]
    assert reported_waits(queue, held) == [
        "window night opens at 2026-03-02 22:00:00Z (22:00-06:00 UTC)"
    ]
    clock.pass_(hours=9, minutes=59)
    assert queue.iterate() == []
    clock.pass_(minutes=1)
    assert queue.iterate() == [held.run_id]
    assert len(reported_waits(queue, held)) == 1


def test_a_group_is_never_more_than_its_limit(ruled: Callable[..., RunQueue]) -> None:
    queue = ruled(groups={"few": {"limit": 2, "match": {"job": "*"}}})
    runs = [queue.submit("load") for _ in range(4)]
    ids = [run.run_id for run in runs]
    assert queue.iterate() == ids[:2]
    assert queue.iterate() == []
    assert reported_waits(queue, runs[2]) == ["group few: 2 of 2 runs are in progress"]
    queue.report(runs[0], Status.SUCCESS)
    assert queue.iterate() == [ids[2]]


def test_a_rate_counts_starts_in_a_sliding_span(
    ruled: Callable[..., RunQueue], clock: Clock
) -> None:
    queue = ruled(rates={"api": {"limit": 2, "per": "1m", "match": {"job": "load"}}})
    clock.now = datetime.now(UTC)
    runs = [queue.submit("load") for _ in range(5)]
    ids = [run.run_id for run in runs]
    assert queue.iterate() == ids[:2]
    assert queue.run(ids[0]).tags["arctic/rate.api"] == "granted"
    for run in runs[:2]:
        _run(queue, run)
    assert queue.iterate() == []
    assert queue.run(ids[2]).tags["arctic/rate.api"] == "waiting"
    clock.pass_(seconds=120)
    assert queue.iterate() == ids[2:4]


def test_an_interval_lies_between_runs_of_a_program(
    ruled: Callable[..., RunQueue], clock: Clock
) -> None:
    queue = ruled(intervals=_CALM)
    clock.now = datetime.now(UTC)
    first, second, other = queue.submit("load"), queue.submit("load"), queue.submit("bill")
    assert queue.iterate() == [first.run_id, other.run_id]
    assert queue.iterate() == []
    _run(queue, first)
    _comes_after_ten_minutes(queue, clock, second)


def test_an_interval_is_kept_after_the_clock_was_set_back(
    ruled: Callable[..., RunQueue], clock: Clock
) -> None:
    """A pass of tomorrow has read all ends until then; those of today are read all the same."""
    queue = ruled(intervals=_CALM)
    clock.now = datetime.now(UTC)
    first, second, third = (queue.submit("load") for _ in range(3))
    assert queue.iterate() == [first.run_id]
    clock.pass_(days=1)
    assert queue.iterate() == []
    clock.pass_(days=-1)
    _run(queue, first)
    assert queue.iterate() == []
    clock.pass_(days=1)
    assert queue.iterate() == [second.run_id]
    queue.report(second, Status.CANCELED)
    # What was forgotten meanwhile is read again.
    clock.pass_(days=-1)
    assert queue.iterate() == []
    clock.pass_(minutes=11)
    assert queue.iterate() == [third.run_id]


def test_an_end_in_the_future_holds_an_interval_from_now(
    ruled: Callable[..., RunQueue], clock: Clock
) -> None:
    """The clock was a day ahead while the run ended, and was set back after a pass."""
    queue = ruled(intervals=_CALM)
    clock.now = datetime.now(UTC)
    first, second = queue.submit("load"), queue.submit("load")
    assert queue.iterate() == [first.run_id]
    clock.pass_(days=-1)
    _run(queue, first)
    _comes_after_ten_minutes(queue, clock, second)


def test_starts_in_the_future_fill_a_rate_from_now(
    ruled: Callable[..., RunQueue], clock: Clock
) -> None:
    """The clock was a day ahead while two runs started."""
    queue = ruled(rates={"api": {"limit": 2, "per": "1m", "match": {"job": "load"}}})
    clock.now = datetime.now(UTC)
    runs = [queue.submit("load") for _ in range(3)]
    ids = [run.run_id for run in runs]
    assert queue.iterate() == ids[:2]
    clock.pass_(days=-1)
    for run in runs[:2]:
        _run(queue, run)
    assert queue.iterate() == []
    clock.pass_(seconds=120)
    assert queue.iterate() == ids[2:]


def test_shares_are_lent_and_come_back(ruled: Callable[..., RunQueue]) -> None:
    queue = ruled(
        max_concurrent_runs=2,
        queues={"low": {"share": 1, "match": {"job": "load"}}, "high": {"share": 1, "level": 1}},
    )
    low = [queue.submit("load") for _ in range(5)]
    assert queue.iterate() == [low[0].run_id, low[1].run_id]
    high = [queue.submit("bill", tags={"arctic/queue": "high"}) for _ in range(5)]
    queue.report(low[0], Status.SUCCESS)
    assert queue.iterate() == [high[0].run_id]
    queue.report(low[1], Status.SUCCESS)
    assert queue.iterate() == [low[2].run_id]


def test_what_holds_a_run_is_reported_once_and_again_when_it_changes(
    ruled: Callable[..., RunQueue], clock: Clock
) -> None:
    """As an event and as a tag; the event stays in its log when it has started."""
    queue = ruled(
        max_concurrent_runs=2,
        groups={"few": {"limit": 1, "match": {"job": "load"}}},
        windows={"night": {"start": "22:00", "end": "06:00", "match": {"tags": {"late": "*"}}}},
    )
    first = queue.submit("load")
    run = queue.submit("load", tags={"late": "yes"})
    window = "window night opens at 2026-03-02 22:00:00Z (22:00-06:00 UTC)"
    group = "group few: 1 of 1 runs are in progress"
    assert [queue.iterate(), queue.iterate()] == [[first.run_id], []]
    assert (reported_waits(queue, run), queue.run(run).tags["arctic/wait"]) == ([window], window)
    clock.pass_(hours=10)
    assert [queue.iterate(), queue.iterate()] == [[], []]
    assert (reported_waits(queue, run), queue.run(run).tags["arctic/wait"]) == (
        [window, group],
        group,
    )
    queue.report(first, Status.SUCCESS)
    assert queue.iterate() == [run.run_id]
    assert reported_waits(queue, run) == [window, group]


def test_waits_are_reported_after_the_clock_was_set_back(
    ruled: Callable[..., RunQueue], clock: Clock
) -> None:
    """A change from slots to a group once in five minutes, and not when tomorrow has come again."""
    queue = ruled(max_concurrent_runs=1, groups={"few": {"limit": 1, "match": {"job": "load"}}})
    clock.pass_(days=1)
    first, second = queue.submit("bill"), queue.submit("load")
    assert [queue.iterate(), queue.iterate()] == [[first.run_id], []]
    clock.pass_(days=-1)
    queue.report(first, Status.SUCCESS)
    queue.submit("load", status=Status.STARTED)
    assert queue.iterate() == []
    assert reported_waits(queue, second)[1:] == ["group few: 1 of 1 runs are in progress"]


def test_nothing_is_reported_of_a_run_that_starts_at_once(ruled: Callable[..., RunQueue]) -> None:
    queue = ruled(groups={"few": {"limit": 1, "match": {"job": "load"}}})
    run = queue.submit("load")
    assert queue.iterate() == [run.run_id]
    assert reported_waits(queue, run) == []
    assert "arctic/wait" not in queue.run(run).tags


def test_runs_that_a_pool_holds_leave_their_slots_to_others(
    ruled: Callable[..., RunQueue],
) -> None:
    """Dagster's own pools come after the rules: a plan sees only that a run did not start.

    Two passes are tried with the first of them, not with each.
    """
    queue = ruled(max_concurrent_runs=2, queues={"low": {"match": {"job": "needs_ice"}}})
    storage = queue.instance.event_log_storage
    storage.set_concurrency_slots("ice", 0)
    iced = [queue.submit("needs_ice") for _ in range(4)]
    free = [queue.submit("load") for _ in range(3)]
    for _ in range(3):
        queue.iterate()
    assert queue.launched == [run.run_id for run in free[:2]]
    for run in iced:
        start = "no rule holds it, but Dagster does not start it: a pool is full"
        assert reported_waits(queue, run)[-1].startswith(start)
    storage.set_concurrency_slots("ice", 10)
    queue.report(free[0], Status.SUCCESS)
    assert queue.iterate() == [iced[0].run_id]
    queue.report(free[1], Status.SUCCESS)
    # Its program is held no more, and the queues have one slot each.
    assert queue.iterate() == [free[2].run_id]
