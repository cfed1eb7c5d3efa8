"""What a run gets through the ``arctic`` resource."""

import json
import os
import subprocess
import sys

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.storage.dagster_run import DagsterRun
from dagster._core.utils import make_new_run_id

from arctic_orchestration import Arctic, ArcticResource, Schedule, on
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.code_location.lake_of_tests import defs


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_run_in_a_process_of_its_own_sees_exactly_its_partitions(place: Place) -> None:
    """Those of its job in the order of their arrival; and the schedule's properties."""
    place.tick(defs)
    place.announce("feed-2", "feed-1", "feed-2", "feed-3")
    (request,) = [r for r in place.tick(defs).run_requests or () if r.job_name == "gather"]
    place.announce("feed-4")
    place.tick(defs)
    module = "arctic_orchestration_tests.code_location.lake_of_tests"
    command = [sys.executable, "-m", "dagster", "job", "execute", "-m", module, "-j", "gather"]
    ran = subprocess.run(
        [*command, "--tags", json.dumps(place.tags_of(request))],
        env={**os.environ, "DAGSTER_HOME": place.instance.root_directory},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "PARTITIONS feed-2,feed-1,feed-3\n" in ran.stderr
    assert "COLOR blue\n" in ran.stderr
    place.tick(defs)
    states = [(name, state) for name, state, _ in place.states() if name == "gather_three"]
    assert states == [("gather_three", "succeeded"), ("gather_three", "waiting_trigger")]


def _recording_job(resources: list[ArcticResource]) -> dg.JobDefinition:
    @dg.op
    def listen(arctic: ArcticResource) -> None:
        assert arctic.events is arctic.events, "read once"
        resources.append(arctic)

    @dg.job
    def listener() -> None:
        listen()

    return listener


def _definitions(resources: list[ArcticResource], schedule: Schedule) -> dg.Definitions:
    return dg.Definitions.merge(
        dg.Definitions(assets=[dg.AssetSpec("raw/a")], jobs=[_recording_job(resources)]),
        Arctic(schedules=[schedule]).definitions(),
    )


def test_a_run_sees_the_events_with_their_metadata(place: Place) -> None:
    """Path, bytes and rows of each arrival."""
    resources: list[ArcticResource] = []
    schedule = Schedule(
        name="listen", target="listener", trigger=on.partitions("raw/a", count=2), enabled=True
    )
    definitions = _definitions(resources, schedule)
    place.tick(definitions)
    place.announce("1", path=dg.MetadataValue.path("/in/1"), bytes=100, rows=7)
    place.announce("2")
    (request,) = place.tick(definitions).run_requests or ()
    job = definitions.get_repository_def().get_job("listener")
    assert job.execute_in_process(instance=place.instance, tags=place.tags_of(request)).success
    (arctic,) = resources
    one, two = arctic.events
    assert (one.subject, one.partition, one.bytes, one.rows) == ("raw/a", "1", 100, 7)
    assert one.metadata["path"] == "/in/1"
    assert (two.partition, two.bytes, two.rows) == ("2", None, None)
    assert arctic.partitions == ["1", "2"]
    assert arctic.upstream_run_ids == []
    assert arctic.properties == {}
    assert (arctic.cause.schedule, arctic.cause.job_id) == ("listen", request.tags["arctic/job"])


def test_a_run_whose_job_is_not_in_the_database_does_not_go_without_partitions(
    place: Place,
) -> None:
    """Its process has another database, or the job is gone: it would succeed and read nothing."""
    job = _recording_job([])
    tags = {"arctic/job": "0190a7f3-0000", "arctic/schedule": "listen"}
    ended = job.execute_in_process(
        instance=place.instance,
        tags=tags,
        resources={"arctic": ArcticResource()},
        raise_on_error=False,
    )
    (failed,) = ended.filter_events(lambda event: event.is_step_failure)
    error = failed.step_failure_data.error
    assert error is not None
    assert "job 0190a7f3-0000 of this run is not in the state database" in str(error.cause)


@pytest.mark.filterwarnings("ignore:.*a run of its own that fails")
def test_a_run_sees_the_runs_it_came_after(place: Place) -> None:
    """The id of the run whose end made it; such an end is no partition."""
    resources: list[ArcticResource] = []
    schedule = Schedule(
        name="after",
        target="listener",
        trigger=on.run("listener", status="failure"),
        enabled=True,
    )
    definitions = _definitions(resources, schedule)
    place.tick(definitions)
    # A run that the daemon or the UI makes knows its code location.
    code = GrpcServerCodeLocationOrigin(host="127.0.0.1", port=1, location_name="local")
    repository = RemoteRepositoryOrigin(code, "__repository__")
    origin = RemoteJobOrigin(repository, "listener")
    run = DagsterRun(job_name="listener", run_id=make_new_run_id(), remote_job_origin=origin)
    place.instance.report_run_failed(place.instance.add_run(run))
    (request,) = place.tick(definitions).run_requests or ()
    job = definitions.get_repository_def().get_job("listener")
    assert job.execute_in_process(instance=place.instance, tags=place.tags_of(request)).success
    (arctic,) = resources
    assert arctic.upstream_run_ids == [run.run_id]
    assert arctic.partitions == []


def test_a_run_without_schedule_has_no_events(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And asks no database for it."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", "postgresql://127.0.0.1:1/nowhere")
    resources: list[ArcticResource] = []
    assert (
        _recording_job(resources)
        .execute_in_process(instance=place.instance, resources={"arctic": ArcticResource()})
        .success
    )
    (arctic,) = resources
    assert (arctic.events, arctic.partitions, dict(arctic.properties)) == ((), [], {})
    assert arctic.cause.schedule is None
