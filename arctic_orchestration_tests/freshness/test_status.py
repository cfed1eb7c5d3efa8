"""Status events: what each step tells, and to whom."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.freshness import status
from arctic_orchestration.freshness.run_outcomes import Outcomes
from arctic_orchestration.freshness.skip_list import skip
from arctic_orchestration.freshness.status import StatusEvent, Step
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.state.freshness_tables import (
    task_events,
    task_publications,
    task_submissions,
)
from arctic_orchestration.state.tables import notices
from arctic_orchestration_tests.freshness.imagined import World, spec


def noticed(world: World) -> dict[tuple[str, str], str]:
    """The statuses that people see, with the reasons."""
    with world.state.read() as tx:
        query = sa.select(notices.c.event, notices.c.schedule, notices.c.reason)
        return {(row.event, row.schedule): row.reason for row in tx.execute(query)}


def test_people_are_notified_of_what_was_skipped_and_of_what_failed_once(world: World) -> None:
    """Not by everybody who shared the run."""
    east = world.place(spec("off"), spec("bad"), spec("child", ["nothing"]))
    with world.state.begin() as tx:
        skip(tx, "off", "broken", by="ben", cluster="east", time=world.clock)
    east.submit("off", "bad", "child")
    east.submit("bad")
    east.tick()
    (run,) = east.waiting_runs()
    east.runs.becomes(run.run_id, RunStatus.FAILURE)
    for _ in range(16):
        world.run_all()
        world.clock.passes(minutes=2)
    notices = noticed(world)
    assert set(notices) == {
        ("skipped", "task off"), ("run_failed", "task bad"), ("parents_stale", "task child"),
    }  # fmt: skip
    assert notices["run_failed", "task bad"] == "run east-lake-1 failed"


def test_people_are_notified_of_what_fell_silent_for_good(world: World) -> None:
    """Not while it is made again, three times; the runs' processes are killed."""
    east = world.place(spec("flights"))
    east.submit("flights")
    east.tick()
    for _ in range(4):
        assert noticed(world) == {}
        (run,) = east.waiting_runs()
        with ExitStack() as stack:
            east.begin(run, stack)
            world.clock.passes(seconds=61)
            east.tick()
    assert noticed(world) == {
        ("run_failed", "task flights"): (
            "run east-lake-4 was silent until 2026-01-01 12:04:03Z, when its lease was over; it "
            "was retried 3 times"
        )
    }


def test_the_log_hears_of_a_step_once_it_is_committed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """What is rolled back was never reported."""
    event = StatusEvent(
        task="flights", step=Step.FRESH, reason="so it is", at=world.clock.now, cluster="east"
    )
    with caplog.at_level(logging.INFO, "arctic.freshness"):
        with pytest.raises(ZeroDivisionError), world.state.begin() as tx:
            status.report(tx, [event], status.SINKS)
            raise ZeroDivisionError
        assert caplog.messages == []
        with world.state.begin() as tx:
            status.report(tx, [event], status.SINKS)
            assert caplog.messages == []
        assert caplog.messages == ["task flights: fresh: so it is"]


def test_a_sink_of_ones_own_is_one_small_class(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets each step, in its transaction."""

    class Heard:
        steps: list[str]

        def report(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
            self.steps += [one.step.value for one in events]

    monkeypatch.setattr(status._added, "sinks", [])
    heard = Heard()
    heard.steps = []
    status.add_sink(heard)
    status.add_sink(heard)
    east = world.place(spec("flights"))
    east.submit("flights")
    world.run_all()
    assert heard.steps == ["submitted", "acquired", "requested", "begun", "published"]


def test_a_sink_that_raises_stops_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even with a statement that fails; what it has written by then is undone."""

    class Broken:
        def report(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
            tx.execute(sa.delete(task_submissions))
            tx.execute(sa.text("select * from nowhere"))

    class Heard:
        def __init__(self) -> None:
            self.steps: list[str] = []

        def report(self, tx: sa.Connection, events: Sequence[StatusEvent]) -> None:
            self.steps += [one.step.value for one in events]

    heard = Heard()
    monkeypatch.setattr(status._added, "sinks", [Broken(), heard])
    east = world.place(spec("flights"))
    east.submit("flights")
    assert world.run_all() == ["flights"]
    assert heard.steps == ["submitted", "acquired", "requested", "begun", "published"]
    assert "failed" in caplog.text


def test_a_run_about_which_nothing_can_be_written_does_not_stop_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again by each tick."""
    east = world.place(spec("a"), spec("b"), spec("c"))
    first, second = east.submit("a", "b")
    east.tick()
    for run in east.waiting_runs():
        east.runs.becomes(run.run_id, RunStatus.FAILURE)
    (third,) = east.submit("c")
    real = Outcomes.failed

    def failed(
        self: Outcomes, tx: sa.Connection, submission: Submission, *args: Any
    ) -> SubmissionState:
        if submission.id == first.id:
            raise OSError("no more room")
        return real(self, tx, submission, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Outcomes, "failed", failed)
        assert east.tick().counts["troubled"] == 1
    assert world.state_of(first) is SubmissionState.ACQUIRED
    assert world.state_of(second) is SubmissionState.FAILED
    assert world.state_of(third) is SubmissionState.ACQUIRED
    east.tick()
    assert world.state_of(first) is SubmissionState.FAILED


def test_what_has_ended_is_kept_for_a_month(world: World) -> None:
    """But the last success and the token of a task are kept for ever."""
    east = world.place(spec("flights"), spec("child", ["elsewhere"], patience="60d"))
    world.place(spec("elsewhere"), cluster="west")
    east.submit("flights", "child")
    world.run_all()
    world.clock.now += timedelta(days=30)
    assert east.tick().counts["pruned"] == 0
    world.clock.now += timedelta(seconds=31)
    assert east.tick().counts["pruned"] > 0
    with world.state.read() as tx:
        assert list(tx.execute(sa.select(task_submissions.c.task)).scalars()) == ["child"]
        assert tx.execute(sa.select(task_publications)).all() == []
        old = task_events.c.at < world.clock.now - timedelta(days=30)
        assert tx.execute(sa.select(task_events).where(old)).all() == []
    assert world.row("flights").last_token == 1
