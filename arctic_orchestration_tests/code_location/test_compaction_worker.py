"""The job ``compaction_worker``: small files become one, and what is interrupted is given back."""

import queue
import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from arctic_orchestration.compaction.dagster import worker_job
from arctic_orchestration.compaction.dagster.worker_demand import worker_name
from arctic_orchestration.compaction.dagster.worker_job import JOB
from arctic_orchestration.compaction.dagster.worker_run import attended
from arctic_orchestration.compaction.queue.queues import CompactionQueue, add_queue
from arctic_orchestration.compaction.service import CompactionService
from arctic_orchestration.compaction.work.database_source import DatabaseSource
from arctic_orchestration.compaction.work.worker import Worker, WorkerEvent
from arctic_orchestration.lake.spark_resource import LakeSparkResource
from arctic_orchestration.state import database as database_module
from arctic_orchestration.state.compaction_tables import (
    compaction_attempts,
    compaction_tasks,
    compaction_workers,
)
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.migrations import VERSION_TABLE
from arctic_orchestration_tests.code_location.compaction_place import (
    EAGER,
    CompactedPlace,
    a_location,
    compacted,
)
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.patience import PATIENCE_SECONDS


@pytest.fixture
def lake(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompactedPlace:
    monkeypatch.setenv("ARCTIC_SPARK_MASTER", "local[2]")
    return compacted(place, tmp_path / "lake", monkeypatch)


def work(
    lake: CompactedPlace, location: dg.Definitions, **config: Any
) -> dg.ExecuteInProcessResult:
    """A run of the job, in this process."""
    settings = {"queue": "default", "parallelism": 2, "until_idle": 0.0, **config}
    job = location.get_repository_def().get_job(JOB)
    return job.execute_in_process(
        instance=lake.place.instance,
        run_config={"ops": {"merge_small_files": {"config": settings}}},
        raise_on_error=False,
    )


def numbers_of(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata of the op's output."""
    (event,) = [event for event in result.all_node_events if event.is_successful_output]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def test_a_run_merges_what_the_sensor_has_planned_and_the_sensor_commits_it(
    lake: CompactedPlace, spark: SparkSession
) -> None:
    """Three files of two tables each become one, with the same rows; the session lives on."""
    names = ("nyc.one", "nyc.two")
    for name in names:
        lake.append(name, files=3)
    before = {name: lake.rows(name) for name in names}
    location = a_location(numbers_every=timedelta(seconds=1))
    lake.tick(location)
    (request,) = lake.requests
    result = work(lake, location, **request.run_config["ops"]["merge_small_files"]["config"]
                  | {"until_idle": 0.0})  # fmt: skip
    assert result.success
    numbers = numbers_of(result)
    assert numbers.pop("bytes merged") > 1_000
    assert numbers == {"tasks merged": 2, "files merged": 6, "tasks failed": 0, "tasks lost": 0}
    assert lake.place.rows(compaction_tasks, "state") == [("merged",), ("merged",)]
    assert lake.place.rows(compaction_workers, "id") == [], "it has said good-bye"
    attempts = lake.place.rows(compaction_attempts, "worker", "state")
    assert attempts == [(worker_name(result.run_id), "merged")] * 2
    lake.tick(location)
    assert {name: lake.files(name) for name in names} == {"nyc.one": 1, "nyc.two": 1}
    assert {name: lake.rows(name) for name in names} == before
    lake.tick(location)
    assert [one["files"] for one in lake.reported("nyc.one")][-1] == 1
    assert lake.reported("nyc.one")[-1]["files merged"] == 3
    assert spark.range(1).count() == 1, "the session of the program is still there"


def test_a_run_without_work_starts_no_spark(
    lake: CompactedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends when its queue has been idle."""

    def refuse(_: LakeSparkResource) -> None:
        raise AssertionError("a session for nothing")

    monkeypatch.setattr(LakeSparkResource, "_init_session", refuse)
    result = work(lake, a_location())
    assert result.success
    assert set(numbers_of(result).values()) == {0}


def test_a_run_goes_on_when_its_database_is_upgraded_by_a_newer_version(
    lake: CompactedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has merged would be lost; the sensor of its version requests no more runs."""
    monkeypatch.setattr(database_module, "_CHECK_SECONDS", 0)

    def upgraded(database: Database, *arguments: object) -> bool:
        for _ in range(2):
            with database.begin() as tx:
                tx.execute(sa.text(f"update {VERSION_TABLE} set version_num = '9999'"))
        return False

    monkeypatch.setattr(worker_job, "work_came", upgraded)
    assert work(lake, a_location()).success


def test_a_worker_that_is_kept_starts_spark_before_there_is_work(
    lake: CompactedPlace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that its first task does not wait for it."""
    started: list[LakeSparkResource] = []
    begin = LakeSparkResource._init_session

    def counted(resource: LakeSparkResource) -> None:
        started.append(resource)
        begin(resource)

    monkeypatch.setattr(LakeSparkResource, "_init_session", counted)
    assert work(lake, a_location(), starts_spark=True).success
    assert started
    assert spark.range(1).count() == 1


def test_a_run_of_another_queue_leaves_the_tasks_alone(lake: CompactedPlace) -> None:
    """And a run of none says which there are."""
    with lake.place.database.begin() as tx:
        add_queue(tx, CompactionQueue(name="urgent"), datetime.now(UTC))
    lake.append("nyc.one", files=2)
    location = a_location()
    lake.tick(location)
    assert work(lake, location, queue="urgent").success
    assert lake.place.rows(compaction_tasks, "state") == [("planned",)]
    failed = work(lake, location, queue="nobody")
    assert not failed.success
    (event,) = [event for event in failed.all_node_events if event.is_step_failure]
    cause = event.step_failure_data.error
    assert cause is not None
    assert "no compaction queue nobody; there is: default, urgent" in str(cause.to_string())


def test_an_interrupted_run_gives_back_what_it_has(lake: CompactedPlace) -> None:
    """The task can be claimed at once, and the attempt does not count."""
    lake.table("nyc.one", EAGER)
    lake.append("nyc.one", files=2)
    CompactionService(lake.place.database, lake.catalog).tick(datetime.now(UTC))
    began, ended = threading.Event(), threading.Event()

    def merge(table: Table, group: object, directory: str, *, target_bytes: int) -> Any:
        began.set()
        assert ended.wait(PATIENCE_SECONDS)
        raise RuntimeError("the jobs of the session were canceled")

    events: queue.Queue[WorkerEvent] = queue.Queue()
    worker = Worker(
        DatabaseSource(lake.place.database, lake.catalog), merge, queues=["default"],
        cancel=ended.set, on_event=events.put,
    )  # fmt: skip
    heard: list[str] = []
    was_heard = threading.Event()

    def hear(event: WorkerEvent) -> None:
        heard.append(event.what)
        was_heard.set()

    def interrupt() -> None:
        assert began.wait(PATIENCE_SECONDS)
        assert was_heard.wait(PATIENCE_SECONDS)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        attended(worker, timedelta(minutes=5), events, hear)
    assert lake.place.rows(compaction_tasks, "state", "attempts") == [("planned", 0)]
    assert lake.place.rows(compaction_attempts, "state") == [("released",)]
    assert lake.place.rows(compaction_workers, "id") == []
    assert heard == ["claimed"]


def test_a_task_that_fails_fails_no_run(lake: CompactedPlace, spark: SparkSession) -> None:
    """The task says why, and the output counts it; no other attempt could read that file."""
    lake.append("nyc.one", files=2)
    location = a_location()
    lake.tick(location)
    for file in (lake.settings.lake / "warehouse/nyc/one/data").glob("*.parquet"):
        file.write_bytes(b"no Parquet at all")
    result = work(lake, location)
    assert result.success
    assert (numbers_of(result)["tasks merged"], numbers_of(result)["tasks failed"]) == (0, 1)
    assert lake.place.rows(compaction_tasks, "state") == [("quarantined",)]
