"""The sensor ``arctic_compaction``: what a tick plans, marks, requests and says."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit import records
from arctic_orchestration.compaction.dagster import sensor as compaction_sensor
from arctic_orchestration.compaction.dagster.definitions import Compaction
from arctic_orchestration.compaction.dagster.worker_demand import wanted_runs, worker_name
from arctic_orchestration.compaction.dagster.worker_job import JOB
from arctic_orchestration.compaction.queue import queues, table_queues
from arctic_orchestration.compaction.queue.offers import offer
from arctic_orchestration.compaction.queue.queues import CompactionQueue, QueueState
from arctic_orchestration.compaction.service import CompactionService
from arctic_orchestration.compaction.work import workers
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.lake import tables as lake_tables
from arctic_orchestration.state.compaction_tables import compaction_tables, compaction_tasks
from arctic_orchestration_tests.code_location.compaction_place import (
    EAGER,
    CompactedPlace,
    a_location,
    compacted,
)
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.compaction.stored import planned
from arctic_orchestration_tests.compaction.test_records import recorded
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until

DAY = timedelta(days=1)


@pytest.fixture
def lake(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompactedPlace:
    return compacted(place, tmp_path / "lake", monkeypatch)


def states(lake: CompactedPlace) -> list[tuple[str, str]]:
    """Queue and state of all tasks."""
    return lake.place.rows(compaction_tasks, "queue", "state")


def due(lake: CompactedPlace, name: str) -> str | None:
    """Why a table is due."""
    with lake.place.database.read() as tx:
        return tables.table_by_name(tx, name).due_reason


def workers_of(lake: CompactedPlace, *names: str) -> None:
    """Workers of the queue ``default`` that are seen now."""
    with lake.place.database.begin() as tx:
        for name in names:
            one = workers.WorkerInfo(
                id=name, name=name, queues=("default",), parallelism=2, host="here", pid=1
            )
            workers.record_heartbeat(tx, one)


def give_tasks(lake: CompactedPlace, count: int, queue: str = "default") -> None:
    """Tasks of one table that wait in a queue."""
    name = f"lake.of_{queue}"
    now = datetime.now(UTC)
    with lake.place.database.begin() as tx:
        table_queues.see_table(tx, name, queue=queue, level=0, now=now)
        offer(tx, name, [planned(f"{name}-{n}-a", f"{name}-{n}-b") for n in range(count)], now)


def wanted(lake: CompactedPlace, now: datetime | None = None) -> dict[str, int]:
    """So many more runs for each queue, as the sensor counts them."""
    found = wanted_runs(lake.place.database, lake.place.instance, JOB, 2, now or datetime.now(UTC))
    return {one.queue.name: one.runs for one in found}


def a_run(lake: CompactedPlace, status: dg.DagsterRunStatus, queue: str = "default") -> str:
    """A run of the worker."""
    tags = {"arctic/compaction_queue": queue}
    run: dg.DagsterRun = create_run_for_test(
        lake.place.instance, job_name=JOB, status=dg.DagsterRunStatus.STARTED, tags=tags
    )
    if status is dg.DagsterRunStatus.FAILURE:
        lake.place.instance.report_run_failed(run)
    elif status is dg.DagsterRunStatus.SUCCESS:
        lake.place.instance.report_dagster_event(
            dg.DagsterEvent(event_type_value="PIPELINE_SUCCESS", job_name=JOB), run.run_id
        )
    return run.run_id


def test_small_files_become_a_request_of_a_run(lake: CompactedPlace) -> None:
    """Once: the run that is requested counts before anything of it is seen."""
    lake.append("nyc.small", files=3)
    location = a_location()
    lake.tick(location)
    assert states(lake) == [("default", "planned")]
    (request,) = lake.requests
    assert request.tags == {
        "arctic/compaction_queue": "default",
        "dagster/max_retries": "0",
        "dagster/sensor_name": "arctic_compaction",
    }
    assert request.run_config == {
        "ops": {
            "merge_small_files": {
                "config": {"queue": "default", "parallelism": 2, "until_idle": 60.0}
            }
        }
    }
    create_run_for_test(lake.place.instance, job_name=JOB, tags=dict(request.tags))
    result = lake.tick(location)
    assert len(lake.requests) == 1
    assert result.skip_message == "queue default has 1 tasks to claim, and 1 workers"


def test_without_a_mode_tables_are_planned_and_left_alone(lake: CompactedPlace) -> None:
    """No task, no run, no file is changed; the table's asset says what would be merged."""
    lake.append("nyc.small", files=3)
    lake.append("nyc.other", files=3)
    location = a_location(
        dg.AssetSpec("fills", metadata={"arctic/table": "nyc.small"}),
        tables=["nyc.s*"],
        mode="observe",
        numbers_every=timedelta(seconds=1),
    )
    lake.tick(location)
    lake.place.instance.report_runless_asset_event(dg.AssetMaterialization("fills"))
    result = lake.tick(location)
    assert (states(lake), lake.requests, lake.files("nyc.small")) == ([], [], 3)
    assert "due" not in (result.skip_message or "")
    assert lake.reported("nyc.small")[-1]["would be merged"] == "3 of 3 files in 1 task"
    assert lake.reported("nyc.other") == []


@pytest.mark.parametrize("mode", ["observe", "run"])
def test_patterns_that_match_no_table_are_named(lake: CompactedPlace, mode: str) -> None:
    """In the result of each tick."""
    lake.append("nyc.small", files=1)
    tables = ["nyc.s*", "nyc.smal", "ny.*"]
    result = lake.tick(a_location(tables=tables, mode=mode))
    assert "no table matches nyc.smal, ny.*" in (result.skip_message or "")
    assert "no table" not in (lake.tick(a_location(tables=["*"], mode=mode)).skip_message or "")


def test_a_request_names_the_queue_and_its_level(lake: CompactedPlace) -> None:
    """So that rules of the run queue find it; each request has a key of its own."""
    with lake.place.database.begin() as tx:
        queue = CompactionQueue(name="urgent", level=3, max_workers=2)
        queues.add_queue(tx, queue, datetime.now(UTC))
    for name in ("nyc.one", "nyc.two", "nyc.three"):
        lake.table(name, EAGER | {"arctic.compaction.queue": "urgent"})
        lake.append(name, files=2)
    lake.tick(a_location(parallelism=1))
    one, other = lake.requests
    assert one.tags["arctic/compaction_queue"] == "urgent"
    assert one.tags["arctic/level"] == "3"
    assert one.run_key != other.run_key


def test_as_many_workers_are_wanted_as_tasks_need_and_the_queue_has(lake: CompactedPlace) -> None:
    """Two tasks a worker; workers that people started count; a queue may have none at all."""
    give_tasks(lake, 5)
    assert wanted(lake) == {"default": 1}, "max_workers is 1"
    for most, runs in ((2, 2), (10, 3), (0, 0)):
        with lake.place.database.begin() as tx:
            queues.update_queue(tx, "default", max_workers=most)
        assert wanted(lake) == {"default": runs}
    with lake.place.database.begin() as tx:
        queues.update_queue(tx, "default", max_workers=10)
    workers_of(lake, "somebody:1")
    assert wanted(lake) == {"default": 2}
    mine = a_run(lake, dg.DagsterRunStatus.STARTED)
    assert wanted(lake) == {"default": 1}
    workers_of(lake, worker_name(mine))
    assert wanted(lake) == {"default": 1}, "a run and its worker are one"


def test_a_floor_of_workers_is_kept_without_tasks(lake: CompactedPlace) -> None:
    """But not of a paused queue; tasks can need more, and the request says how it is kept."""
    with lake.place.database.begin() as tx:
        queues.update_queue(tx, "default", min_workers=2, max_workers=3)
        queues.add_queue(tx, CompactionQueue(name="other"), datetime.now(UTC))
    assert wanted(lake) == {"default": 2}
    workers_of(lake, "somebody:1")
    assert wanted(lake) == {"default": 1}
    lake.tick(a_location())
    (request,) = lake.requests
    config = request.run_config["ops"]["merge_small_files"]["config"]
    assert (config["until_idle"], config["starts_spark"]) == (3600.0, True)
    a_run(lake, dg.DagsterRunStatus.STARTED)
    assert wanted(lake) == {"default": 0}
    give_tasks(lake, 5)
    assert wanted(lake) == {"default": 1}
    with lake.place.database.begin() as tx:
        queues.set_state(tx, "default", QueueState.PAUSED)
    assert wanted(lake) == {}


def test_a_request_says_how_the_worker_gets_its_spark(lake: CompactedPlace) -> None:
    """With the properties of the queue's applications, or nothing about it."""
    lake.append("nyc.small", files=3)
    properties = {"spark.master": "spark://master:7077", "spark.executor.memory": "8g"}
    for application in (properties, {}, None):
        with lake.place.database.begin() as tx:
            queues.update_queue(tx, "default", application=application)
        lake.tick(a_location())
    configs = [one.run_config["ops"]["merge_small_files"]["config"] for one in lake.requests]
    assert [one.get("application") for one in configs] == [properties, {}, None]
    assert all("starts_spark" not in one for one in configs)


def test_a_worker_whose_run_has_ended_does_not_count(lake: CompactedPlace) -> None:
    """Killed, it is seen in the database for two minutes more."""
    give_tasks(lake, 1)
    workers_of(lake, worker_name(a_run(lake, dg.DagsterRunStatus.SUCCESS)))
    assert wanted(lake) == {"default": 1}


def test_after_runs_that_failed_it_pauses_longer_each_time(lake: CompactedPlace) -> None:
    """30 s after the first, a minute after the second; a success ends it."""
    give_tasks(lake, 1)
    a_run(lake, dg.DagsterRunStatus.FAILURE)
    now = datetime.now(UTC)
    assert wanted(lake, now) == {"default": 0}
    assert wanted(lake, now + timedelta(seconds=31)) == {"default": 1}
    a_run(lake, dg.DagsterRunStatus.FAILURE)
    now = datetime.now(UTC)
    assert wanted(lake, now + timedelta(seconds=31)) == {"default": 0}
    assert wanted(lake, now + timedelta(seconds=61)) == {"default": 1}
    a_run(lake, dg.DagsterRunStatus.SUCCESS)
    assert wanted(lake) == {"default": 1}


def test_a_table_is_due_when_its_asset_arrives(lake: CompactedPlace) -> None:
    """By the metadata or a tag of the asset; what came before the first tick is ignored."""
    never = EAGER | {"arctic.compaction.check-interval": "1d"}
    for name in ("nyc.by_metadata", "nyc.by_tag"):
        lake.table(name, never)
    location = a_location(
        dg.AssetSpec("one", metadata={"arctic/table": "nyc.by_metadata"}),
        dg.AssetSpec("two", tags={"arctic/table": "nyc.by_tag"}),
        dg.AssetSpec("three"),
    )
    instance = lake.place.instance
    instance.report_runless_asset_event(dg.AssetMaterialization("one"))
    lake.tick(location)
    assert "due" not in str(lake.tick(location).skip_message)
    for asset in ("one", "two", "three"):
        instance.report_runless_asset_event(dg.AssetMaterialization(asset))
    lake.append("nyc.by_metadata", files=2)
    result = lake.tick(location)
    assert "due: nyc.by_metadata, nyc.by_tag" in str(result.skip_message or "") or lake.requests
    assert states(lake) == [("default", "planned")]
    assert "due" not in str(lake.tick(location).skip_message), "the cursor has moved"


def test_a_table_that_is_new_is_found_when_its_asset_arrives(lake: CompactedPlace) -> None:
    """The planner asks the catalog every few minutes only; an arrival is a reason to ask now."""
    location = a_location(dg.AssetSpec("new", metadata={"arctic/table": "nyc.new"}))
    lake.tick(location)
    assert lake.place.rows(compaction_tables, "name") == []
    lake.append("nyc.new", files=2)
    lake.place.instance.report_runless_asset_event(dg.AssetMaterialization("new"))
    lake.tick(location)
    assert lake.place.rows(compaction_tables, "name") == [("nyc.new",)]
    assert states(lake) == [("default", "planned")]


def test_an_unavailable_catalog_is_reported_and_workers_are_requested_anyway(
    lake: CompactedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next tick opens it again."""
    give_tasks(lake, 1)
    with monkeypatch.context() as away:

        def refuse(_: object) -> None:
            raise ConnectionError("nobody listens on port 1")

        away.setattr(lake_tables, "open_catalog", refuse)
        location = a_location()
        lake.tick(location)
        assert len(lake.requests) == 1
        create_run_for_test(lake.place.instance, job_name=JOB, tags=dict(lake.requests[0].tags))
        result = lake.tick(location)
        assert "the round ended early: nobody listens on port 1" in str(result.skip_message)
        assert "no table matches" not in str(result.skip_message)
    lake.append("nyc.there")
    lake.tick(location)
    assert ("nyc.there",) in lake.place.rows(compaction_tables, "name")


def test_an_unavailable_database_is_reported(
    lake: CompactedPlace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The tick succeeds, keeps its cursor, and says what is wrong."""
    location = a_location()
    lake.tick(location)
    before = lake.cursor
    nobody = "postgresql://somebody@127.0.0.1:1/nothing"
    monkeypatch.setenv("ARCTIC_DATABASE_URL", nobody)
    result = lake.tick(location)
    assert str(result.skip_message).startswith("nothing could be done: The state database did not")
    assert lake.cursor == before


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Rounds do not end before this is set."""
    go_on = threading.Event()
    whole = CompactionService.tick

    def slow(self: CompactionService, now: datetime) -> object:
        assert go_on.wait(PATIENCE_SECONDS)
        return whole(self, now)

    monkeypatch.setattr(CompactionService, "tick", slow)
    monkeypatch.setattr(compaction_sensor, "_WAIT_SECONDS", 0.01)
    yield go_on
    go_on.set()


def test_a_round_that_takes_long_goes_on_between_ticks(
    lake: CompactedPlace, held: threading.Event
) -> None:
    """Ticks do not wait for it, ask for workers meanwhile, and tell what came of it."""
    lake.append("nyc.small", files=2)
    give_tasks(lake, 1)
    location = a_location()
    lake.tick(location)
    assert len(lake.requests) == 1, "asked for while the round goes on"
    create_run_for_test(lake.place.instance, job_name=JOB, tags=dict(lake.requests[0].tags))
    assert "a round goes on since 20" in str(lake.tick(location).skip_message)
    held.set()
    until(lambda: "tasks offered 1" in str(lake.tick(location).skip_message), "a round to end")
    assert "nyc.small" in dict(lake.place.rows(compaction_tables, "name", "queue"))


def test_no_tick_fails_for_an_unexpected_error(
    lake: CompactedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported, and workers are requested."""

    def broken(self: CompactionService, now: datetime) -> None:
        raise RuntimeError("no luck today")

    monkeypatch.setattr(CompactionService, "tick", broken)
    result = lake.tick(a_location())
    assert result.skip_message == "the round ended early: no luck today"


@pytest.mark.parametrize(("options", "left"), [({}, [1, 3]), ({"retention": 2 * DAY}, [1])])
def test_records_are_kept_for_as_long_as_the_location_says(
    lake: CompactedPlace, options: dict[str, timedelta], left: list[int]
) -> None:
    """Of one and three days: both within the thirty of the default, one within two."""
    now = datetime.now(UTC)
    with lake.place.database.begin() as tx:
        for days in (1, 3):
            records.write(tx, recorded("lake.a", days, now - days * DAY))
    lake.tick(a_location(**options))
    with lake.place.database.read() as tx:
        assert [one.snapshot_id for one in records.records(tx)] == left


def test_options_that_cannot_be_used_are_refused_by_name() -> None:
    """All of them at once."""
    with pytest.raises(InvalidDefinition) as refused:
        Compaction(
            tables="nyc.flights",
            mode="watch",
            interval_seconds=0,
            parallelism=True,
            until_idle=timedelta(seconds=-1),
            numbers_every=timedelta(0),
            retention=timedelta(hours=23),
        ).definitions()
    for field in ("tables", "interval_seconds", "parallelism", "until_idle", "numbers_every"):
        assert f"{field}: got" in str(refused.value)
    assert "retention: got" in str(refused.value)


def test_definitions_touch_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading them makes no file; two tables have two assets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", f"sqlite:///{tmp_path / 'arctic.db'}")
    location = a_location(tables=["nyc.one", "nyc.two"])
    dg.Definitions.validate_loadable(location)
    keys = location.get_repository_def().asset_graph.get_all_asset_keys()
    assert {key.to_user_string() for key in keys} == {
        "arctic/compaction/nyc/one",
        "arctic/compaction/nyc/two",
    }
    assert list(tmp_path.iterdir()) == []
