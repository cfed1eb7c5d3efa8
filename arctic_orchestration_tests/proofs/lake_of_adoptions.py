"""A project with many schedules and sensors of Dagster, each with a schedule of ours beside it."""

import os

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on, request_of

#: how many of each kind: schedules, asset sensors, run status sensors
SIZES = "ARCTIC_PROOF_ADOPTIONS"
CRONS, ASSETS, WATCHERS = (int(size) for size in os.environ.get(SIZES, "2 2 1").split())


@dg.op
def step() -> None: ...


def _job(name: str) -> dg.JobDefinition:
    return dg.GraphDefinition(name=name, node_defs=[step]).to_job(name=name)


def _asset_sensor(number: int) -> dg.AssetSensorDefinition:
    @dg.asset_sensor(
        asset_key=dg.AssetKey(f"a{number}"),
        job_name=f"arrived{number}",
        name=f"sensor{number}",
        minimum_interval_seconds=20,
    )
    def sensor(context: dg.SensorEvaluationContext, entry: dg.EventLogEntry) -> dg.RunRequest:
        made = entry.asset_materialization
        assert made is not None
        return dg.RunRequest(run_key=context.cursor, tags={"upto": str(made.partition)})

    return sensor


def _watcher(number: int) -> dg.RunStatusSensorDefinition:
    @dg.run_status_sensor(
        name=f"watcher{number}",
        run_status=dg.DagsterRunStatus.SUCCESS,
        monitored_jobs=[JOBS[f"watched{number}"]],
        request_job=JOBS[f"after{number}"],
        minimum_interval_seconds=20,
    )
    def sensor(context: dg.RunStatusSensorContext) -> dg.RunRequest:
        return dg.RunRequest(run_key=None, tags={"after": context.dagster_run.run_id})

    return sensor


JOBS = {
    name: _job(name)
    for name in (
        *(f"report{number}" for number in range(CRONS)),
        *(f"arrived{number}" for number in range(ASSETS)),
        *(f"{kind}{number}" for number in range(WATCHERS) for kind in ("watched", "after")),
    )
}
SCHEDULES = [
    dg.ScheduleDefinition(
        name=f"cron{number}",
        job=JOBS[f"report{number}"],
        cron_schedule=f"{number * 7 % 60} * * * *",
    )
    for number in range(CRONS)
]
ASSET_SENSORS = [_asset_sensor(number) for number in range(ASSETS)]
RUN_SENSORS = [_watcher(number) for number in range(WATCHERS)]
NAMES = [
    *(each.name for each in SCHEDULES),
    *(each.name for each in ASSET_SENSORS),
    *(each.name for each in RUN_SENSORS),
]
arctic = Arctic(
    schedules=[
        *(
            Schedule(
                name=sensor.name,
                target=f"arrived{number}",
                trigger=on.partitions(f"a{number}"),
                request=request_of(sensor),
            )
            for number, sensor in enumerate(ASSET_SENSORS)
        ),
        *(
            Schedule(
                name=sensor.name,
                target=f"after{number}",
                trigger=on.run(f"watched{number}"),
                coalesce=False,
                request=request_of(sensor),
            )
            for number, sensor in enumerate(RUN_SENSORS)
        ),
    ],
    numbers_every=None,
    schedule_assets=False,
)
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[dg.AssetSpec(f"a{number}") for number in range(ASSETS)],
        jobs=list(JOBS.values()),
        schedules=SCHEDULES,
        sensors=[*ASSET_SENSORS, *RUN_SENSORS],
    ),
    arctic.definitions(),
)
