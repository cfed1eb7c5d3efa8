"""What the rules of ``dagster.yaml`` hold back and let go, by the daemon's own passes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import DagsterEventType
from dagster import DagsterRunStatus as Status

from arctic_orchestration.coordinator import coordinator as module
from arctic_orchestration_tests.coordinator.conftest import OURS, RunQueue

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Clock:
    """The time that the coordinator reads."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **span: float) -> None:
        self.now += timedelta(**span)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "utc_now", clock)
    return clock


@pytest.fixture
def ruled(
    backend: str, make_queue: Callable[..., RunQueue], clock: Clock
) -> Callable[..., RunQueue]:
    def make(**config: Any) -> RunQueue:
        return make_queue(backend, {**OURS, "config": config})

    return make


def reasons(queue: RunQueue, run: Any) -> list[str]:
    """What a run was told that it waits for."""
    records = queue.instance.get_records_for_run(
        run.run_id, of_type=DagsterEventType.ENGINE_EVENT
    ).records
    events = [record.event_log_entry.dagster_event for record in records]
    return [event.message for event in events if event.message.startswith("Waits in the queue")]


def test_a_run_waits_until_its_window_opens(ruled: Callable[..., RunQueue], clock: Clock) -> None:
    queue = ruled(windows={"night": {"start": "22:00", "end": "06:00", "match": {"job": "load"}}})
    held, free = queue.submit("load"), queue.submit("bill")
    assert queue.iterate() == [free.run_id]
    assert reasons(queue, held) == [
        "Waits in the queue: window night opens at 2026-03-02 22:00:00Z (22:00-06:00 UTC)"
    ]
    clock.pass_(hours=9, minutes=59)
    assert queue.iterate() == []
    clock.pass_(minutes=1)
    assert queue.iterate() == [held.run_id]
    assert len(reasons(queue, held)) == 1


def test_a_group_is_never_more_than_its_limit(ruled: Callable[..., RunQueue]) -> None:
    queue = ruled(groups={"few": {"limit": 2, "match": {"job": "*"}}})
    runs = [queue.submit("load") for _ in range(4)]
    ids = [run.run_id for run in runs]
    assert queue.iterate() == ids[:2]
    assert queue.iterate() == []
    assert reasons(queue, runs[2]) == ["Waits in the queue: group few: 2 of 2 runs are in progress"]
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
        queue.report(run, Status.STARTED)
        queue.report(run, Status.SUCCESS)
    assert queue.iterate() == []
    assert queue.run(ids[2]).tags["arctic/rate.api"] == "waiting"
    clock.pass_(seconds=120)
    assert queue.iterate() == ids[2:4]


def test_an_interval_lies_between_runs_of_a_program(
    ruled: Callable[..., RunQueue], clock: Clock
) -> None:
    queue = ruled(intervals={"calm": {"duration": "10m", "match": {"job": "*"}}})
    clock.now = datetime.now(UTC)
    first, second, other = queue.submit("load"), queue.submit("load"), queue.submit("bill")
    assert queue.iterate() == [first.run_id, other.run_id]
    assert queue.iterate() == []
    queue.report(first, Status.STARTED)
    queue.report(first, Status.SUCCESS)
    assert queue.iterate() == []
    clock.pass_(minutes=9)
    assert queue.iterate() == []
    clock.pass_(minutes=2)
    assert queue.iterate() == [second.run_id]


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
