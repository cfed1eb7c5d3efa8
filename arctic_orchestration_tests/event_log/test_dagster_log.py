"""What DagsterLog makes of Dagster's rows, on SQLite and on Postgres."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance, DagsterRunStatus, deserialize_value
from dagster._core.events.log import EventLogEntry
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.storage.dagster_run import DagsterRun
from dagster._core.storage.legacy_storage import LegacyRunStorage
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.utils import make_new_run_id

from arctic_orchestration.event_log.dagster_log import DagsterLog
from arctic_orchestration.event_log.event import Event, EventKind, RunStatus
from arctic_orchestration.event_log.feed import Position
from arctic_orchestration.event_log.log_rows import arrival, pack_of, plain
from arctic_orchestration_tests.event_log.writers import entry


def read_all(log: DagsterLog) -> list[Event]:
    """Everything from the beginning, in pages of three."""
    events: list[Event] = []
    position = None
    while True:
        batch = log.read(position, 3)
        events += batch.events
        position = batch.position
        if not batch.more:
            return events


@pytest.fixture
def instance(backend: str, dagster_instance: Callable[[str], DagsterInstance]) -> DagsterInstance:
    return dagster_instance(backend)


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["2026-01-01"]))
def rollup() -> dg.MaterializeResult[Any]:
    return dg.MaterializeResult(metadata={"size_bytes": 7, "dagster/row_count": 2})


@dg.op
def stumble() -> None:
    raise RuntimeError("on purpose")


@dg.job(tags={"team": "ops"})
def stumbling() -> None:
    stumble()


class TestArrivals:
    """Materializations and observations become PARTITION events."""

    def test_an_arrival_from_outside_has_its_partition_size_and_rows(
        self, instance: DagsterInstance
    ) -> None:
        """Reported without a run: 1,000 bytes and 3 rows of one partition."""
        before = datetime.now(UTC) - timedelta(seconds=1)
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                ["raw", "flights"],
                partition="2026-01-01",
                metadata={"bytes": 1000, "rows": 3, "path": dg.MetadataValue.path("/landing/x")},
            )
        )
        (event,) = read_all(DagsterLog(instance))
        assert event.kind is EventKind.PARTITION
        assert event.subject == "raw/flights"
        assert (event.partition, event.bytes, event.rows) == ("2026-01-01", 1000, 3)
        assert event.metadata == {"bytes": 1000, "rows": 3, "path": "/landing/x"}
        assert event.run_id is None
        assert event.problem is None
        assert before < event.at < datetime.now(UTC) + timedelta(seconds=1)

    def test_an_observation_announces_a_partition_too(self, instance: DagsterInstance) -> None:
        """What was observed outside of Dagster counts as an arrival."""
        instance.report_runless_asset_event(
            dg.AssetObservation("raw", partition="x", metadata={"size_bytes": 5.0})
        )
        (event,) = read_all(DagsterLog(instance))
        assert (event.kind, event.subject, event.partition) == (EventKind.PARTITION, "raw", "x")
        assert event.bytes == 5

    @pytest.mark.parametrize(
        ("metadata", "problem"),
        [
            ({"bytes": -1}, "bytes: got -1, expected a whole number of at least 0, below 2^63"),
            ({"bytes": "much"}, "bytes: got 'much', expected a whole number"),
            ({"rows": 1.5}, "rows: got 1.5, expected a whole number"),
            ({"bytes": True}, "bytes: got True, expected a whole number"),
            ({"bytes": float("nan")}, "bytes: got 'NaN', expected a whole number"),
            ({"bytes": 2**63}, "bytes: got 9223372036854775808, expected a whole number"),
        ],
    )
    def test_an_impossible_size_is_reported_and_the_arrival_counts(
        self,
        metadata: dict[str, Any],
        problem: str,
        dagster_instance: Callable[[str], DagsterInstance],
    ) -> None:
        """Field, value and what was expected; the partition arrived all the same."""
        instance = dagster_instance("sqlite")
        instance.report_runless_asset_event(
            dg.AssetMaterialization("raw", partition="p", metadata=metadata)
        )
        (event,) = read_all(DagsterLog(instance))
        assert (event.subject, event.partition) == ("raw", "p")
        assert event.problem is not None
        assert event.problem.startswith(problem)


def row_of(body: str) -> tuple[Any, ...]:
    """A row as the table has it, with this stored text."""
    stamp = datetime(2026, 1, 2, 3, 4, 5)
    return 7, "ASSET_MATERIALIZATION", stamp, '["raw", "x"]', "p", "", body


class TestBrokenRows:
    """A row whose text cannot be understood is an arrival nevertheless."""

    @pytest.mark.parametrize("body", ["{", "[]", "null", "{}", '{"timestamp": "noon"}', "\x00"])
    def test_a_text_that_is_no_event_leaves_the_columns(self, body: str) -> None:
        """Asset, partition and time come from the columns, and the problem shows the text."""
        event = arrival(row_of(body))
        assert (event.subject, event.partition, event.storage_id) == ("raw/x", "p", 7)
        assert event.at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        assert event.problem is not None
        assert "expected an event as Dagster stores it" in event.problem

    @pytest.mark.parametrize(
        "broken",
        [
            {"label": "odd", "entry_data": {"__class__": "NoSuchThing", "value": 1}},
            {"label": "odd", "entry_data": None},
            {"label": "odd"},
            "odd",
        ],
    )
    def test_one_broken_entry_spoils_no_other(self, broken: Any) -> None:
        """The size is still read; the broken entry is named."""
        document = json.loads(dg.serialize_value(entry("p", size=9)))
        data = document["dagster_event"]["event_specific_data"]["materialization"]
        data["metadata_entries"].insert(0, broken)
        event = arrival(row_of(json.dumps(document)))
        assert event.bytes == 9
        assert event.problem is not None
        assert "odd" in event.problem
        assert "expected a metadata entry that Dagster can read" in event.problem


KINDS: dict[str, Any] = {
    "text": dg.MetadataValue.text("x"),
    "no text": dg.TextMetadataValue(None),
    "url": dg.MetadataValue.url("http://x"),
    "path": dg.MetadataValue.path(Path("/x")),
    "notebook": dg.MetadataValue.notebook("/n.ipynb"),
    "json": dg.MetadataValue.json({"a": [1, {"b": None}]}),
    "markdown": dg.MetadataValue.md("# x"),
    "artifact": dg.MetadataValue.python_artifact(os.getcwd),
    "float": dg.MetadataValue.float(1.5),
    "infinite": dg.MetadataValue.float(float("inf")),
    "int": dg.MetadataValue.int(12),
    "bool": dg.MetadataValue.bool(False),
    "timestamp": dg.MetadataValue.timestamp(1.5),
    "run": dg.MetadataValue.dagster_run("some-run"),
    "asset": dg.MetadataValue.asset(dg.AssetKey(["a", "b"])),
    "job": dg.MetadataValue.job("j", "location"),
    "table": dg.MetadataValue.table([dg.TableRecord({"a": 1})]),
    "schema": dg.MetadataValue.table_schema(
        dg.TableSchema(columns=[dg.TableColumn("a", "int", tags={"pii": "no"})])
    ),
    "lineage": dg.MetadataValue.column_lineage(
        dg.TableColumnLineage({"a": [dg.TableColumnDep(dg.AssetKey("x"), "c")]})
    ),
    "null": dg.MetadataValue.null(),
    "references": dg.CodeReferencesMetadataValue(
        code_references=[dg.LocalFileCodeReference(file_path="/x.py", line_number=3)]
    ),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_fast_reading_agrees_with_dagsters_own(kind: str) -> None:
    """Each kind of metadata: the stored text read by us, and by Dagster's deserialisation."""
    stored = entry("p")
    materialization = dg.AssetMaterialization("x", partition="p", metadata={kind: KINDS[kind]})
    event: Any = stored.get_dagster_event()
    body = dg.serialize_value(
        stored._replace(
            dagster_event=event._replace(
                event_specific_data=event.event_specific_data._replace(
                    materialization=materialization
                )
            )
        )
    )
    read = arrival(row_of(body))
    assert read.problem is None
    data: Any = deserialize_value(body, EventLogEntry).get_dagster_event().event_specific_data
    value = data.materialization.metadata[kind]
    by_dagster: Any
    if kind in ("artifact", "job", "table", "schema", "lineage", "references"):
        by_dagster = plain(pack_of(value))
    elif kind == "asset":
        by_dagster = value.value.to_user_string()
    elif kind in ("no text", "infinite"):
        by_dagster = {"no text": None, "infinite": "Infinity"}[kind]
    else:
        by_dagster = value.value
    assert read.metadata == {kind: by_dagster}
    json.dumps(read.metadata, allow_nan=False)


def queued_run(location: str, *, tags: dict[str, str] | None = None) -> DagsterRun:
    """The record of a run of ``nightly``, for asset ``a/b``, from a code location of this name."""
    origin = RemoteRepositoryOrigin(
        ManagedGrpcPythonEnvCodeLocationOrigin(
            loadable_target_origin=LoadableTargetOrigin(module_name="m"), location_name=location
        ),
        "repository",
    )
    return DagsterRun(
        job_name="nightly",
        run_id=make_new_run_id(),
        tags=tags or {},
        status=DagsterRunStatus.NOT_STARTED,
        asset_selection={dg.AssetKey(["a", "b"])},
        remote_job_origin=RemoteJobOrigin(origin, "nightly"),
    )


class TestRuns:
    """Run status changes become RUN events, with what the run's record says."""

    def test_a_run_of_an_asset_job_announces_start_arrival_and_success(
        self, instance: DagsterInstance
    ) -> None:
        """Three events in their order; the run's events name its job and its assets."""
        job = dg.define_asset_job("nightly", [rollup])
        definitions = dg.Definitions(assets=[rollup], jobs=[job])
        result = definitions.resolve_job_def("nightly").execute_in_process(
            instance=instance, partition_key="2026-01-01", tags={"arctic/job": "j1"}
        )
        started, arrived, succeeded = read_all(DagsterLog(instance, location="here"))
        assert (started.status, succeeded.status) == (RunStatus.STARTED, RunStatus.SUCCESS)
        assert arrived.kind is EventKind.PARTITION
        assert (arrived.partition, arrived.bytes, arrived.rows) == ("2026-01-01", 7, 2)
        assert arrived.run_id == succeeded.run_id == result.run_id
        assert succeeded.subject == "nightly"
        assert succeeded.assets == ("rollup",)
        assert succeeded.tags["arctic/job"] == "j1"
        assert (started.partition, succeeded.partition) == ("2026-01-01", "2026-01-01")
        assert succeeded.started
        assert succeeded.keys == (
            "run:here:job:nightly:success",
            "run:here:asset:rollup:success",
            "run:*:job:nightly:success",
            "run:*:asset:rollup:success",
        )

    def test_a_failed_run_is_announced_with_its_tags(self, instance: DagsterInstance) -> None:
        """A job without assets: start and failure."""
        stumbling.execute_in_process(instance=instance, raise_on_error=False)
        started, failed = read_all(DagsterLog(instance))
        assert started.status is RunStatus.STARTED
        assert failed.status is RunStatus.FAILURE
        assert (failed.subject, failed.assets, failed.location) == ("stumbling", (), None)
        assert failed.partition is None
        assert failed.tags["team"] == "ops"

    def test_a_run_that_never_left_the_queue_says_so(self, instance: DagsterInstance) -> None:
        """Enqueued, then failed before it started: location and selection from its record."""
        run = queued_run("lake")
        instance.add_run(run)
        instance.report_dagster_event(
            dg.DagsterEvent(
                event_type_value="PIPELINE_ENQUEUED", job_name="nightly", message="queued"
            ),
            run_id=run.run_id,
        )
        instance.report_run_failed(run, "the process was lost")
        queued, failed = read_all(DagsterLog(instance, location="here"))
        assert (queued.status, failed.status) == (RunStatus.QUEUED, RunStatus.FAILURE)
        assert not failed.started
        assert failed.location == "lake"
        assert failed.assets == ("a/b",)

    def test_runs_of_a_location_with_a_fixed_name_are_reported_under_that_name(
        self, instance: DagsterInstance
    ) -> None:
        """Dagster's ``code`` is kept as ``lake``; another location, and one named lake, stay."""
        for location in ("code", "other", "lake"):
            run = instance.add_run(queued_run(location))
            instance.report_run_failed(run, "the process was lost")
        stumbling.execute_in_process(instance=instance, raise_on_error=False)
        log = DagsterLog(instance, location="lake", known_as="code")
        failed = [event for event in read_all(log) if event.status is RunStatus.FAILURE]
        assert [event.location for event in failed] == ["lake", "other", "lake", "lake"]
        assert failed[0].keys == (
            "run:lake:job:nightly:failure",
            "run:lake:asset:a/b:failure",
            "run:*:job:nightly:failure",
            "run:*:asset:a/b:failure",
        )
        unnamed = DagsterLog(instance, location="lake")
        failed = [event for event in read_all(unnamed) if event.status is RunStatus.FAILURE]
        assert [event.location for event in failed] == ["code", "other", "lake", "lake"]

    def test_a_run_whose_record_is_gone_is_still_an_event(self, instance: DagsterInstance) -> None:
        """The record was deleted, the log was not: the event says what is missing."""
        result = stumbling.execute_in_process(instance=instance, raise_on_error=False)
        instance.run_storage.delete_run(result.run_id)
        _, failed = read_all(DagsterLog(instance))
        assert failed.status is RunStatus.FAILURE
        assert failed.subject == "stumbling"
        assert failed.problem is not None
        assert "expected a run that is still in Dagster's storage" in failed.problem

    def test_runs_are_found_by_id_and_by_tag(self, instance: DagsterInstance) -> None:
        """Two runs of one tag value, one of another; an unknown id is left out."""
        ids = [
            stumbling.execute_in_process(
                instance=instance, raise_on_error=False, tags={"arctic/job": value}
            ).run_id
            for value in ("j1", "j1", "j2")
        ]
        log = DagsterLog(instance)
        views = log.run_statuses([*ids, "unknown"])
        assert sorted(views) == sorted(ids)
        view = views[ids[0]]
        assert (view.status, view.job, view.started) == (RunStatus.FAILURE, "stumbling", True)
        assert view.tags["arctic/job"] == "j1"
        assert view.started_at is not None
        assert view.ended_at is not None
        assert view.started_at <= view.ended_at
        by_tag = log.runs_by_tag("arctic/job", ["j1", "j2", "j3"])
        assert {value: [v.run_id for v in found] for value, found in by_tag.items()} == {
            "j1": ids[:2],
            "j2": ids[2:],
        }
        assert log.run_statuses([]) == {}
        assert log.runs_by_tag("k", []) == {}


class TestStorageId:
    """Each storage of Dagster has an id of its own."""

    def test_all_who_read_a_storage_know_it_by_one_id(self, instance: DagsterInstance) -> None:
        """A second log, a second instance of one home, and Dagster itself say the same."""
        first = DagsterLog(instance).storage_id
        assert first
        assert DagsterLog(instance).storage_id == first
        with DagsterInstance.from_config(instance.root_directory) as again:
            assert DagsterLog(again).storage_id == first
        storage: Any = instance.run_storage
        while isinstance(storage, LegacyRunStorage):
            storage = storage._storage.run_storage
        assert storage.get_run_storage_id() == first

    def test_two_storages_have_two(
        self, backend: str, dagster_instance: Callable[[str], DagsterInstance]
    ) -> None:
        """Two homes, or two databases of one server."""
        one, other = dagster_instance(backend), dagster_instance(backend)
        assert DagsterLog(one).storage_id != DagsterLog(other).storage_id

    def test_it_is_not_requested_before_it_is_needed(self, instance: DagsterInstance) -> None:
        """Making a log, and reading it, gives the storage no id; the second answer is kept."""
        log = DagsterLog(instance)
        read_all(log)
        with log._runs.session() as run:
            assert run("select count(*) from instance_info") == [(0,)]
        assert log.storage_id
        log.close()
        instance.dispose()
        assert log.storage_id


def test_a_position_stays_what_it_was_while_nothing_is_new(instance: DagsterInstance) -> None:
    """Also after it was stored: an idle tick writes nothing."""
    instance.report_runless_asset_event(dg.AssetMaterialization("a", partition="1"))
    log = DagsterLog(instance)
    position = log.read(None, 10).position
    for _ in range(2):
        position = log.read(position, 10).position
    stored = Position.from_json(position.to_json())
    assert log.read(stored, 10).position == stored
