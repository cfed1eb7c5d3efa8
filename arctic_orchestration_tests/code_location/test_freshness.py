"""The sensor ``arctic_tasks`` over a real instance, and runs that are tasks."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import Freshness
from arctic_orchestration.clock import utc_now
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.dagster import sensor, task_run
from arctic_orchestration.freshness.dagster.fresh_parents import fresh_parents
from arctic_orchestration.freshness.dagster.submission_history import history_key
from arctic_orchestration.freshness.definitions import register
from arctic_orchestration.freshness.status import Step, events_of
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import tasks as task_rows
from arctic_orchestration_tests.code_location.declared_tasks import FUNCTIONS, whole, written
from arctic_orchestration_tests.code_location.tasks_of_tests import BROKEN
from arctic_orchestration_tests.code_location.tasks_place import ON_SQLITE, Tasks, tasks

__all__ = ["tasks"]


def test_a_task_runs_after_its_parents_and_says_so_on_run_and_asset(tasks: Tasks) -> None:
    """An asset under an asset, and a job under both; the parent that is no task was made."""
    tasks.instance.report_runless_asset_event(dg.AssetMaterialization(["raw", "weather"]))
    submission = tasks.submit("report")
    assert tasks.run_all() == ["flights", "nyc/delays", "report"]
    # The job knows nothing of tasks: the next tick publishes it.
    tasks.tick()
    ended = tasks.again(submission)
    assert (ended.state, ended.token) == ("succeeded", 1)

    row = tasks.row("nyc/delays")
    event = tasks.instance.get_latest_materialization_event(dg.AssetKey(["nyc", "delays"]))
    assert event is not None
    assert event.run_id == row.last_success_run
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    assert metadata["arctic/token"].value == 1
    assert metadata["rows"].value == 3
    history = metadata["arctic/history"].value
    assert metadata["arctic/task"].value == "nyc/delays"
    assert isinstance(history, list)
    assert [step["step"] for step in history] == [
        "submitted", "waits_for_parents", "acquired", "requested", "begun",
    ]  # fmt: skip
    assert "parents are fresh: flights (made" in history[2]["reason"]
    run = tasks.instance.get_run_by_id(event.run_id)
    assert run is not None
    assert (run.tags["arctic/task"], run.tags[".dagster/arctic_token"]) == ("nyc/delays", "1")
    assert run.tags["arctic/submission"] == metadata["arctic/submission"].value


def test_a_run_that_fails_says_what_was_raised(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster repeats the step in its run, under the same token; the submission says why."""
    monkeypatch.setenv(BROKEN, "yes")
    tasks.instance.report_runless_asset_event(dg.AssetMaterialization(["raw", "weather"]))
    tasks.run_manually(dg.AssetKey("flights"))
    submission = tasks.submit("nyc/delays")
    (request,) = tasks.tick().run_requests or ()
    ran = tasks.run(request)
    assert not ran.success
    tasks.tick()
    ended = tasks.again(submission)
    assert (ended.state, ended.run_id) == ("failed", ran.run_id)
    why = "step nyc__delays: ValueError: the flights are upside down"
    assert ended.reason == f"run {ran.run_id} failed: {why}"
    assert tasks.row("nyc/delays").owner is None


def test_a_run_that_dagster_could_not_start_is_requested_again(tasks: Tasks) -> None:
    """It is no attempt of the task, which has no retries; the reason is the daemon's."""
    submission = tasks.submit("flights")
    (request,) = tasks.tick().run_requests or ()
    run = tasks.instance.create_run_for_job(
        tasks.repository.get_job(str(request.job_name)),
        tags={**request.tags, "dagster/run_key": str(request.run_key)},
    )
    tasks.instance.report_run_failed(run, "the code server is away")
    tasks.tick()
    waiting = tasks.again(submission)
    assert (waiting.state, waiting.silences) == ("retrying", 1)
    assert waiting.reason == (
        f"run {run.run_id} could not start: the code server is away; again, 1 of 3 times, in 1m"
    )
    assert tasks.row("flights").owner is None


def test_a_run_from_dagsters_ui_acquires_for_itself(tasks: Tasks) -> None:
    """However fresh the task is; and its tags say what it was."""
    for token in (1, 2):
        ran = tasks.run_manually(dg.AssetKey("flights"))
        assert ran.success
        row = tasks.row("flights")
        assert (row.last_token, row.last_success_run) == (token, ran.run_id)
        run = tasks.instance.get_run_by_id(ran.run_id)
        assert run is not None
        assert run.tags[".dagster/arctic_token"] == str(token)


def test_a_run_from_dagsters_ui_fails_while_another_has_the_task(tasks: Tasks) -> None:
    """And says whose run is in the way."""
    submission = tasks.submit("flights")
    tasks.tick()
    ran = tasks.run_manually(dg.AssetKey("flights"))
    assert not ran.success
    (failure,) = ran.get_step_failure_events()
    description = failure.step_failure_data.user_failure_data.description
    assert f"being made by a run for submission {submission.id} of cluster default" in description
    assert tasks.row("flights").last_success_at is None


def test_a_run_that_is_started_again_from_another_acquires_for_itself(tasks: Tasks) -> None:
    """It has the other's tags, and not its token."""
    tasks.submit("flights")
    (request,) = tasks.tick().run_requests or ()
    first = tasks.run(request)
    again = tasks.run(request, **{"dagster/parent_run_id": first.run_id})
    assert again.success
    assert tasks.row("flights").last_token == 2
    # Without that tag it is the token of before, and over.
    late = tasks.run(request)
    assert not late.success
    assert tasks.row("flights").last_token == 2


@ON_SQLITE
def test_a_tick_without_the_state_database_says_so_and_loses_nothing(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails nothing, and the next one goes on."""
    tasks.submit("flights")

    def away(database: Database) -> None:
        raise DatabaseUnavailable("The state database did not answer: it is away")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "read", away)
        tick = tasks.tick()
        assert tick.run_requests == []
        assert tick.skip_message == (
            "nothing new was begun: The state database did not answer: it is away"
        )
    assert tasks.run_all() == ["flights"]


@ON_SQLITE
def test_the_run_of_a_job_that_was_superseded_does_nothing(tasks: Tasks) -> None:
    """Each of its ops shows the token first; a run that is no task's shows none."""
    for name in ("flights", "nyc/delays"):
        assert tasks.run_manually(dg.AssetKey.from_user_string(name)).success
    tasks.submit("report")
    (request,) = tasks.tick().run_requests or ()
    with tasks.database.begin() as tx:
        tx.execute(sa.update(task_rows).values(token=2, owner="another", run_id="theirs"))
    ran = tasks.run(request)
    assert not ran.success
    (failure,) = ran.get_step_failure_events()
    description = failure.step_failure_data.user_failure_data.description
    assert "was superseded: run theirs of cluster default" in description
    job = tasks.repository.get_job("report")
    assert job.execute_in_process(instance=tasks.instance).success


def test_a_run_that_is_superseded_while_it_works_materializes_nothing(tasks: Tasks) -> None:
    """It asks before Dagster stores what came of it, and its history says that it was refused."""

    @fresh_parents({})
    @dg.asset
    def slow() -> None:
        with tasks.database.begin() as tx:
            here = sa.update(task_rows).where(task_rows.c.task == "slow")
            tx.execute(here.values(token=2, owner="another", run_id="theirs"))

    tasks.declare(Freshness(tasks=[slow]).definitions())
    submission = tasks.submit("slow")
    (request,) = tasks.tick().run_requests or ()
    ran = tasks.run(request)
    assert "was superseded: run theirs of cluster default" in tasks.failure_of(ran)
    assert tasks.instance.get_latest_materialization_event(dg.AssetKey("slow")) is None
    with tasks.database.read() as tx:
        (*_, last) = [event for _, event in events_of(tx, submission=submission.id)]
    assert last.step is Step.REFUSED


@ON_SQLITE
def test_a_task_of_a_batch_that_is_superseded_while_it_works_materializes_nothing(
    tasks: Tasks, tmp_path: Path
) -> None:
    """Its function writes no table, before whose commit the run would ask too."""
    file = written(tmp_path, "b", {"name": "b/slow", "python": f"{FUNCTIONS}:superseded"})
    tasks.declare(whole(batches=[file]))
    tasks.submit("b/slow")
    (request,) = tasks.tick().run_requests or ()
    ran = tasks.run(request)
    assert "was superseded: run theirs of cluster default" in tasks.failure_of(ran)
    assert tasks.instance.get_latest_materialization_event(dg.AssetKey(["b", "slow"])) is None


@ON_SQLITE
def test_a_parent_that_is_only_named_is_waited_for_as_one_that_does_not_exist(
    tasks: Tasks,
) -> None:
    """Dagster shows it as an asset, because another one depends on it."""

    @fresh_parents({"fligths": 24})
    @dg.asset(deps=["fligths"])
    def child() -> None: ...

    tasks.repository = Freshness(tasks=[child]).definitions().get_repository_def()
    tasks.tick()
    submission = tasks.submit("child")
    tasks.tick()
    assert "waits for fligths, which does not exist yet" in tasks.again(submission).reason


@ON_SQLITE
def test_a_task_with_partitions_is_made_for_the_newest(tasks: Tasks) -> None:
    """Also one that has begun only."""
    days = dg.DailyPartitionsDefinition("2026-01-01", end_offset=1)

    @fresh_parents({})
    @dg.asset(partitions_def=days)
    def daily() -> None: ...

    tasks.repository = Freshness(tasks=[daily]).definitions().get_repository_def()
    tasks.tick()
    tasks.submit("daily")
    (request,) = tasks.tick().run_requests or ()
    assert request.partition_key == f"{utc_now():%Y-%m-%d}"
    assert tasks.run(request).success
    assert tasks.row("daily").last_token == 1


@ON_SQLITE
def test_tasks_that_other_definitions_contain_are_requested_as_ones_own(tasks: Tasks) -> None:
    """As those in the ``defs/`` of a project; their policies stay those of their definitions."""
    policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=9))

    @fresh_parents({})
    @dg.asset(freshness_policy=policy)
    def part() -> None: ...

    @dg.op
    def work() -> None: ...

    @fresh_parents({"part": 24})
    @dg.job
    def nightly() -> None:
        work()

    theirs = dg.Definitions(assets=[part], jobs=[nightly])
    tasks.declare(dg.Definitions.merge(theirs, Freshness(loaded=[part, nightly]).definitions()))
    tasks.submit("nightly")
    assert tasks.run_all() == ["part", "nightly"]
    assert tasks.row("nightly").last_token == 1
    graph = tasks.repository.asset_graph
    assert graph.get(part.key).freshness_policy == policy
    assert {history_key("part"), history_key("nightly")} <= graph.get_all_asset_keys()


@ON_SQLITE
@pytest.mark.parametrize("kind", ["asset", "job"])
def test_a_run_that_ends_after_its_day_does_not_make_the_task_fresh_for_the_next(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It was requested in the last minute of a day: its success counts from then."""
    days = dg.DailyPartitionsDefinition("2026-01-01", end_offset=1)

    @fresh_parents({})
    @dg.asset(partitions_def=days)
    def daily_asset() -> None: ...

    @dg.op
    def work() -> None: ...

    @fresh_parents({})
    @dg.job(partitions_def=days)
    def daily_job() -> None:
        work()

    made = Freshness(tasks=[daily_asset, daily_job]).definitions()
    tasks.repository = made.get_repository_def()
    tasks.tick()
    today, tomorrow = tasks.submit(f"daily_{kind}"), "the next day"
    (request,) = tasks.tick().run_requests or ()
    # The next tick finds that the run has ended, which only a run of an asset says itself.
    monkeypatch.setattr(task_run, "newest_partition", lambda *_: tomorrow)
    monkeypatch.setattr(sensor, "newest_partition", lambda *_: tomorrow)
    assert tasks.run(request).success
    tasks.tick()
    assert tasks.again(today).state is SubmissionState.SUCCEEDED
    row = tasks.row(f"daily_{kind}")
    assert row.last_success_at == row.last_acquired_at


@ON_SQLITE
def test_the_tags_of_a_batch_and_its_tasks_are_on_their_runs(tasks: Tasks, tmp_path: Path) -> None:
    """Of assets and of jobs; the task's own go before, and ours before all."""
    own = {"size": "small", ".dagster/arctic_token": "99", "dagster/max_retries": "7"}
    file = written(
        tmp_path,
        "b",
        {"name": "b/part", "tags": own},
        {"name": "tell", "kind": "job", "tags": own},
        tags={"team": "ops", "size": "large"},
    )
    tasks.declare(whole(batches=[file]))
    for name in ("b/part", "tell"):
        submission = tasks.submit(name)
        (request,) = tasks.tick().run_requests or ()
        ran = tasks.run(request)
        assert ran.success
        assert tasks.tags_of(ran).items() >= {
            "team": "ops", "size": "small", "arctic/task": name, "arctic/submission": submission.id,
            ".dagster/arctic_token": "1", "dagster/max_retries": "0",
        }.items()  # fmt: skip


def test_a_job_that_the_code_lacks_is_published_though_its_other_tasks_are_refused(
    tasks: Tasks,
) -> None:
    """The definitions of before stand: else its submission would neither end nor run again."""

    @fresh_parents({"other": 24})
    @dg.asset(name="flights")
    def needs_other() -> None: ...

    tasks.instance.report_runless_asset_event(dg.AssetMaterialization(["raw", "weather"]))
    submission = tasks.submit("report")
    for _ in range(3):
        (request,) = tasks.tick().run_requests or ()
        assert tasks.run(request).success
    other = TaskSpec.parse({"name": "other", "target": "other", "parents": [{"name": "flights"}]})
    with tasks.database.begin() as tx:
        register(tx, "default", "elsewhere", [other], utc_now())
    tasks.declare(Freshness(tasks=[needs_other]).definitions())
    assert tasks.again(submission).state is SubmissionState.SUCCEEDED
