"""What schedules and sensors become: of partitioned jobs, and in zones whose clocks change."""

from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import dagster as dg
import pytest
import yaml

from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.partitioning.windows import last_ended
from arctic_orchestration.schedules.dagster.adoption.drafts import Drafted, drafts_of
from arctic_orchestration.schedules.dagster.adoption.functions import request_of
from arctic_orchestration.schedules.dagster.adoption.python_form import imports_of
from arctic_orchestration.schedules.dagster.request_hooks import RequestContext

NOW = datetime(2026, 3, 2, tzinfo=UTC)
NEW_YORK = "America/New_York"
DAYS = dg.DailyPartitionsDefinition("2026-01-01", timezone=NEW_YORK)


@dg.op
def step() -> None: ...


@dg.job
def plain() -> None:
    step()


@dg.job(partitions_def=DAYS)
def of_days() -> None:
    step()


@dg.job(partitions_def=DAYS)
def earlier() -> None:
    step()


def local_hour(context: dg.ScheduleEvaluationContext) -> dict[str, str]:
    return {"hour": f"{context.scheduled_execution_time:%d %H %z}"}


def evening(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=f"evening_{job.name}",
        job=job,
        cron_schedule="0 22 * * *",
        execution_timezone=NEW_YORK,
        tags_fn=local_hour,
    )


def arrival(job: dg.JobDefinition) -> dg.AssetSensorDefinition:
    @dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=job, name=f"arrival_{job.name}")
    def sensor(context: dg.SensorEvaluationContext) -> None: ...

    return sensor


def success(job: dg.JobDefinition) -> dg.RunStatusSensorDefinition:
    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        monitored_jobs=[earlier if job is of_days else plain],
        request_job=job,
        name=f"success_{job.name}",
    )
    def sensor(context: dg.RunStatusSensorContext) -> None: ...

    return sensor


def drafted() -> dict[str, Drafted]:
    hourly = dg.ScheduleDefinition(
        name="hourly", job=plain, cron_schedule="30 * * * *", execution_timezone=NEW_YORK
    )
    defs = dg.Definitions(
        assets=[dg.AssetSpec("raw", partitions_def=DAYS)],
        jobs=[plain, of_days, earlier],
        schedules=[hourly, evening(plain), evening(of_days)],
        sensors=[made(job) for made in (arrival, success) for job in (plain, of_days)],
    )
    return {one.name: one for one in drafts_of(defs.get_repository_def(), NOW)}


def test_an_hour_that_comes_twice_is_no_difference() -> None:
    """In November there are two ticks at 01:30, which equal no moment of another zone."""
    hourly = drafted()["hourly"]
    assert (hourly.outcome.value, hourly.draft.reasons) == ("exact", [])


@pytest.mark.parametrize("expression", ["0 * * * *", "*/5 * * * *", "0 21 * * *", "0 22 * * *"])
@pytest.mark.parametrize("now", [NOW, datetime(2026, 3, 2, 2, tzinfo=UTC)])
def test_the_comparison_may_begin_at_a_tick(expression: str, now: datetime) -> None:
    """At the moment itself, or four hours before clocks change."""
    schedule = dg.ScheduleDefinition(
        name="ticks", job=plain, cron_schedule=expression, execution_timezone=NEW_YORK
    )
    defs = dg.Definitions(jobs=[plain], schedules=[schedule])
    (found,) = drafts_of(defs.get_repository_def(), now)
    assert (found.outcome.value, found.draft.reasons) == ("exact", [])


@pytest.mark.parametrize("path", [["x/y"], ["x", "y"]])
def test_keys_that_have_one_name_for_triggers_are_not_possible(path: list[str]) -> None:
    """Both would arrive as x/y, and the sensor's function is for one of them."""

    @dg.asset_sensor(asset_key=dg.AssetKey(path), job=plain, name="arrival")
    def sensor(context: dg.SensorEvaluationContext) -> None: ...

    assets = [dg.AssetSpec(["x/y"]), dg.AssetSpec(["x", "y"])]
    defs = dg.Definitions(assets=assets, jobs=[plain], sensors=[sensor])
    (found,) = drafts_of(defs.get_repository_def(), NOW)
    assert found.outcome.value == "not possible"
    assert found.draft.reasons[0].startswith("asset_key: ")


@pytest.mark.parametrize("blocking", [False, True])
def test_an_arrival_may_wait_for_a_blocking_check(blocking: bool) -> None:
    """Dagster evaluates its sensor also if the check of the materialization has failed."""

    @dg.asset_check(asset="raw", blocking=blocking)
    def rows() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    defs = dg.Definitions(
        assets=[dg.AssetSpec("raw")], asset_checks=[rows], jobs=[plain], sensors=[arrival(plain)]
    )
    (found,) = drafts_of(defs.get_repository_def(), NOW)
    reason = "an arrival of raw whose blocking check has failed counts when the check passes"
    assert found.draft.reasons == ([reason] if blocking else [])
    assert found.outcome.value == ("approximate" if blocking else "exact")


def test_a_selection_without_checks_is_approximate() -> None:
    """A run of assets evaluates all of their checks here."""

    @dg.asset
    def raw() -> None: ...

    @dg.asset_check(asset=raw)
    def rows() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    whole = dg.AssetSelection.assets(raw)
    targets = {"whole": whole, "without": whole.without_checks()}
    schedules = [
        dg.ScheduleDefinition(name=name, target=target, cron_schedule="0 4 * * *")
        for name, target in targets.items()
    ]
    defs = dg.Definitions(assets=[raw], asset_checks=[rows], schedules=schedules)
    with_checks, without = drafts_of(defs.get_repository_def(), NOW)
    assert (with_checks.outcome.value, with_checks.draft.reasons) == ("exact", [])
    assert without.outcome.value == "approximate"
    assert without.draft.reasons == ["target: only runs here evaluate the check rows of raw"]


def test_a_sensor_may_have_a_selection_of_assets() -> None:
    """Such a sensor has no job, and requests runs."""

    @dg.asset
    def raw() -> None: ...

    @dg.sensor(asset_selection=dg.AssetSelection.assets(raw))
    def files(context: dg.SensorEvaluationContext) -> None: ...

    (found,) = drafts_of(dg.Definitions(assets=[raw], sensors=[files]).get_repository_def(), NOW)
    assert found.outcome.value == "approximate"
    assert found.schedule is not None
    assert found.schedule.target.assets == ("raw",)


def partitioned(days: dg.PartitionsDefinition[Any]) -> Drafted:
    @dg.job(partitions_def=days)
    def of_these() -> None:
        step()

    schedule = dg.build_schedule_from_partitioned_job(of_these, name="each", hour_of_day=2)
    defs = dg.Definitions(jobs=[of_these], schedules=[schedule])
    (found,) = drafts_of(defs.get_repository_def(), NOW)
    return found


def test_runs_of_several_partitions_at_a_tick_are_not_possible() -> None:
    """Each job would fail: its function requests a run for each region."""
    regions = dg.StaticPartitionsDefinition(["north", "south"])
    found = partitioned(dg.MultiPartitionsDefinition({"day": DAYS, "region": regions}))
    assert found.outcome.value == "not possible"
    assert found.draft.reasons[0].startswith("it requests runs of several partitions of of_these")


@pytest.mark.parametrize("ahead", [-2, 0, 1, 3])
def test_a_partitioned_schedule_runs_the_partition_that_dagster_runs(ahead: int) -> None:
    """The last one that exists: with an end_offset, it is not the last that ended."""
    days = dg.DailyPartitionsDefinition("2026-01-01", timezone=NEW_YORK, end_offset=ahead)
    found = partitioned(days)
    assert (found.outcome.value, found.draft.reasons, found.hook) == ("exact", [], None)
    assert found.draft.form is not None
    cron = found.draft.form["trigger"]["cron"]
    with dg.build_schedule_context(scheduled_execution_time=NOW) as context:
        (request,) = found.definition.evaluate_tick(context).run_requests
    assert last_ended(days, NOW, cron.get("offset", 0)) == request.partition_key
    assert cron["partition"] == "last_ended"


def test_a_partition_that_is_another_one_at_the_end_is_a_difference() -> None:
    """Behind the end of the partitions, Dagster runs the last one at each tick."""
    days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-12-01", end_offset=1)
    found = partitioned(days)
    assert found.outcome.value == "approximate"
    expected = "partition: at 2026-12-01 02:00:00Z Dagster runs 2026-11-30, this trigger none"
    assert found.draft.reasons == [expected]


def test_ticks_of_excluded_windows_are_left_to_the_function() -> None:
    """Dagster skips them; the last window that is not excluded would run once more."""
    found = partitioned(dg.DailyPartitionsDefinition("2026-01-01", exclusions=["0 0 * * 6"]))
    assert (found.outcome.value, found.hook) == ("exact", "request_of(each)")


def test_sensors_of_partitioned_jobs_run_each_partition() -> None:
    """A schedule gets the partition from the event; a function may request that one."""
    found = drafted()
    forms = {name: one.draft.form or {} for name, one in found.items()}
    for kind in ("arrival", "success"):
        assert forms[f"{kind}_of_days"]["partitions"] == "each"
        assert "partitions" not in forms[f"{kind}_plain"]
        assert found[f"{kind}_of_days"].outcome.value == "exact"
    assert found["evening_plain"].outcome.value == "exact"
    assert found["evening_of_days"].outcome.value == "approximate"


def test_what_has_no_partition_makes_no_run_of_a_partitioned_job() -> None:
    """In Dagster the function may request any partition; ours has that of the event."""

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS, monitored_jobs=[plain, earlier], request_job=of_days
    )
    def ended(context: dg.RunStatusSensorContext) -> None: ...

    @dg.asset
    def raw() -> None: ...

    sensors = [ended, arrival(of_days)]
    defs = dg.Definitions(assets=[raw], jobs=[plain, of_days, earlier], sensors=sensors)
    for one, name in zip(drafts_of(defs.get_repository_def(), NOW), ["raw", "plain"], strict=True):
        assert one.outcome.value == "approximate"
        assert f"request one for what has none, as {name}; " in one.draft.reasons[0]


def test_the_function_of_a_schedule_reads_the_clock_of_its_zone() -> None:
    """Ten in the evening in New York is three of the next day in UTC."""
    hook: Callable[[RequestContext], Any] = request_of(evening(plain))
    three = datetime(2026, 3, 5, 3, tzinfo=UTC)
    with dg.instance_for_test() as instance:
        context = RequestContext(
            schedule="evening",
            job_id="1",
            fired_at=None,
            trigger="",
            partition=None,
            partition_range=None,
            events=(Event(kind=EventKind.TICK, subject="evening", at=three),),
            properties={},
            run_config={},
            tags={},
            instance=instance,
            repository=dg.Definitions(jobs=[plain]).get_repository_def(),
        )
        assert hook(context).tags["hour"] == "04 22 -0500"


def test_the_python_of_each_is_complete_with_its_imports() -> None:
    """Below the imports, and where the functions of Dagster are known, it makes the schedule."""
    found = [one for one in drafted().values() if one.name != "success_plain"]
    known = {one.name: one.definition for one in found}
    for one in found:
        assert one.python is not None, one.draft.reasons
        exec(imports_of([one.python]), known)
        made = eval(one.python, known)
        assert one.schedule is not None
        assert made.to_form() == one.schedule.to_form(), one.name
        assert (made.request is not None) == (one.hook is not None)


class Mode(StrEnum):
    FULL = "full"


def test_what_is_printed_has_what_is_stored() -> None:
    """The code has members of an enum and an ordered mapping; a file has text and plain ones."""
    config = {"ops": OrderedDict({"step": {"config": {"mode": Mode.FULL}}})}
    schedule = dg.ScheduleDefinition(
        name="s", job=plain, cron_schedule="@daily", run_config=config, tags={"mode": Mode.FULL}
    )
    defs = dg.Definitions(jobs=[plain], schedules=[schedule])
    (one,) = drafts_of(defs.get_repository_def(), NOW)
    ((form,),) = yaml.safe_load(str(one.yaml)).values()
    assert form["run_config"] == {"ops": {"step": {"config": {"mode": "full"}}}}
    assert form["tags"] == {"mode": "full"}
    assert "run_config={'ops': {'step': {'config': {'mode': 'full'}}}}" in str(one.python)


def test_imports_are_those_that_are_used() -> None:
    """What only a text says is no use."""
    target = "dg.AssetSelection.assets('on.cron', 'only')"
    calls = [f"Schedule(target={target}, request=request_of(on_arrival))", "Schedule()"]
    ours = "from arctic_orchestration import Schedule, request_of"
    assert imports_of(calls) == f"import dagster as dg\n\n{ours}"
    plain = "Schedule(trigger=on.cron(expression='@daily'), constraints=[only.idle(jobs=['a'])])"
    assert imports_of([plain]) == "from arctic_orchestration import Schedule, on, only"
