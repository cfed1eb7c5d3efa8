"""The flights lake as a team schedules it with Dagster alone, and ours beside it.

The files of a day of 2013 arrive on the same weekday of 2026, on whose Sunday clocks change, too.
"""

from collections.abc import Sequence
from datetime import date, timedelta

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on, request_of
from arctic_orchestration.flights.definitions import flights_definitions
from arctic_orchestration.flights.feeds import TIMEZONE, Feed, file_of, files_of

#: from 10 March 2013 to 8 March 2026
LATER = date(2026, 3, 8) - date(2013, 3, 10)
OFTEN = 30


def _of_asset(asset: str) -> dg.JobDefinition:
    job: dg.JobDefinition = dg.define_asset_job(  # type: ignore[assignment]
        f"make_{asset}", dg.AssetSelection.assets(asset)
    )
    return job


make_flights, make_weather = _of_asset("flights"), _of_asset("weather")
make_routes, make_summary = _of_asset("delays_by_route"), _of_asset("delay_summary")
make_night = _of_asset("nightly_summary")


@dg.op
def step() -> None: ...


@dg.job
def count_files() -> None:
    step()


@dg.job
def report_missing() -> None:
    step()


@dg.job
def alarm() -> None:
    step()


def _missing(instance: dg.DagsterInstance, day: date, feeds: Sequence[Feed]) -> list[str]:
    there = {
        feed: instance.get_materialized_partitions(dg.AssetKey(["raw", feed])) for feed in feeds
    }
    return [file.key for file in files_of([day], feeds) if file.key not in there[file.feed]]


def _landed(feed: Feed, job: dg.JobDefinition) -> dg.AssetSensorDefinition:
    @dg.asset_sensor(
        asset_key=dg.AssetKey(["raw", feed]),
        job=job,
        name=f"{feed}_landed",
        minimum_interval_seconds=OFTEN,
    )
    def sensor(
        context: dg.SensorEvaluationContext, entry: dg.EventLogEntry
    ) -> dg.RunRequest | dg.SkipReason:
        made = entry.asset_materialization
        assert made is not None
        day = file_of(feed, str(made.partition)).day
        missing = _missing(context.instance, day, [feed])
        if missing:
            return dg.SkipReason(f"{len(missing)} files of {day} are missing")
        return dg.RunRequest(run_key=day.isoformat(), partition_key=day.isoformat())

    return sensor


flights_landed, weather_landed = _landed("flights", make_flights), _landed("weather", make_weather)


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    monitored_jobs=[make_flights],
    request_job=make_routes,
    minimum_interval_seconds=OFTEN,
)
def flights_made(context: dg.RunStatusSensorContext) -> dg.RunRequest:
    return dg.RunRequest(run_key=None, partition_key=context.partition_key)


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    monitored_jobs=[make_routes, make_weather],
    request_job=make_summary,
    minimum_interval_seconds=OFTEN,
)
def routes_or_weather_made(context: dg.RunStatusSensorContext) -> dg.RunRequest | dg.SkipReason:
    day = context.partition_key
    for asset in ("delays_by_route", "weather"):
        if day not in context.instance.get_materialized_partitions(dg.AssetKey(asset)):
            return dg.SkipReason(f"no {asset} of {day}")
    return dg.RunRequest(run_key=day, partition_key=day)


@dg.run_failure_sensor(
    monitored_jobs=[make_night], request_job=alarm, minimum_interval_seconds=OFTEN
)
def night_failed(context: dg.RunFailureSensorContext) -> dg.RunRequest:
    return dg.RunRequest(run_key=None, tags={"failed": context.dagster_run.run_id})


hourly = dg.ScheduleDefinition(
    name="hourly",
    job=count_files,
    cron_schedule="30 * * * *",
    execution_timezone=TIMEZONE,
    tags={"team": "flights"},
)


#: on the Sunday, there is no such time
@dg.schedule(job=report_missing, cron_schedule="30 2 * * *", execution_timezone=TIMEZONE)
def missing_files(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    at = context.scheduled_execution_time
    day = at.date() - timedelta(days=1)
    missing = _missing(context.instance, day - LATER, ["flights", "weather"])
    if not missing:
        return dg.SkipReason(f"all files of {day} are there")
    return dg.RunRequest(tags={"missing": ", ".join(missing), "seen_at": at.isoformat()})


nightly: dg.ScheduleDefinition = dg.build_schedule_from_partitioned_job(  # type: ignore[assignment]
    make_night, name="nightly", hour_of_day=4
)
#: What ``arctic adopt NAME`` prints for each that has a function.
DECLARED = [
    Schedule(
        name="missing_files",
        target="report_missing",
        trigger=on.cron("30 2 * * *", timezone=TIMEZONE),
        request=request_of(missing_files),
    ),
    *(
        Schedule(
            name=sensor.name,
            target=job.name,
            trigger=on.partitions(f"raw/{feed}"),
            partitions="each",
            request=request_of(sensor),
        )
        for feed, job, sensor in (
            ("flights", make_flights, flights_landed),
            ("weather", make_weather, weather_landed),
        )
    ),
    Schedule(
        name="flights_made",
        target="make_delays_by_route",
        trigger=on.run("make_flights"),
        partitions="each",
        coalesce=False,
        request=request_of(flights_made),
    ),
    Schedule(
        name="routes_or_weather_made",
        target="make_delay_summary",
        trigger=on.run("make_delays_by_route") | on.run("make_weather"),
        partitions="each",
        coalesce=False,
        request=request_of(routes_or_weather_made),
    ),
    Schedule(
        name="night_failed",
        target="alarm",
        trigger=on.run("make_nightly_summary", status="failure"),
        coalesce=False,
        request=request_of(night_failed),
    ),
]
defs = dg.Definitions.merge(
    flights_definitions(),
    dg.Definitions(
        jobs=[
            *(make_flights, make_weather, make_routes, make_summary, make_night),
            *(count_files, report_missing, alarm),
        ],
        schedules=[hourly, missing_files, nightly],
        sensors=[
            flights_landed,
            weather_landed,
            flights_made,
            routes_or_weather_made,
            night_failed,
        ],
    ),
    Arctic(schedules=DECLARED, numbers_every=None, schedule_assets=False).definitions(),
)
