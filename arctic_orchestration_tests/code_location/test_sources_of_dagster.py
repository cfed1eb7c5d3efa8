"""A source that Dagster evaluates, too, or did so before."""

from collections.abc import Iterator

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from arctic_orchestration.clock import utc_now
from arctic_orchestration.state.source_tables import source_requests, sources
from arctic_orchestration_tests.code_location.conftest import Place
from arctic_orchestration_tests.code_location.source_sensors import asks, lake, takes, work


def test_a_sensor_that_dagster_runs_too_is_not_evaluated(place: Place) -> None:
    """Each request would be two runs; a stopped one may be among the definitions."""
    sensor = asks(dg.RunRequest(run_key="x"), default_status=dg.DefaultSensorStatus.RUNNING)
    definitions = lake([sensor], takes("files"), sensors=[sensor])
    assert not place.tick(definitions).run_requests
    ((note,),) = place.rows(sources, "note")
    assert "Dagster runs the sensor itself" in note
    stopped = asks(dg.RunRequest(run_key="x"))
    definitions = lake([stopped], takes("files"), sensors=[stopped])
    assert len(place.tick(definitions).run_requests or ()) == 1


HERE = RemoteRepositoryOrigin(
    InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="lake"), location_name="here"),
    "__repository__",
)


def dagsters(place: Place, status: InstigatorStatus, cursor: str) -> InstigatorState:
    """What Dagster's daemon has stored of its own sensor ``files``."""
    data = SensorInstigatorData(cursor=cursor, last_run_key="old")
    origin = HERE.get_instigator_origin("files")
    state = InstigatorState(origin, InstigatorType.SENSOR, status, data)
    return place.instance.add_instigator_state(state)


def run_of(place: Place, run_key: str, location: str = "here") -> None:
    """A run that a sensor ``files`` of a location has requested from Dagster."""
    code = InProcessCodeLocationOrigin(
        LoadableTargetOrigin(module_name="lake"), location_name=location
    )
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(code, "__repository__"), "work")
    tags = {"dagster/sensor_name": "files", "dagster/run_key": run_key}
    place.instance.create_run_for_job(work, tags=tags, remote_job_origin=origin)


def test_a_source_begins_where_dagster_was_stopped(place: Place) -> None:
    """At its cursor, and without the run keys of which it has made runs."""
    seen = []

    def first(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest]:
        seen.append((context.cursor, context.last_run_key))
        for key in ("before", "elsewhere", "new"):
            yield dg.RunRequest(run_key=key, tags={"key": key})

    sensor = asks(first, first)
    definitions = lake([sensor], takes("files"), sensors=[sensor])
    run_of(place, "before")
    run_of(place, "elsewhere", location="there")
    stored = dagsters(place, InstigatorStatus.RUNNING, "41")
    origin = HERE.code_location_origin
    assert not place.tick(definitions, origin).run_requests
    assert place.rows(sources, "cursor", "tick") == [(None, 0)]
    place.instance.update_instigator_state(stored.with_status(InstigatorStatus.STOPPED))
    made = place.tick(definitions, origin).run_requests or ()
    assert sorted(request.tags["key"] for request in made) == ["elsewhere", "new"]
    assert seen == [("41", "old")]
    keys = [("before",), ("elsewhere",), ("new",)]
    assert place.rows(source_requests, "run_key") == keys
    place.tick(definitions, origin)
    assert seen[1] == ("41", "new")
    assert len(place.states()) == 2


def test_a_source_waits_for_the_last_tick_of_dagster(place: Place) -> None:
    """What was begun before the stop may still request runs, and move the cursor."""
    sensor = asks(dg.RunRequest(run_key="x"))
    definitions = lake([sensor], takes("files"), sensors=[sensor])
    stored = dagsters(place, InstigatorStatus.STOPPED, "41")
    tick = place.instance.create_tick(
        TickData(
            stored.instigator_origin_id,
            "files",
            InstigatorType.SENSOR,
            TickStatus.STARTED,
            timestamp=utc_now().timestamp(),
            selector_id=stored.selector_id,
        )
    )
    origin = HERE.code_location_origin
    assert not place.tick(definitions, origin).run_requests
    ((note,),) = place.rows(sources, "note")
    assert "Dagster has not ended the last tick of the sensor" in note
    place.instance.update_tick(tick.with_status(TickStatus.SKIPPED))
    assert len(place.tick(definitions, origin).run_requests or ()) == 1
