"""A pass that cannot be made, or not wholly: the daemon goes on, and starts nothing wrong."""

import logging
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import DagsterRunStatus as Status

from arctic_orchestration.run_queue import waits
from arctic_orchestration.run_queue.dagster.queued_runs import QueuedRuns
from arctic_orchestration.run_queue.gates import Gates
from arctic_orchestration.run_queue.plan import Planner
from arctic_orchestration.settings import Settings
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import RunQueue
from arctic_orchestration_tests.run_queue.coordinator.listening import (
    BEGIN_AND_END,
    Clock,
    logged,
    reported_waits,
)

FEW = {"few": {"limit": 2, "match": {"job": "load"}}}


@pytest.fixture(params=["census", "ended", "plan", "limits", "gates"])
def broken_pass(request: pytest.FixtureRequest) -> Callable[[pytest.MonkeyPatch], None]:
    """Lets a part of a pass raise."""

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    def break_(patch: pytest.MonkeyPatch) -> None:
        target: tuple[Any, str] = {
            "census": (QueuedRuns, "present"),
            "ended": (QueuedRuns, "ended_since"),
            "plan": (Planner, "plan"),
            "limits": (Gates, "limits"),
            "gates": (Gates, "of"),
        }[request.param]
        patch.setattr(*target, broken)

    return break_


def test_the_limits_of_the_last_good_pass_hold_and_time_starts_nothing(
    ruled: Callable[..., RunQueue],
    clock: Clock,
    log: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
    broken_pass: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """A group up to its limit, a window no more, intervals and rates nothing; then all again."""
    clock.now = datetime.now(UTC)
    shut = f"{clock.now + timedelta(hours=2):%H:%M}"
    queue = ruled(
        groups=FEW,
        windows={"later": {"start": shut, "end": f"{clock.now + timedelta(hours=3):%H:%M}",
                           "match": {"job": "needs_fog"}}},
        rates={"api": {"limit": 1, "per": "1m", "match": {"job": "refund"}}},
        intervals={"calm": {"duration": "1m", "match": {"job": "bill"}}},
    )  # fmt: skip
    first = queue.submit("load")
    assert queue.iterate() == [first.run_id]
    rated, spaced, windowed = (queue.submit(job) for job in ("refund", "bill", "needs_fog"))
    more, over, free = (queue.submit(job) for job in ("load", "load", "needs_ice"))
    with monkeypatch.context() as patch:
        broken_pass(patch)
        assert queue.iterate() == [more.run_id, free.run_id]
        clock.pass_(minutes=30)
        for _ in range(3):
            assert queue.iterate() == []
        assert logged(log) == BEGIN_AND_END[:1]
        assert log[0].exc_info is not None
        assert "RuntimeError: broken. The limits of the last good pass hold" in log[0].getMessage()
    assert queue.iterate() == [rated.run_id, spaced.run_id]
    assert logged(log) == BEGIN_AND_END
    assert reported_waits(queue, over) == ["group few: 2 of 2 runs are in progress"]
    assert queue.status(windowed) is Status.QUEUED


def test_before_the_first_good_pass_all_that_stands_under_a_rule_waits(
    ruled: Callable[..., RunQueue],
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    broken_pass: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """The daemon was started with the trouble there."""
    queue = ruled(
        groups=FEW,
        rates={"api": {"limit": 1, "per": "1m", "match": {"job": "refund"}}},
        intervals={"calm": {"duration": "1m", "match": {"job": "bill"}}},
    )
    held = [queue.submit(job) for job in ("load", "refund", "bill")]
    free = queue.submit("needs_ice")
    with monkeypatch.context() as patch:
        broken_pass(patch)
        assert queue.iterate() == [free.run_id]
        assert queue.iterate() == []
    assert queue.iterate() == [run.run_id for run in held]


def refuse_tags(queue: RunQueue, patch: pytest.MonkeyPatch, run: Any) -> None:
    """Lets the tags of one run not be written."""
    write = queue.instance.add_run_tags

    def add(run_id: str, tags: Any) -> None:
        if run_id == run.run_id:
            raise RuntimeError("the run cannot be written")
        write(run_id, tags)

    patch.setattr(queue.instance, "add_run_tags", add)


def test_a_run_whose_turn_cannot_be_written_does_not_start_and_others_do(
    ruled: Callable[..., RunQueue],
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    log: list[logging.LogRecord],
) -> None:
    """Those of other rates and of none; it starts when it can be written again."""
    clock.now = datetime.now(UTC)
    queue = ruled(
        rates={
            "api": {"limit": 5, "per": "1m", "match": {"job": "refund"}},
            "other": {"limit": 5, "per": "1m", "match": {"job": "load"}},
        }
    )
    held = queue.submit("refund")
    others = [queue.submit("load"), queue.submit("needs_ice")]
    with monkeypatch.context() as patch:
        refuse_tags(queue, patch, held)
        assert queue.iterate() == [run.run_id for run in others]
        assert queue.iterate() == []
        assert queue.run(held).tags["arctic/rate.api"] == "waiting"
        text = f"The turn of run {held.run_id} could not be written"
        assert [text in record.getMessage() for record in log].count(True) == 1
    assert held.run_id in [*queue.iterate(), *queue.iterate()]


def test_a_run_whose_turn_cannot_be_written_is_not_reported_as_held_by_dagster(
    ruled: Callable[..., RunQueue], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in the first good pass: its pool and code location have nothing to do with it."""
    clock.now = datetime.now(UTC)
    queue = ruled(rates={"api": {"limit": 5, "per": "1m", "match": {"job": "refund"}}})
    held = queue.submit("refund")
    with monkeypatch.context() as patch:
        refuse_tags(queue, patch, held)
        for _ in range(4):
            queue.iterate()
    queue.iterate()
    assert [
        reason for reason in reported_waits(queue, held) if "Dagster does not start it" in reason
    ] == []


def test_a_failed_report_to_a_run_costs_the_others_nothing(
    ruled: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted just now, for example: Dagster then refuses its tags."""
    queue = ruled(groups={"none": {"limit": 0, "match": {"job": "load"}}})
    first, lost, last = (queue.submit("load") for _ in range(3))
    with monkeypatch.context() as patch:
        refuse_tags(queue, patch, lost)
        for _ in range(3):
            queue.iterate()
    assert [len(reported_waits(queue, run)) for run in (first, last)] == [1, 1]


def test_a_failed_report_is_listed_and_made_again_after_five_minutes(
    ruled: Callable[..., RunQueue], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's storage may have been locked, or started again in the middle of a pass."""
    queue = ruled(groups={"none": {"limit": 0, "match": {"job": "load"}}})
    lost = queue.submit("load")
    with monkeypatch.context() as patch:
        refuse_tags(queue, patch, lost)
        queue.iterate()
    url = Settings.from_environment().database_url
    with closing(Database.open(url)) as database, database.read() as tx:
        assert waits.reported_waits(tx, "default") == {lost.run_id: "group:none"}
    clock.pass_(minutes=4, seconds=59)
    queue.iterate()
    assert "arctic/wait" not in queue.run(lost).tags
    clock.pass_(seconds=1)
    queue.iterate()
    reason = "group none: 0 of 0 runs are in progress"
    assert queue.run(lost).tags["arctic/wait"] == reason
