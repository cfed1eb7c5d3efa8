"""Any job and any asset of the code location can be requested, whoever made the schedule."""

from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.remote_representation.external_data import RepositorySnap

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules import control, job_control
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration_tests.code_location.conftest import Place


@dg.op(config_schema={"letter": dg.Field(str, is_required=False)})
def nothing() -> None: ...


@dg.job
def work() -> None:
    nothing()


@dg.job
def down() -> None:
    nothing()


@dg.op(config_schema={"letter": str})
def post() -> None: ...


@dg.job
def mail() -> None:
    post()


@dg.asset
def whole() -> None: ...


def location(*declared: Schedule, **options: Any) -> dg.Definitions:
    """Three jobs and an asset, of which the declared schedules may name some or none."""
    return dg.Definitions.merge(
        dg.Definitions(assets=[dg.AssetSpec("raw/a"), whole], jobs=[work, down, mail]),
        Arctic(schedules=declared, numbers_every=None, **options).definitions(),
    )


def on_a(name: str, target: Any, **fields: Any) -> Schedule:
    given = {"trigger": on.partitions("raw/a"), "enabled": True, **fields}
    return Schedule(name=name, target=target, **given)


def apply(place: Place, *wanted: Schedule) -> None:
    """Applies schedules as ``arctic schedules apply`` does."""
    with place.database.begin() as tx:
        here = locations.locked(tx, "default", "local")
        control.apply(tx, ScheduleStore(), here, wanted, utc_now())


def requested(result: Any) -> list[tuple[str, str | None]]:
    """Schedule and job of each run request."""
    return sorted(
        (request.tags["arctic/schedule"], request.job_name) for request in result.run_requests
    )


@pytest.mark.parametrize("declared", [[], [on_a("declared", "work")]], ids=["none", "one"])
def test_a_schedule_applied_manually_may_name_any_job_or_asset(
    place: Place, declared: list[Schedule]
) -> None:
    """Also one that no schedule in the code names, and where the code declares no schedule."""
    defs = location(*declared)
    place.tick(defs)
    apply(place, on_a("a_job", "down"), on_a("an_asset", {"assets": ["whole"]}))
    place.announce("1")
    wanted = [("a_job", "down"), ("an_asset", "__ASSET_JOB")]
    assert requested(place.tick(defs)) == sorted(wanted + [("declared", "work")] * len(declared))


def test_a_declared_schedule_may_be_updated_to_another_job(place: Place) -> None:
    """Manually, while the code goes on naming the first one."""
    defs = location(on_a("s", "work"))
    place.tick(defs)
    apply(place, on_a("s", "down"))
    place.announce("1")
    assert requested(place.tick(defs)) == [("s", "down")]


def test_a_kept_schedule_may_name_what_the_code_no_longer_does(place: Place) -> None:
    """``update_schedules=False`` keeps the stored target."""
    place.tick(location(on_a("s", "down")))
    kept = location(on_a("s", "work"), update_schedules=False)
    place.tick(kept)
    place.announce("1")
    assert requested(place.tick(kept)) == [("s", "down")]


def test_dagster_accepts_requests_for_every_job() -> None:
    """The daemon submits a request if the sensor's snapshot names its job."""

    @dg.sensor(job=work)
    def another() -> None: ...

    others = dg.Definitions(sensors=[another])
    repository = dg.Definitions.merge(location(), others).get_repository_def()
    snaps = {snap.name: snap for snap in RepositorySnap.from_def(repository).sensors}
    targets = snaps["arctic_dispatcher"].target_dict
    assert {"work", "down", "mail", "__ASSET_JOB"} <= set(targets)
    assert all(name == target.job_name for name, target in targets.items())
    assert list(snaps["another"].target_dict) == ["work"]


def test_the_run_of_a_canceled_job_is_terminated(place: Place) -> None:
    """Its request was with Dagster when the job was canceled; the run stands in the queue."""
    defs = location(on_a("s", "work"))
    place.tick(defs)
    place.announce("1")
    (request,) = place.tick(defs).run_requests or ()
    with place.database.begin() as tx:
        here = locations.locked(tx, "default", "local")
        job_control.cancel_job(tx, here, request.tags["arctic/job"], utc_now())
    origin = RemoteJobOrigin(
        RemoteRepositoryOrigin(
            GrpcServerCodeLocationOrigin(host="127.0.0.1", port=1, location_name="local"),
            "__repository__",
        ),
        "work",
    )
    run = place.instance.create_run_for_job(
        work, tags=place.tags_of(request), remote_job_origin=origin
    )
    enqueued = dg.DagsterEvent(event_type_value="PIPELINE_ENQUEUED", job_name="work")
    place.instance.report_dagster_event(enqueued, run_id=run.run_id)
    assert place.tick(defs).run_requests == []
    ended = place.instance.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.CANCELED
    assert [state for _, state, _ in place.states()] == ["canceled"]


def test_a_run_whose_configuration_dagster_refuses_fails_its_job_alone(place: Place) -> None:
    """The daemon would find out after the tick has returned, and fail it with all its requests."""
    defs = location()
    place.tick(defs)
    apply(
        place,
        on_a("good", "work", run_config={"ops": {"nothing": {"config": {"letter": "dear"}}}}),
        on_a("lacking", "mail"),
        on_a("wrong", "work", run_config={"ops": {"nothing": {"config": {"lettre": "dear"}}}}),
    )
    place.announce("1")
    assert requested(place.tick(defs)) == [("good", "work")]
    failed = {name: reason for name, state, reason in place.states() if state == "failed"}
    assert 'Missing required config entry "ops"' in failed.pop("lacking")
    assert 'Received unexpected config entry "lettre"' in failed.pop("wrong")
    assert failed == {}
