"""The tags that runs are given when they are submitted, through a real instance."""

import random
import string
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from dagster import DagsterEventType, DagsterRun
from dagster import DagsterRunStatus as Status
from dagster._core.definitions.selector import JobSubsetSelector
from dagster._core.execution.plan.resume_retry import ReexecutionStrategy
from dagster._core.instance.methods.run_methods import RunMethods
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.storage.dagster_run import RunsFilter

from arctic_orchestration_tests.present import present
from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import OURS, RunQueue
from arctic_orchestration_tests.run_queue.coordinator.listening import Clock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
NOON_SECONDS = int(NOON.timestamp())
ENQUEUED = DagsterEventType.PIPELINE_ENQUEUED
RULES: dict[str, Any] = {
    "groups": {
        "few": {"limit": 2, "match": {"job": "load"}},
        "each": {"limit_per_program": 1, "match": {"tags": {"team": "finance"}}},
        "marts": {"limit": 1, "match": {"asset": "marts/orders"}},
    },
    "windows": {"night": {"start": "22:00", "end": "06:00", "match": {"location": "harbour"}}},
    "rates": {"api": {"limit": 10, "per": "1m", "match": {"tags": {"source": "crm"}}}},
    "intervals": {"calm": {"duration": "10m", "match": {"job": "bill"}}},
}
QUEUES = {"sails": {"level": 4}, "finance": {"level": 1, "match": {"tags": {"team": "finance"}}}}
FEW = {"arctic/group.few": "at most 2 at once"}


@pytest.fixture
def clock(clock: Clock) -> Clock:
    clock.now = NOON
    return clock


@pytest.fixture
def ruled(
    backend: str, make_queue: Callable[..., RunQueue], clock: Clock
) -> Callable[..., RunQueue]:
    def make(**config: Any) -> RunQueue:
        return make_queue(backend, {**OURS, "config": {**RULES, **config}})

    return make


@pytest.fixture
def tag_writes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Every writing of tags to a stored run."""
    written: list[dict[str, str]] = []
    write = RunMethods.add_run_tags

    def add(self: Any, run_id: str, new_tags: dict[str, str]) -> None:
        written.append(dict(new_tags))
        write(self, run_id, new_tags)

    monkeypatch.setattr(RunMethods, "add_run_tags", add)
    return written


def ours(run: DagsterRun) -> dict[str, str]:
    """The run's tags of ours, and its priority."""
    return {
        key: value
        for key, value in run.tags.items()
        if key.startswith(("arctic/", ".dagster/arctic_")) or key == "dagster/priority"
    }


def messages(queue: RunQueue, run: DagsterRun) -> list[str]:
    """The messages of engine events."""
    records = queue.instance.get_records_for_run(
        run.run_id, of_type=DagsterEventType.ENGINE_EVENT
    ).records
    return [present(record.event_log_entry.dagster_event).message or "" for record in records]


def test_a_run_has_the_tags_of_its_rules_once_it_is_queued(ruled: Callable[..., RunQueue]) -> None:
    """By its job, its tags and its code location; they can be looked for in Dagster's UI."""
    queue = ruled()
    assert ours(queue.submit("load")) == FEW
    assert ours(queue.submit("refund", tags={"source": "crm"})) == {
        "arctic/group.each": "at most 1 of a program",
        "arctic/program.each": "lake: refund",
        "arctic/rate.api": "waiting",
    }
    held = queue.submit("bill", location="harbour")
    assert ours(held) == {
        "arctic/window.night": "22:00-06:00 UTC",
        "arctic/interval.calm": "harbour: bill",
    }
    found = queue.instance.get_runs(RunsFilter(tags={"arctic/interval.calm": "harbour: bill"}))
    assert [run.run_id for run in found] == [held.run_id]


def test_a_run_that_no_rule_matches_has_exactly_the_tags_it_came_with(
    ruled: Callable[..., RunQueue], tag_writes: list[dict[str, str]]
) -> None:
    """Nothing is written to it at all."""
    queue = ruled()
    made = queue.submit("needs_ice", tags={"a": "b", "dagster/priority": "3"},
                        status=Status.NOT_STARTED)  # fmt: skip
    queue.instance.submit_run(made.run_id, queue.context.create_request_context())
    assert queue.run(made).tags == made.tags
    assert queue.status(made) is Status.QUEUED
    assert tag_writes == []


def test_the_tags_are_stored_before_the_run_is_queued(
    ruled: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a pass in between would start it past its rules."""
    queue = ruled()
    seen: list[tuple[Status, dict[str, str]]] = []
    report = queue.instance.report_dagster_event

    def watched(event: Any, run_id: str, *arguments: Any, **named: Any) -> Any:
        if event.event_type is ENQUEUED:
            run = queue.run(run_id)
            seen.append((run.status, ours(run)))
        return report(event, run_id, *arguments, **named)

    monkeypatch.setattr(queue.instance, "report_dagster_event", watched)
    queue.submit("load")
    assert seen == [(Status.NOT_STARTED, FEW)]


def test_the_answer_to_who_submits_has_the_tags(ruled: Callable[..., RunQueue]) -> None:
    """As the run is stored."""
    queue = ruled()
    made = queue.submit("load", status=Status.NOT_STARTED)
    answer = queue.instance.submit_run(made.run_id, queue.context.create_request_context())
    assert ours(answer) == FEW
    assert answer == queue.run(made)


def test_a_run_is_tagged_once_however_often_it_is_submitted(
    ruled: Callable[..., RunQueue], clock: Clock, tag_writes: list[dict[str, str]]
) -> None:
    """Its place in the queue stays, too."""
    queue = ruled(queues=QUEUES)
    run = queue.submit("load")
    clock.now = NOON.replace(hour=13)
    queue.instance.submit_run(run.run_id, queue.context.create_request_context())
    assert queue.run(run) == run
    assert len(tag_writes) == 1
    assert len(queue.events(run, ENQUEUED)) == 1
    assert ours(run)["dagster/priority"] == str(-NOON_SECONDS)


def test_a_run_that_was_launched_past_the_queue_is_not_tagged(
    ruled: Callable[..., RunQueue], tag_writes: list[dict[str, str]]
) -> None:
    """Nor when it is submitted afterwards."""
    queue = ruled()
    run = queue.submit("load", status=Status.STARTED)
    queue.coordinator.submit_run(SubmitRunContext(run, queue.context.create_request_context()))
    assert ours(queue.run(run)) == {}
    assert tag_writes == []


def test_a_run_of_assets_stands_under_the_rules_that_they_name(
    ruled: Callable[..., RunQueue],
) -> None:
    """Those of all assets of the job together."""
    queue = ruled(queues=QUEUES)
    run = queue.submit("yard")
    assert ours(run) == {
        "arctic/group.few": "at most 2 at once",
        "arctic/group.each": "at most 1 of a program",
        "arctic/program.each": "lake: yard",
        "arctic/rate.api": "waiting",
        "arctic/queue": "sails",
        "arctic/level": "3",
        ".dagster/arctic_queued_at": "2026-03-02T12:00:00Z",
        "dagster/priority": str(3 * 600 - NOON_SECONDS),
        "arctic/problem": "arctic/group: got 'nobody', expected one of the groups of "
        "dagster.yaml: each, few, marts",
    }


def test_a_run_of_some_assets_stands_under_the_rules_of_these(
    ruled: Callable[..., RunQueue],
) -> None:
    """Also in the job that Dagster makes of all assets, whose program is the assets."""
    queue = ruled()
    assert ours(queue.submit("yard", assets=["yard/nets"])) == {**FEW, "arctic/rate.api": "waiting"}
    some = queue.submit("__ASSET_JOB", assets=["yard/ropes", "marts/totals"])
    assert ours(some) == {
        "arctic/group.each": "at most 1 of a program",
        "arctic/program.each": "lake: marts/totals, yard/ropes",
    }


def test_a_rule_matches_the_assets_of_a_run(ruled: Callable[..., RunQueue]) -> None:
    """Those that are selected, or all of the job."""
    queue = ruled()
    group = {"arctic/group.marts": "at most 1 at once"}
    assert ours(queue.submit("marts")) == group
    assert ours(queue.submit("marts", assets=["marts/orders"])) == group
    assert ours(queue.submit("marts", assets=["marts/totals"])) == {}


def test_tags_of_assets_that_cannot_be_read_cost_no_run(
    ruled: Callable[..., RunQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code location is gone just now: the run has what is known without it."""
    queue = ruled()
    made = queue.submit("load", status=Status.NOT_STARTED)
    workspace = queue.context.create_request_context()

    def gone(name: str) -> Any:
        raise RuntimeError(f"{name} is gone")

    monkeypatch.setattr(workspace, "get_code_location", gone)
    queue.coordinator.submit_run(SubmitRunContext(made, workspace))
    assert queue.status(made) is Status.QUEUED
    assert ours(queue.run(made)) == FEW


def test_names_that_no_rule_has_are_reported_on_the_run(ruled: Callable[..., RunQueue]) -> None:
    """One event a name, before it is queued; what is known is followed."""
    queue = ruled(queues=QUEUES)
    run = queue.submit("yard", assets=["yard/sails"], tags={"arctic/window": "night, day",
                                                            "arctic/level": "high"})  # fmt: skip
    assert messages(queue, run) == [
        "Problem in the run queue: arctic/group: got 'nobody', expected one of the groups of "
        "dagster.yaml: each, few, marts",
        "Problem in the run queue: arctic/window: got 'day', expected one of the windows of "
        "dagster.yaml: night",
        "Problem in the run queue: arctic/level: got 'high', expected a whole number from -1000000 "
        "to 1000000",
    ]
    assert ours(run)["arctic/window.night"] == "22:00-06:00 UTC"
    assert (ours(run)["arctic/queue"], ours(run)["arctic/level"]) == ("sails", "4")
    assert queue.status(run) is Status.QUEUED


def test_what_is_too_long_for_a_tag_is_shortened(ruled: Callable[..., RunQueue]) -> None:
    """Postgres refuses tags of some thousand bytes, and a run is queued with whatever tags."""
    letters = random.Random(1)
    words = ["".join(letters.choices(string.ascii_letters, k=12)) for _ in range(150)]
    each = {"key": "who", "value": {"applyLimitPerUniqueValue": True}, "limit": 0}
    queue = ruled(tag_concurrency_limits=[each])
    run = queue.submit("load", tags={"arctic/group": ",".join(words), "who": "".join(words)})
    assert queue.status(run) is Status.QUEUED
    assert len(messages(queue, run)) == len(words)
    assert queue.iterate() == []
    stored = ours(queue.run(run))
    assert stored["arctic/problem"].startswith(f"arctic/group: got '{words[0]}', expected one of")
    assert stored["arctic/wait"].startswith(f"tag who={words[0]}")
    assert all(stored[tag].endswith("...") for tag in ("arctic/problem", "arctic/wait"))


def test_a_retried_run_keeps_its_level_and_takes_its_turn_again(
    ruled: Callable[..., RunQueue], clock: Clock
) -> None:
    """By Dagster's own way to execute a run again, which copies its tags."""
    queue = ruled(queues=QUEUES)
    first = queue.submit("refund", tags={"source": "crm", "arctic/level": "7"})
    queue.instance.add_run_tags(first.run_id, {"arctic/rate.api": "granted"})
    queue.report(first, Status.STARTED)
    queue.report(first, Status.FAILURE)
    clock.now = NOON.replace(hour=13)
    again = retried(queue, first)
    assert again.run_id != first.run_id
    assert ours(again) == {
        "arctic/group.each": "at most 1 of a program",
        "arctic/program.each": "lake: refund",
        "arctic/rate.api": "waiting",
        "arctic/queue": "finance",
        "arctic/level": "7",
        ".dagster/arctic_queued_at": "2026-03-02T13:00:00Z",
        "dagster/priority": str(7 * 600 - NOON_SECONDS - 3600),
    }


def retried(queue: RunQueue, run: DagsterRun) -> DagsterRun:
    """The run once more, as Dagster's daemon for retries submits it."""
    workspace = queue.context.create_request_context()
    location = workspace.get_code_location("lake")
    job = location.get_job(
        JobSubsetSelector(
            location_name="lake",
            repository_name="__repository__",
            job_name=run.job_name,
            op_selection=None,
        )
    )
    made = queue.instance.create_reexecuted_run(
        parent_run=queue.run(run),
        request_context=workspace,
        code_location=location,
        remote_job=job,
        strategy=ReexecutionStrategy.ALL_STEPS,
        use_parent_run_tags=True,
    )
    queue.instance.submit_run(made.run_id, workspace)
    return queue.run(made)
