"""How submissions ended, on the asset of each task's history: each once, each with its reason."""

from datetime import datetime, timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import Arctic, Freshness, Schedule, on
from arctic_orchestration.arctic import DISPATCHER
from arctic_orchestration.freshness import skip_list, submissions
from arctic_orchestration.freshness.dagster import submission_history
from arctic_orchestration.freshness.dagster.fresh_parents import declared_tasks, fresh_parents
from arctic_orchestration.freshness.dagster.submission_history import history_key
from arctic_orchestration.freshness.ended_submissions import note_reported
from arctic_orchestration.freshness.lifecycle import Lifecycle
from arctic_orchestration.freshness.run_outcomes import Outcomes
from arctic_orchestration.freshness.run_start import begun
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration_tests.code_location.tasks_of_tests import BROKEN
from arctic_orchestration_tests.code_location.tasks_of_tests import defs as location
from arctic_orchestration_tests.code_location.tasks_place import ON_SQLITE, Tasks, observed, tasks
from arctic_orchestration_tests.freshness.imagined import Runs

__all__ = ["tasks"]

FLIGHTS, DELAYS = dg.AssetKey("flights"), dg.AssetKey(["nyc", "delays"])


def ends(tasks: Tasks, task: str) -> list[tuple[str, str, str]]:
    """Submission, state and reason of each report."""
    return [(one["submission"], one["ended as"], one["reason"]) for one in observed(tasks, task)]


def end_of(submission: Submission) -> tuple[str, str, str]:
    return submission.id, submission.state.value, submission.reason


def test_what_ended_without_a_run_is_seen_once_with_its_reason(tasks: Tasks) -> None:
    """Fresh already, skipped, and with a parent that is no more to be waited for."""
    assert tasks.run_manually(FLIGHTS).success
    tasks.tick()
    (manual,) = observed(tasks, "flights")
    assert manual["ended as"] == "succeeded"
    submission = tasks.submit("flights")
    with tasks.database.begin() as tx:
        skip_list.skip(tx, "nyc/delays", "the feed is broken", by="ann", cluster="default")
    skipped = tasks.submit("nyc/delays")
    stale = tasks.submit("report")
    for _ in range(3):
        tasks.tick()
    fresh, skipped, stale = map(tasks.again, (submission, skipped, stale))
    _, observed_fresh = observed(tasks, "flights")
    assert (observed_fresh["submission"], observed_fresh["ended as"]) == (submission.id, "fresh")
    assert observed_fresh["reason"] == fresh.reason
    assert fresh.reason.startswith("made ")
    assert observed_fresh.items() >= {
        "step": "fresh", "submitted by": "ann", "attempts": 0, "fresh": 1,
        "was made for (s)": 0, "task": FLIGHTS, "made last by run": manual["run"],
    }.items()  # fmt: skip
    assert "run" not in observed_fresh
    waited = fresh.ended_at - fresh.submitted_at if fresh.ended_at else timedelta(-1)
    assert observed_fresh["waited (s)"] == pytest.approx(waited.total_seconds(), abs=0.001)
    assert observed_fresh["freshness"].startswith("made ")
    assert [step["step"] for step in observed_fresh["history"]] == ["submitted", "fresh"]

    assert ends(tasks, "nyc/delays") == [end_of(skipped)]
    (record,) = tasks.instance.fetch_observations(history_key("nyc/delays"), limit=1).records
    assert record.asset_observation is not None
    assert record.asset_observation.description == "skipped: the feed is broken (by ann)"
    assert "the feed is broken" in skipped.reason
    (observed_stale,) = observed(tasks, "report")
    assert (observed_stale["ended as"], observed_stale["step"]) == ("failed", "stale_parents")
    assert observed_stale["reason"] == stale.reason
    assert "nyc/delays (never made" in stale.reason
    assert (observed_stale["freshness"][:10], observed_stale["fresh"]) == ("never made", 0)
    assert "age of the last success (h)" not in observed_stale
    assert observed_stale["task"].job_name == "report"


def test_who_shares_a_run_has_an_end_of_its_own(tasks: Tasks) -> None:
    """With a link to the run that it shared, and to the submission."""
    owner = tasks.submit("flights")
    (request,) = tasks.tick().run_requests or ()
    sharing = tasks.submit("flights")
    tasks.tick()
    ran = tasks.run(request)
    for _ in range(2):
        tasks.tick()
    owned, shared = observed(tasks, "flights")
    assert (owned["submission"], owned["ended as"], owned["run"]) == (
        owner.id, "succeeded", ran.run_id,
    )  # fmt: skip
    assert (owned["step"], owned["attempts"], owned["fresh"]) == ("published", 1, 1)
    assert (shared["submission"], shared["ended as"]) == (sharing.id, "fresh")
    assert (shared["shares submission"], shared["shares run"]) == (owner.id, ran.run_id)
    assert "run" not in shared


def test_what_failed_says_why(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its run, with a run that was shared, by a person, and by silence."""
    monkeypatch.setenv(BROKEN, "yes")
    tasks.instance.report_runless_asset_event(dg.AssetMaterialization(["raw", "weather"]))
    assert tasks.run_manually(FLIGHTS).success
    failed = tasks.submit("nyc/delays")
    (request,) = tasks.tick().run_requests or ()
    sharing = tasks.submit("nyc/delays")
    tasks.tick()
    ran = tasks.run(request)
    for _ in range(2):
        tasks.tick()
    one, other = observed(tasks, "nyc/delays")
    assert (one["submission"], one["run"]) == (failed.id, ran.run_id)
    why = "step nyc__delays: ValueError: the flights are upside down"
    assert one["reason"] == f"run {ran.run_id} failed: {why}"
    assert (one["ended as"], one["step"], one["fresh"]) == ("failed", "failed", 0)
    assert (other["submission"], other["step"]) == (sharing.id, "shared_failure")
    assert (other["ended as"], other["shares run"]) == ("failed", ran.run_id)

    outcomes, ended = Outcomes(), []
    for state in ("canceled", "lost"):
        submission = tasks.submit("flights", force=True)
        tasks.tick()
        with tasks.database.begin() as tx:
            # It was silent as often as it may be.
            submissions.update(tx, submission.id, silences=3)
            acquired = submissions.by_id(tx, submission.id, lock=True)
            assert acquired is not None
            if state == "canceled":
                outcomes.canceled(tx, acquired, "run 7 was canceled")
            else:
                assert not outcomes.silent(tx, acquired)
        for _ in range(2):
            tasks.tick()
        ended.append(end_of(tasks.again(submission)))
    assert ends(tasks, "flights")[1:] == ended
    assert [state for _, state, _ in ended] == ["canceled", "lost"]


@ON_SQLITE
def test_what_dagster_refuses_to_run_says_why(tasks: Tasks) -> None:
    """Of a job, whose link leads to the job."""

    @dg.op(config_schema={"letter": str})
    def post() -> None: ...

    @fresh_parents({})
    @dg.job
    def mail() -> None:
        post()

    tasks.declare(Freshness(tasks=[mail]).definitions())
    submission = tasks.submit("mail")
    tasks.tick()
    (one,) = observed(tasks, "mail")
    assert (one["submission"], one["ended as"]) == (submission.id, "failed")
    assert (one["task"].job_name, one["task"].location_name) == ("mail", "local")
    assert one["reason"].startswith("Dagster refuses its run: ")
    assert 'Missing required config entry "ops"' in one["reason"]


@ON_SQLITE
def test_a_parent_that_never_became_fresh_is_named(tasks: Tasks) -> None:
    """The wait is a number that Dagster plots."""

    @dg.asset(key="raw")
    def raw() -> None: ...

    @fresh_parents({"raw": 1}, patience=timedelta(milliseconds=20))
    @dg.asset
    def child() -> None: ...

    tasks.declare(
        dg.Definitions.merge(dg.Definitions([raw]), Freshness(tasks=[child]).definitions())
    )
    submission = tasks.submit("child")
    while not observed(tasks, "child"):
        tasks.tick()
    (one,) = observed(tasks, "child")
    assert (one["ended as"], one["step"]) == ("failed", "stale_parents")
    assert "still not fresh: raw (never made, to be at most 1 hour old)" in one["reason"]
    ended = tasks.again(submission)
    assert ended.ended_at is not None
    assert one["waited (s)"] == round((ended.ended_at - ended.submitted_at).total_seconds(), 3)
    assert one["waited (s)"] >= 0.02


def test_each_cluster_reports_what_was_submitted_on_it(tasks: Tasks) -> None:
    """Of a run that the other cluster has, there are words and no link."""
    declared = tuple(declared_tasks(tasks.repository))
    west = Lifecycle(
        database=tasks.database, cluster="west", location="elsewhere", runs=Runs(prefix="west"),
        declared=declared,
    )  # fmt: skip
    west.tick()
    with tasks.database.begin() as tx:
        (theirs,) = submissions.submit(tx, ["flights"], cluster="west", by="bob")
    (request,) = west.tick().requests
    ours = tasks.submit("flights")
    tasks.tick()
    with begun(
        tasks.database, task="flights", submission=theirs.id, token=1, run_id="west-1"
    ) as running:
        running.publish()
    assert request.submission == theirs.id
    for _ in range(2):
        tasks.tick()
    (one,) = observed(tasks, "flights")
    assert (one["submission"], one["ended as"]) == (ours.id, "fresh")
    assert one["shares submission"] == theirs.id
    assert one["shares run"] == "run west-1 of cluster west"
    assert one["made last by run"] == "run west-1 of cluster west"


class _Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("dies", ["before it reports", "before it notes", "while it commits"])
def test_a_crash_repeats_at_most_the_one_end_and_loses_none(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    """Of three ends, the process dies at the second."""
    assert tasks.run_manually(FLIGHTS).success
    tasks.tick()
    submitted = [tasks.submit("flights") for _ in range(3)]
    noted: list[str] = []
    note = note_reported

    def dying(tx: sa.Connection, id: str, now: datetime) -> None:
        if len(noted) == 1 and dies == "before it notes":
            raise _Killed
        note(tx, id, now)
        if len(noted) == 1 and dies == "while it commits":
            raise _Killed
        noted.append(id)

    report = dg.DagsterInstance.report_runless_asset_event

    def reporting(instance: dg.DagsterInstance, event: Any) -> None:
        if len(noted) == 1 and dies == "before it reports":
            raise _Killed
        report(instance, event)

    with monkeypatch.context() as patch:
        patch.setattr(submission_history, "note_reported", dying)
        patch.setattr(dg.DagsterInstance, "report_runless_asset_event", reporting)
        with pytest.raises(_Killed):
            tasks.tick()
    for _ in range(2):
        tasks.tick()
    first, second, third = (one.id for one in submitted)
    again = [] if dies == "before it reports" else [second]
    assert [id for id, _, _ in ends(tasks, "flights")][1:] == [first, second, *again, third]


def test_what_dagster_does_not_take_is_reported_later(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick goes on, with the other ends and with the runs that it requests."""
    assert tasks.run_manually(FLIGHTS).success
    tasks.tick()
    with tasks.database.begin() as tx:
        skip_list.skip(tx, "nyc/delays", "not now", by="ann", cluster="default")
    first, second = tasks.submit("flights"), tasks.submit("nyc/delays")
    tasks.submit("flights", force=True)
    report = dg.DagsterInstance.report_runless_asset_event

    def full(instance: dg.DagsterInstance, event: Any) -> None:
        if event.asset_key == history_key("flights"):
            raise OSError("the disk is full")
        report(instance, event)

    with monkeypatch.context() as patch:
        patch.setattr(dg.DagsterInstance, "report_runless_asset_event", full)
        assert len(tasks.tick().run_requests or ()) == 1
    assert [id for id, _, _ in ends(tasks, "nyc/delays")] == [second.id]
    assert [id for id, _, _ in ends(tasks, "flights")][1:] == []
    tasks.tick()
    assert [id for id, _, _ in ends(tasks, "flights")][1:] == [first.id]


@ON_SQLITE
def test_a_tick_reports_so_many_ends_and_for_so_long(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is left to the next; the tick says how many."""
    assert tasks.run_manually(FLIGHTS).success
    tasks.tick()
    for _ in range(3):
        tasks.submit("flights")
    with monkeypatch.context() as patch:
        patch.setattr(submission_history, "_REPORT_SECONDS", -1.0)
        assert "reported" not in str(tasks.tick().skip_message)
    monkeypatch.setattr(submission_history, "_REPORTED_AT_ONCE", 2)
    assert tasks.tick().skip_message == "reported 2"
    assert tasks.tick().skip_message == "reported 1"
    assert tasks.tick().skip_message == "nothing is due"
    assert len(ends(tasks, "flights")) == 4


def test_reports_fire_no_trigger_and_make_nothing_fresh(tasks: Tasks) -> None:
    """A schedule on the task's own asset sees its materialization, and none of the reports."""
    schedules = [
        Schedule(
            name=asset.replace("/", "_"),
            target="report",
            trigger=on.partitions(asset),
            enabled=True,
        )
        for asset in ("flights", "nyc/delays")
    ]
    both = dg.Definitions.merge(location, Arctic(schedules=schedules).definitions())
    tasks.repository = both.get_repository_def()

    def dispatch() -> list[str]:
        with dg.SensorEvaluationContext(
            instance_ref=tasks.instance.get_ref(), repository_name=tasks.repository.name,
            repository_def=tasks.repository, sensor_name=DISPATCHER,
        ) as context:  # fmt: skip
            tick = tasks.repository.get_sensor_def(DISPATCHER).evaluate_tick(context)
        # Until its run is seen, which nobody makes here, it is requested again.
        return sorted({str(request.run_key) for request in tick.run_requests or ()})

    assert dispatch() == []
    assert tasks.run_manually(FLIGHTS).success
    fired = dispatch()
    assert len(fired) == 1
    made = tasks.row("flights")
    with tasks.database.begin() as tx:
        skip_list.skip(tx, "nyc/delays", "not now", by="ann", cluster="default")
    for _ in range(3):
        tasks.submit("flights")
        tasks.submit("nyc/delays")
    for _ in range(2):
        tasks.tick()
    assert (len(observed(tasks, "flights")), len(observed(tasks, "nyc/delays"))) == (4, 3)
    assert dispatch() == fired
    assert tasks.row("flights") == made
    assert tasks.row("nyc/delays").last_success_at is None
    for key, times in ((FLIGHTS, 1), (DELAYS, 0)):
        assert not tasks.instance.fetch_observations(key, limit=9).records
        assert len(tasks.instance.fetch_materializations(key, limit=9).records) == times
