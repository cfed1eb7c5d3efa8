"""Which runs the daemon launches, and what else it does with them."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from dagster import DagsterRun
from dagster import DagsterRunStatus as Status
from dagster._core.remote_representation.code_location import (
    GrpcServerCodeLocation,
    InProcessCodeLocation,
)

from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import (
    RunQueue,
    beyond_upstream,
)


def test_only_runs_that_wait_are_launched(queue: Callable[..., RunQueue]) -> None:
    """``test_attempt_to_launch_runs_filter``: one that was not submitted stays what it is."""
    here = queue()
    waiting = here.submit()
    made = here.submit(status=Status.NOT_STARTED)

    assert here.iterate() == [waiting.run_id]
    assert here.status(waiting) is Status.STARTING
    assert here.status(made) is Status.NOT_STARTED


def test_without_a_run_that_waits_nothing_is_launched(queue: Callable[..., RunQueue]) -> None:
    """``test_attempt_to_launch_runs_no_queued``: one has begun, one was never submitted."""
    here = queue()
    here.submit(status=Status.STARTED)
    here.submit(status=Status.NOT_STARTED)
    assert here.iterate() == []


@beyond_upstream
def test_a_run_is_launched_once(
    queue: Callable[..., RunQueue], either_walk: Mapping[str, Any]
) -> None:
    """No test of upstream: the next pass does not launch it again, nor another daemon's."""
    here = queue(**either_walk)
    runs = {here.submit().run_id for _ in range(3)}
    assert set(here.iterate()) == runs
    assert here.iterate() == []
    assert queue(**either_walk).iterate() == []


@beyond_upstream
def test_runs_are_launched_from_every_code_location(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: one daemon for all code locations, first come first served."""
    here = queue()
    places = ["harbour", "lake", "harbour"]
    runs = [here.submit(location=place).run_id for place in places]
    assert here.iterate() == runs


def test_no_code_location_is_loaded_to_launch_a_run(
    queue: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``test_locations_not_created``: the daemon takes what the workspace has."""
    here = queue()
    runs = [here.submit().run_id for _ in range(2)]
    loaded: list[type] = []
    for kind in (InProcessCodeLocation, GrpcServerCodeLocation):

        def note(self: object, *_: Any, **__: Any) -> None:
            loaded.append(type(self))
            raise AssertionError("a code location is loaded")

        monkeypatch.setattr(kind, "__init__", note)

    assert here.iterate() == runs
    assert loaded == []


@beyond_upstream
def test_a_run_that_was_canceled_meanwhile_is_passed_over(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: the daemon has chosen it, but rechecks before it launches it."""
    here = queue()
    first, second, third = (here.submit() for _ in range(3))

    def cancel_the_second(run: DagsterRun) -> None:
        if run.run_id == first.run_id:
            here.coordinator.cancel_run(second.run_id)

    here.launcher.before = cancel_the_second

    assert here.iterate() == [first.run_id, third.run_id]
    assert here.status(second) is Status.CANCELED


@beyond_upstream
def test_a_run_that_was_launched_meanwhile_is_passed_over(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: another one has launched what the daemon has chosen."""
    here = queue()
    first, second = (here.submit() for _ in range(2))

    def start_the_second(run: DagsterRun) -> None:
        if run.run_id == first.run_id:
            here.report(second, Status.STARTED)

    here.launcher.before = start_the_second

    assert here.iterate() == [first.run_id]
    assert here.status(second) is Status.STARTED


@beyond_upstream
def test_a_run_that_is_submitted_meanwhile_waits_for_the_next_pass(
    queue: Callable[..., RunQueue],
) -> None:
    """No test of upstream: a pass launches what waited when it began."""
    here = queue()
    here.submit("load")
    late: list[str] = []

    def submit_a_bill(run: DagsterRun) -> None:
        if run.job_name == "load":
            late.append(here.submit("bill").run_id)

    here.launcher.before = submit_a_bill

    assert len(here.iterate()) == 1
    assert here.iterate() == late
