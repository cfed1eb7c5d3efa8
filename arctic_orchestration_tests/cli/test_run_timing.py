"""``arctic runs timing``: where the time between an event and the end of its run went."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from dagster import DagsterEvent, DagsterInstance, job
from dagster import DagsterRunStatus as Status

from arctic_orchestration.schedules.views.stages import stages
from arctic_orchestration_tests.cli.conftest import Outcome
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import RunQueue


@job
def nothing() -> None:
    """Has no steps."""


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_a_stage_is_as_long_as_it_was_since_the_one_before() -> None:
    """In their own order, without those that are not known; a clock set back takes no time."""
    moments = {
        "ended": NOON + timedelta(seconds=9),
        "stored": NOON,
        "taken": NOON + timedelta(seconds=2.5),
        "started": NOON + timedelta(seconds=7),
        "queued": NOON + timedelta(seconds=2),
    }
    found = [(stage.name, stage.seconds) for stage in stages(moments)]
    assert found == [
        ("stored", 0), ("taken", 2.5), ("queued", 0), ("started", 5), ("ended", 2),
    ]  # fmt: skip
    assert stages({}) == []


def test_the_stages_of_a_run_are_shown(
    ruled: Callable[..., RunQueue], arctic: Callable[..., Outcome]
) -> None:
    queue = ruled()
    run = queue.submit("load")
    queue.iterate()
    queue.report(run, Status.STARTED)
    queue.report(run, Status.SUCCESS)
    found = json.loads(arctic("runs", "timing", run.run_id, "--json").out)
    assert [stage["stage"] for stage in found["stages"]] == [
        "queued", "starting", "started", "ended",
    ]  # fmt: skip
    assert found["run_id"] == run.run_id
    assert found["seconds"] >= 0
    shown = arctic("runs", "timing", run.run_id[:8]).out
    assert f"run {run.run_id} of load" in shown
    assert "the run queue chose it" in shown


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_no_rules_are_needed(
    backend: str,
    database_url: str,
    dagster_instance: Callable[[str], DagsterInstance],
    arctic: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is shown stands in events, so Dagster's own coordinator will do."""
    instance = dagster_instance(backend)
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    run = instance.create_run_for_job(nothing, status=Status.STARTED)
    ended = DagsterEvent(event_type_value="PIPELINE_SUCCESS", job_name="nothing")
    instance.report_dagster_event(ended, run_id=run.run_id)
    shown = json.loads(arctic("runs", "timing", run.run_id, "--json").out)
    assert shown["run_id"] == run.run_id
    assert "ended" in [stage["stage"] for stage in shown["stages"]]


def test_an_unknown_run_is_refused(
    ruled: Callable[..., RunQueue], arctic: Callable[..., Outcome]
) -> None:
    ruled()
    refused = arctic("runs", "timing", "no-such-run")
    assert refused.code != 0
    assert "no-such-run" in refused.err
