"""A project with schedules and sensors of every kind, and ours beside them."""

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on, request_of

ASSETS = ("raw", "other")
#: without a request hook of ours
HOURLY, TWICE = "hourly", "twice"


DAYS = dg.DailyPartitionsDefinition(start_date="2026-02-01")


@dg.op
def step() -> None: ...


@dg.job
def hourly_report() -> None:
    step()


@dg.job(partitions_def=DAYS)
def daily_report() -> None:
    step()


@dg.job
def on_arrival() -> None:
    step()


@dg.job
def watched() -> None:
    step()


@dg.job
def after_watched() -> None:
    step()


daily = dg.build_schedule_from_partitioned_job(daily_report, name="daily")
hourly = dg.ScheduleDefinition(
    name=HOURLY, job=hourly_report, cron_schedule="0 * * * *", tags={"team": "ops"}
)
twice = dg.ScheduleDefinition(
    name=TWICE,
    job=hourly_report,
    cron_schedule=["15 6 * * *", "45 18 * * 1-5"],
    execution_timezone="America/New_York",
)


@dg.schedule(name="decided", job=hourly_report, cron_schedule="30 * * * *")
def decided(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    if context.scheduled_execution_time.hour % 2:
        return dg.SkipReason("an odd hour")
    return dg.RunRequest(tags={"hour": str(context.scheduled_execution_time.hour)})


@dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=on_arrival, minimum_interval_seconds=30)
def arrivals(context: dg.SensorEvaluationContext, entry: dg.EventLogEntry) -> dg.RunRequest:
    made = entry.asset_materialization
    assert made is not None
    return dg.RunRequest(run_key=context.cursor, tags={"partition_seen": str(made.partition)})


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    monitored_jobs=[watched],
    request_job=after_watched,
    minimum_interval_seconds=30,
)
def successes(context: dg.RunStatusSensorContext) -> dg.RunRequest:
    return dg.RunRequest(run_key=None, tags={"after": context.dagster_run.run_id})


@dg.run_failure_sensor(monitored_jobs=[watched])
def alarms(context: dg.RunFailureSensorContext) -> None:
    """Sends a message somewhere."""


@dg.multi_asset_sensor(monitored_assets=[dg.AssetKey("raw"), dg.AssetKey("other")], job=on_arrival)
def both(context: dg.MultiAssetSensorEvaluationContext) -> None: ...


@dg.sensor(job=on_arrival)
def files() -> dg.SkipReason:
    return dg.SkipReason("no file")


@dg.asset(deps=["raw"], automation_condition=dg.AutomationCondition.eager())
def derived() -> None: ...


arctic = Arctic(
    schedules=[
        Schedule(
            name="arrivals",
            target=on_arrival,
            trigger=on.partitions("raw"),
            request=request_of(arrivals),
        ),
        Schedule(
            name="successes",
            target=after_watched,
            trigger=on.run("watched"),
            coalesce=False,
            request=request_of(successes),
        ),
        Schedule(
            name="decided",
            target=hourly_report,
            trigger=on.cron("30 * * * *"),
            request=request_of(decided),
        ),
    ],
    numbers_every=None,
    schedule_assets=False,
)
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[derived, *(dg.AssetSpec(name) for name in ASSETS)],
        jobs=[hourly_report, daily_report, on_arrival, watched, after_watched],
        schedules=[daily, hourly, twice, decided],
        sensors=[arrivals, successes, alarms, both, files],
    ),
    arctic.definitions(),
)
