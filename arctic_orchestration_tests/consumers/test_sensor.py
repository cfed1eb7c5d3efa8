"""A run for each new partition: what the sensor requests, and what becomes of the runs."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa

from arctic_orchestration import ConsumedPartition, PartitionConsumer, consumer_sensor
from arctic_orchestration.consumers.progress import Progress
from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.state.consumer_tables import consumer_partitions
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.consumers.dagster_assets import DAYS, arrive
from arctic_orchestration_tests.noise import noise

#: Tests of what is the same whatever the storages are.
ON_SQLITE = pytest.mark.parametrize("backend", ["sqlite"])
BROKEN = "ARCTIC_TEST_BROKEN"


@dg.asset(partitions_def=DAYS, key="report")
def report(context: dg.AssetExecutionContext) -> None:
    """Fails for the day that the environment names."""
    if context.partition_key == os.environ.get(BROKEN):
        raise RuntimeError("no report of this day")


@dg.op
def log_it(context: dg.OpExecutionContext) -> None:
    """Says what it is for."""


@dg.job
def unpartitioned() -> None:
    """A tag names its partition."""
    log_it()


@dg.op(config_schema={"most": int, "since": dg.Field(dg.Any, is_required=False)})
def count(context: dg.OpExecutionContext) -> None:
    """Counts."""


@dg.job
def configured() -> None:
    """Must be given how far to count."""
    count()


MOST = {"most": 3}
CONFIG = {"ops": {"count": {"config": MOST}}}
DAWN = datetime(2026, 1, 1, 6)


def definitions(target: Any, consumer: PartitionConsumer, **named: Any) -> dg.Definitions:
    """A code location with one sensor."""
    sensor = consumer_sensor(consumer, target=target, name="each_day", **named)
    return dg.Definitions(assets=[report], jobs=[unpartitioned, configured], sensors=[sensor])


@dataclass
class Place:
    """A Dagster instance and a code location, and what the daemon would do."""

    instance: dg.DagsterInstance
    state: Database
    #: why the last tick asked for nothing
    message: str = ""

    def tick(self, location: dg.Definitions) -> list[dg.RunRequest]:
        """What the sensor requests."""
        repository = location.get_repository_def()
        with dg.SensorEvaluationContext(
            instance_ref=self.instance.get_ref(),
            repository_name=repository.name,
            repository_def=repository,
            sensor_name="each_day",
        ) as context:
            result = repository.get_sensor_def("each_day").evaluate_tick(context)
        self.message = str(result.skip_message)
        return list(result.run_requests or ())

    def run(self, location: dg.Definitions, *requests: dg.RunRequest) -> None:
        """Makes a run of each request, as the daemon does, and lets it end."""
        repository = location.get_repository_def()
        name = str(repository.get_sensor_def("each_day").job_name)
        for request in requests:
            tags = {**request.tags, "dagster/run_key": str(request.run_key)}
            repository.get_job(name).execute_in_process(
                instance=self.instance,
                partition_key=request.partition_key,
                tags=tags,
                raise_on_error=False,
            )

    def cancel(self, request: dg.RunRequest) -> str:
        """A person terminates the run of a request before it has done anything; its id."""
        tags = {**request.tags, "dagster/run_key": str(request.run_key)}
        run = self.instance.create_run_for_job(
            unpartitioned, tags=tags, status=dg.DagsterRunStatus.STARTED
        )
        self.instance.report_run_canceling(run)
        self.instance.report_run_canceled(run)
        return run.run_id

    def rows(self) -> list[Any]:
        """All partitions that consumers know."""
        with self.state.read() as tx:
            return list(tx.execute(sa.select(consumer_partitions)))


@pytest.fixture
def place(
    backend: str,
    dagster_instance: Callable[[str], dg.DagsterInstance],
    state: Database,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    """An instance whose environment names the state database, once on each backend."""
    instance = dagster_instance(backend)
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)
    return Place(instance, state)


def progress(consumer: PartitionConsumer) -> Progress:
    """How far it is, by its own connections."""
    found = consumer.progress()
    consumer.close()
    return found


def test_success_acknowledges_and_failure_puts_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run for each partition; the one that fails comes again, until its attempts are used up."""
    consumer = PartitionConsumer("days", name="each", attempts=2, retry_after=timedelta(0))
    here = definitions([report], consumer)
    assert place.tick(here) == []
    arrive(place.instance, "days", "2026-01-01", "2026-01-02", path="/landed")
    first = place.tick(here)
    assert [one.partition_key for one in first] == ["2026-01-01", "2026-01-02"]
    tags = {key: value for key, value in first[0].tags.items() if "arctic" in key}
    assert tags == {
        "arctic/consumer": "each",
        "arctic/partition": "2026-01-01",
        "arctic/attempt": "1",
        ".dagster/arctic_consumer_token": "1",
    }
    # The consumer retries; Dagster would run a failed partition beside it.
    assert first[0].tags["dagster/max_retries"] == "0"
    assert re.fullmatch(r"each:2026-01-01:1:\d{13}:1:1:\d{13}", str(first[0].run_key))
    # Until Dagster has the runs they are requested again, under their keys.
    assert [one.run_key for one in place.tick(here)] == [one.run_key for one in first]
    monkeypatch.setenv(BROKEN, "2026-01-02")
    place.run(here, *first)
    again = place.tick(here)
    assert [(one.partition_key, one.tags["arctic/attempt"]) for one in again] == [
        ("2026-01-02", "2")
    ]
    assert again[0].run_key != first[1].run_key
    place.run(here, *again)
    assert place.tick(here) == []
    found = progress(consumer)
    assert (found.acknowledged, found.discarded, found.left) == (1, 1, 0)
    # A new arrival is a new chance.
    monkeypatch.delenv(BROKEN)
    arrive(place.instance, "days", "2026-01-02")
    last = place.tick(here)
    assert [one.tags["arctic/attempt"] for one in last] == ["1"]
    place.run(here, *last)
    assert place.tick(here) == []
    assert progress(consumer).acknowledged == 2


@ON_SQLITE
def test_no_more_runs_at_once_than_allowed(place: Place) -> None:
    """What has no run yet counts; a job without partitions gets its own from a tag."""
    consumer = PartitionConsumer("days", name="each")
    here = definitions("unpartitioned", consumer, at_once=2, where="2026-01-*")
    arrive(place.instance, "days", "2026-02-01", *(f"2026-01-0{day}" for day in range(1, 5)))
    first = place.tick(here)
    assert [one.tags["arctic/partition"] for one in first] == ["2026-01-01", "2026-01-02"]
    assert {one.partition_key for one in first} == {None}
    place.run(here, first[0])
    second = place.tick(here)
    assert [one.tags["arctic/partition"] for one in second] == ["2026-01-02", "2026-01-03"]
    place.run(here, *second)
    last = place.tick(here)
    assert [one.tags["arctic/partition"] for one in last] == ["2026-01-04"]
    place.run(here, *last)
    assert place.tick(here) == []
    found = progress(consumer)
    assert (found.acknowledged, found.waiting) == (4, 1)


@ON_SQLITE
def test_a_partition_for_which_the_filter_fails_waits_alone(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It is reported once."""

    def of_numbers(partition: ConsumedPartition) -> bool:
        return int(partition.key.replace("-", "")) > 0

    here = definitions("unpartitioned", PartitionConsumer("days", name="each"), where=of_numbers)
    arrive(place.instance, "days", "2026-01-01", "oops", "2026-01-02")
    for _ in range(2):
        delivered = place.tick(here)
        assert [one.tags["arctic/partition"] for one in delivered] == ["2026-01-01", "2026-01-02"]
    assert [text for text in caplog.messages if "where" in text] == [
        "where failed for partition oops, which waits: "
        "ValueError(\"invalid literal for int() with base 10: 'oops'\")"
    ]


@ON_SQLITE
def test_a_run_that_cannot_be_requested_fails_alone(place: Place) -> None:
    """The other partitions run; a request of one's own is taken as it is made."""

    def request(partition: ConsumedPartition) -> dg.RunRequest:
        return dg.RunRequest(tags={"path": str(partition.metadata["path"])})

    consumer = PartitionConsumer("days", name="each", attempts=1)
    here = definitions([report], consumer, request=request)
    arrive(place.instance, "days", "not a day", "2026-01-01", path="/landed")
    arrive(place.instance, "days", "2026-01-02")
    (made,) = place.tick(here)
    assert (made.partition_key, made.tags["path"]) == ("2026-01-01", "/landed")
    found = progress(consumer)
    assert (found.discarded, found.leased) == (2, 1)


@ON_SQLITE
@pytest.mark.parametrize(
    ("target", "given", "message"),
    [
        ("configured", {"run_config": {"ops": {"count": {"config": {"most": "many"}}}}}, "many"),
        (
            "configured",
            {"run_config": {"ops": {"count": {"config": {**MOST, "since": DAWN}}}}},
            "datetime.datetime",
        ),
        ("unpartitioned", {"partition_key": "2026-01-01"}, "request.partition_key"),
        ("unpartitioned", {"job_name": "configured"}, "request.job_name: got 'configured'"),
        ([report], {"asset_selection": [dg.AssetKey("nowhere")]}, "nowhere"),
        ([report], {"stale_assets_only": True}, "request.stale_assets_only: got True"),
        ([report], {"partition_key": "not a day"}, "not a day"),
        ([report], {"tags": {"path": noise(6_000)}}, "tag path: got '6,004 bytes: "),
        ([report], {"tags": {"path": "a\0b"}}, r"tag path: got 'a\x00b'"),
        ([report], None, "request: got None, expected a function that returns a dg.RunRequest"),
    ],
)
def test_a_request_that_dagster_refuses_holds_nothing_back(
    place: Place, target: Any, given: dict[str, Any] | None, message: str
) -> None:
    """It would fail the tick, and each tick after it, while the leases are renewed."""

    def request(partition: ConsumedPartition) -> dg.RunRequest | None:
        good = dg.RunRequest(run_config=CONFIG if target == "configured" else None)
        if partition.key != "2026-01-01":
            return good
        return None if given is None else good.with_replaced_attrs(**given)

    consumer = PartitionConsumer("days", name="each", attempts=1)
    here = definitions(target, consumer, request=request)
    arrive(place.instance, "days", "2026-01-01", "2026-01-02")
    (made,) = place.tick(here)
    assert made.tags["arctic/partition"] == "2026-01-02"
    found = progress(consumer)
    assert (found.discarded, found.leased) == (1, 1)
    (reason,) = [row.reason for row in place.rows() if row.partition == "2026-01-01"]
    assert reason.startswith("its run cannot be requested: ")
    assert message in reason


def test_a_run_that_is_canceled_counts_as_an_attempt(place: Place) -> None:
    """Its partition comes again, in a run of its own; after the last attempt it is given up."""
    consumer = PartitionConsumer("days", name="each", attempts=2, retry_after=timedelta(0))
    here = definitions("unpartitioned", consumer)
    arrive(place.instance, "days", "2026-01-01")
    (first,) = place.tick(here)
    place.cancel(first)
    (again,) = place.tick(here)
    assert (again.tags["arctic/attempt"], again.run_key == first.run_key) == ("2", False)
    found = progress(consumer)
    assert (found.acknowledged, found.leased, found.discarded) == (0, 1, 0)
    last = place.cancel(again)
    assert place.tick(here) == []
    found = progress(consumer)
    assert (found.acknowledged, found.discarded, found.left) == (0, 1, 0)
    (row,) = place.rows()
    assert (row.attempts, row.reason) == (2, f"run {last} ended: canceled")


def test_a_run_whose_lease_was_taken_over_acknowledges_nothing(place: Place) -> None:
    """Another one has the partition by then."""
    consumer = PartitionConsumer("days", name="each", lease=timedelta(seconds=3))
    here = definitions([report], consumer, interval_seconds=1)
    arrive(place.instance, "days", "2026-01-01")
    (request,) = place.tick(here)
    with consumer.consume(wait=timedelta(seconds=60)) as partitions:
        assert [(one.key, one.attempt) for one in partitions] == [("2026-01-01", 2)]
        place.run(here, request)
        assert place.tick(here) == []
        assert consumer.progress().acknowledged == 0
    assert progress(consumer).acknowledged == 1


@ON_SQLITE
def test_a_tick_that_cannot_do_its_work_says_why(place: Place) -> None:
    """And the next one tries again."""
    other = PartitionConsumer("feeds", name="each")
    other.register()
    other.close()
    here = definitions([report], PartitionConsumer("days", name="each"))
    arrive(place.instance, "days", "2026-01-01")
    assert place.tick(here) == []
    assert "feeds, which the consumer of this name reads" in place.message


def test_what_cannot_be_is_refused_by_name() -> None:
    """When the sensor is made."""
    consumer = PartitionConsumer("days", name="each")
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"at_once": 0}, "at_once"),
        ({"interval_seconds": "5"}, "interval_seconds"),
        ({"where": 5}, "where"),
        ({"interval_seconds": 30}, "PartitionConsumer(each).lease"),
        ({"consumer": "each"}, "consumer"),
        ({"request": 5}, "request"),
        ({"name": "a b"}, "name"),
        ({"name": ""}, "name"),
        ({"name": 5}, "name"),
        ({"default_status": "RUNNING"}, "default_status"),
        ({"target": None}, "target"),
        ({"target": []}, "target"),
        ({"target": ""}, "target"),
        ({"target": 5}, "target"),
    )
    for arguments, name in refused:
        with pytest.raises(InvalidDefinition) as refusal:
            consumer_sensor(**{"consumer": consumer, "target": [report], **arguments})
        assert refusal.value.field == name
