"""Rows that another version of the package wrote: they stop nothing but themselves."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from arctic_orchestration.freshness import status
from arctic_orchestration.freshness.dagster import submission_history
from arctic_orchestration.freshness.dagster.submission_history import Histories
from arctic_orchestration.freshness.ended_submissions import Ending, ending
from arctic_orchestration.freshness.status import Step, events_of, history_of
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.freshness.views.explanation import explain
from arctic_orchestration.state.freshness_tables import task_definitions, task_events
from arctic_orchestration_tests.freshness.imagined import World, spec


def _verified(world: World, submission: Submission) -> None:
    """A step of the next version."""
    with world.state.begin() as tx:
        tx.execute(sa.insert(task_events).values(
            task=submission.task, submission=submission.id, cluster="east", location="lake",
            at=world.clock.now, step="verified", reason="its rows were counted", details="{}",
        ))  # fmt: skip


def _declared_newly(world: World, task: str, cluster: str = "east") -> None:
    """A declaration of the next version."""
    col, newer = task_definitions.c, {"name": task, "target": task, "of_next_version": 1}
    update = sa.update(task_definitions).where(col.task == task, col.cluster == cluster)
    with world.state.begin() as tx:
        tx.execute(update.values(spec=json.dumps(newer)))


def test_a_declaration_that_cannot_be_read_keeps_no_other_task_from_its_run(world: World) -> None:
    """Its own submission is refused, and says why."""
    east = world.place(spec("a"), spec("b"))
    (a,) = east.submit("a")
    # Dagster never heard of its request.
    east.lifecycle.tick()
    (b,) = east.submit("b")
    _declared_newly(world, "a")
    assert [request.task for request in east.tick().requests] == ["b"]
    assert world.state_of(b) is SubmissionState.ACQUIRED
    refused = world.again(a)
    assert refused.state is SubmissionState.FAILED
    assert "cannot read its declaration: a.of_next_version: got 1" in refused.reason
    assert world.row("a").owner is None


def test_a_parent_whose_declaration_cannot_be_read_is_as_fresh_as_it_is(world: World) -> None:
    """Its cluster was updated first."""
    world.place(spec("a"), cluster="west")
    east = world.place(spec("b", ["a"]))
    _declared_newly(world, "a", "west")
    (waits,) = east.submit("b")
    east.tick()
    assert "waits for a (never made, to be made since" in world.again(waits).reason
    world.made("a", hours=1)
    world.clock.passes(minutes=2)
    assert world.run_all() == ["b"]
    assert world.state_of(waits) is SubmissionState.SUCCEEDED


def test_an_explanation_leaves_out_the_place_that_cannot_be_read(world: World) -> None:
    """The other one says what it would do."""
    world.place(spec("a"), cluster="west")
    world.place(spec("a"))
    _declared_newly(world, "a", "west")
    with world.state.read() as tx:
        found = explain(tx, "a", world.clock.now)
    assert [place for place, _ in found.would] == ["east/lake"]
    assert {place.cluster for place in found.locations} == {"east", "west"}


def test_a_step_that_is_unknown_is_shown_with_its_name(world: World) -> None:
    """As is everything around it."""
    east = world.place(spec("a"))
    (submission,) = east.submit("a")
    _verified(world, submission)
    with world.state.read() as tx:
        steps = [(one.step, one.reason) for _, one in events_of(tx, submission=submission.id)]
    assert steps == [
        (Step.SUBMITTED, "submitted by ann"),
        (Step.UNKNOWN, "verified: its rows were counted"),
    ]


def test_a_run_with_an_unknown_step_in_its_history_goes_on(world: World) -> None:
    """The history only informs."""
    east = world.place(spec("a"))
    (submission,) = east.submit("a")
    east.tick()
    _verified(world, submission)
    with ExitStack() as stack:
        running = east.begin(east.waiting_runs()[0], stack)
        assert "verified: its rows were counted" in [
            one["reason"] for one in history_of(world.state, submission.id)
        ]
        running.publish()
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def test_a_run_whose_history_cannot_be_read_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason."""

    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("details")

    east = world.place(spec("a"))
    (submission,) = east.submit("a")
    east.tick()
    monkeypatch.setattr(status, "events_of", fails)
    with ExitStack() as stack:
        running = east.begin(east.waiting_runs()[0], stack)
        assert history_of(world.state, submission.id) == []
        running.publish()
    assert world.state_of(submission) is SubmissionState.SUCCEEDED


def _ends(world: World) -> tuple[Histories, Submission, Submission]:
    east = world.place(spec("a"), spec("b"))
    (a,) = east.submit("a")
    world.run_all()
    world.clock.passes(seconds=1)
    (b,) = east.submit("b")
    world.run_all()
    return Histories(database=world.state, cluster="east", location="lake", tasks={}), a, b


def _context(report: Callable[[Any], None]) -> Any:
    return SimpleNamespace(
        log=SimpleNamespace(warning=lambda *_: None),
        instance=SimpleNamespace(report_runless_asset_event=report),
    )


def test_an_end_with_an_unknown_step_is_reported(world: World) -> None:
    """And the ends after it."""
    histories, a, _ = _ends(world)
    _verified(world, a)
    reported: list[Any] = []
    assert histories.report(_context(reported.append)) == 2
    history = reported[0].metadata["history"].value
    assert (history[-1]["step"], history[-1]["reason"]) == (
        "unknown", "verified: its rows were counted"
    )  # fmt: skip


def test_an_end_that_cannot_be_read_keeps_no_other_one_from_being_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported later."""
    histories, a, b = _ends(world)

    def read(tx: sa.Connection, id: str) -> Ending | None:
        if id == a.id:
            raise ValueError(id)
        return ending(tx, id)

    monkeypatch.setattr(submission_history, "ending", read)
    reported: list[Any] = []
    assert histories.report(_context(reported.append)) == 1
    assert reported[0].metadata["submission"].value == b.id
    monkeypatch.undo()
    assert histories.report(_context(reported.append)) == 1
