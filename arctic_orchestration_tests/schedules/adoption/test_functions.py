"""The functions of Dagster's schedules and sensors decide here as they do in Dagster."""

from contextlib import nullcontext
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test
from dagster_shared.record import replace

from arctic_orchestration import Schedule, on, request_of
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.dagster.request_hooks import CodeHooks
from arctic_orchestration.schedules.request_hooks import Answer, Question
from arctic_orchestration_tests.schedules.adoption.project import LOCATION, START, Project
from arctic_orchestration_tests.schedules.adoption.test_cut_over import (
    SECONDS,
    cut_over,
    partitions_run,
    pass_after,
)


@pytest.mark.parametrize("location", [LOCATION, "elsewhere"])
@pytest.mark.parametrize("of_ours", [False, True])
def test_a_run_key_belongs_to_the_sensor_of_one_code_location(
    project: Project, location: str, of_ours: bool
) -> None:
    """A project deployed twice has two sensors of each name, whose run keys may be equal."""
    project.start("arrivals")
    project.daemon_pass()
    session, _ = cut_over(project, "arrivals")
    project.arrive("raw", "once")
    (record,) = project.instance.fetch_materializations(dg.AssetKey("raw"), limit=1).records
    key = str(record.storage_id - 1)
    tags = {"dagster/sensor_name": "arrivals", "dagster/run_key": key}
    if of_ours:
        tags = {"arctic/schedule": "arrivals", "adopted/run_key": key}
    origin = project.remote.get_full_job("watched").get_remote_origin()
    code = replace(origin.repository_origin.code_location_origin, location_name=location)
    repository = replace(origin.repository_origin, code_location_origin=code)
    create_run_for_test(
        project.instance,
        job_name="watched",
        tags=tags,
        remote_job_origin=replace(origin, repository_origin=repository),
    )
    pass_after(project, SECONDS)
    assert partitions_run(project) == ([] if location == LOCATION else [("once", "ours")])
    session.close()


@dg.asset
def first() -> None: ...


@dg.asset
def second() -> None: ...


both = dg.define_asset_job("both", selection=["first", "second"])
KEYS = {"first": [dg.AssetKey("first")], "all": [dg.AssetKey("first"), dg.AssetKey("second")]}


DAYS = dg.DailyPartitionsDefinition(start_date="2026-02-01", exclusions=["0 0 * * 3"])


@dg.op
def step() -> None: ...


@dg.job(partitions_def=DAYS)
def of_day() -> None:
    step()


@dg.resource
def url() -> str:
    return "lake"


@dg.resource(required_resource_keys={"url"})
def database(context: dg.InitResourceContext) -> str:
    return f"database of {context.resources.url}"


def answer(
    definition: Any,
    *,
    by_clock: bool,
    shadowed: bool = False,
    instance: dg.DagsterInstance | None = None,
    partition: str | None = None,
) -> Answer:
    """What the function of a schedule or an asset sensor decides about a job."""
    with nullcontext(instance) if instance else dg.instance_for_test() as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization("raw"))
        (record,) = instance.fetch_materializations(dg.AssetKey("raw"), limit=1).records
        kind = EventKind.TICK if by_clock else EventKind.PARTITION
        event = Event(kind=kind, subject="raw", at=START, storage_id=record.storage_id)
        definitions = dg.Definitions(
            assets=[first, second, dg.AssetSpec("raw")],
            jobs=[both, of_day],
            resources={"url": url, "database": database},
        )
        hook = request_of(definition)
        declared = Schedule(name="some", target="both", trigger=on.cron("0 4 * * *"), request=hook)
        hooks = CodeHooks([declared], lambda: instance, definitions.get_repository_def())
        return hooks.ask(
            Question(
                schedule="some", job_id="1", satisfied_at=START, trigger="",
                partition_start=partition, partition_end=partition, properties={}, run_config={},
                tags={}, events=[event], shadowed=shadowed,
            )
        )  # fmt: skip


@pytest.mark.parametrize("chosen", ["first", "all"])
@pytest.mark.parametrize("by_clock", [True, False])
def test_a_part_of_the_assets_is_not_requested_as_all_of_them(by_clock: bool, chosen: str) -> None:
    """The schedule decides about the assets; a function that wants other ones fails its job."""

    @dg.schedule(job=both, cron_schedule="0 4 * * *")
    def some(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        return dg.RunRequest(asset_selection=KEYS[chosen])

    @dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=both)
    def seen(context: dg.SensorEvaluationContext, entry: dg.EventLogEntry) -> dg.RunRequest:
        return dg.RunRequest(asset_selection=KEYS[chosen])

    found = answer(some if by_clock else seen, by_clock=by_clock)
    if chosen == "all":
        assert found.problem is None
    else:
        assert "asset_selection" in str(found.problem)


@pytest.mark.parametrize("by_clock", [True, False])
def test_stale_assets_are_not_requested_as_all_of_them(by_clock: bool) -> None:
    """Dagster makes a run of the stale ones alone, or none."""

    @dg.schedule(job=both, cron_schedule="0 4 * * *")
    def some(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        return dg.RunRequest(stale_assets_only=True)

    @dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=both)
    def seen(context: dg.SensorEvaluationContext, entry: dg.EventLogEntry) -> dg.RunRequest:
        return dg.RunRequest(stale_assets_only=True)

    found = answer(some if by_clock else seen, by_clock=by_clock)
    assert "its RunRequest has stale_assets_only" in str(found.problem)


def test_a_request_for_another_job_fails_with_the_reason() -> None:
    """Dagster refuses it, too; the schedule would run its own target."""

    @dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=both)
    def seen(context: dg.SensorEvaluationContext, entry: dg.EventLogEntry) -> dg.RunRequest:
        return dg.RunRequest(job_name="of_day")

    found = answer(seen, by_clock=False)
    assert "its RunRequest is for job of_day, and the schedule runs both" in str(found.problem)


@pytest.mark.parametrize("by_clock", [True, False])
def test_a_resource_of_a_function_may_need_another_one(by_clock: bool) -> None:
    """As in Dagster, which builds that first."""

    @dg.schedule(job=both, cron_schedule="0 4 * * *", required_resource_keys={"database"})
    def at_four(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        return dg.RunRequest(tags={"of": context.resources.database})

    @dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=both, required_resource_keys={"database"})
    def seen(context: dg.SensorEvaluationContext, entry: dg.EventLogEntry) -> dg.RunRequest:
        return dg.RunRequest(tags={"of": context.resources.database})

    found = answer(at_four if by_clock else seen, by_clock=by_clock)
    assert found.problem is None
    assert found.tags["of"] == "database of lake"


def test_no_job_is_the_first_tick_of_a_sensor() -> None:
    """A function that skips that would skip each arrival."""

    @dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=both)
    def seen(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if context.is_first_tick_since_sensor_start:
            return dg.SkipReason("it begins")
        return dg.RunRequest(tags={"of": str(context.repository_name)})

    found = answer(seen, by_clock=False)
    assert found.skipped is None
    assert found.tags["of"] == "__repository__"


@pytest.mark.parametrize("shadowed", [False, True])
def test_dynamic_partitions_of_a_result_are_added(shadowed: bool) -> None:
    """As Dagster adds them for its sensor. In shadow, Dagster alone does."""
    files = dg.DynamicPartitionsDefinition(name="files")

    @dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=both)
    def seen(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        add = files.build_add_request(["one"])
        return dg.SensorResult([dg.RunRequest()], dynamic_partitions_requests=[add])

    with dg.instance_for_test() as instance:
        found = answer(seen, by_clock=False, shadowed=shadowed, instance=instance)
        assert found.problem is None
        assert instance.get_dynamic_partitions("files") == ([] if shadowed else ["one"])


@dg.schedule(job=of_day, cron_schedule="0 4 * * *")
def of_function() -> dg.RunRequest:
    return dg.RunRequest(partition_key="2026-03-01")


@dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=of_day)
def of_sensor() -> dg.RunRequest:
    # As ``of_day.run_request_for_partition``, which is deprecated, makes it.
    return dg.RunRequest(partition_key="2026-03-01", tags={"dagster/partition": "2026-03-01"})


@pytest.mark.parametrize(
    "definition", [of_function, dg.build_schedule_from_partitioned_job(of_day), of_sensor]
)
def test_the_partition_of_a_job_may_be_requested(definition: Any) -> None:
    """Dagster adds the tags of a partition to its requests; ours gets them with its run."""
    by_clock = isinstance(definition, dg.ScheduleDefinition)
    found = answer(definition, by_clock=by_clock, partition="2026-03-01")
    assert found.problem is None
    assert "dagster/partition" not in found.tags
    other = answer(definition, by_clock=by_clock, partition="2026-02-28")
    assert "is of partition 2026-03-01, the job of 2026-02-28" in str(other.problem)


def test_a_partition_that_is_only_a_tag_is_refused() -> None:
    """The run would be of the job's partition, and another one is in its tags."""

    @dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=of_day)
    def tagged() -> dg.RunRequest:
        return dg.RunRequest(tags={"dagster/partition": "2026-03-01"})

    found = answer(tagged, by_clock=False, partition="2026-02-28")
    assert "tag dagster/partition: expected no tag" in str(found.problem)


def test_a_result_with_events_fails_its_job() -> None:
    """A crash before the decision is stored would lead to another call, and store them twice."""

    @dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=both)
    def seen(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        events = [dg.AssetMaterialization("first")]
        return dg.SensorResult([dg.RunRequest()], asset_events=events)

    assert "1 asset_events" in str(answer(seen, by_clock=False).problem)
