"""A project whose asset sensor requests the partition that has arrived."""

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on, request_of

DAYS = dg.DailyPartitionsDefinition(start_date="2026-02-01")


@dg.op
def step() -> None: ...


@dg.job(partitions_def=DAYS)
def of_day() -> None:
    step()


@dg.asset_sensor(asset_key=dg.AssetKey("raw"), job=of_day, minimum_interval_seconds=30)
def arrivals(context: dg.SensorEvaluationContext, entry: dg.EventLogEntry) -> dg.RunRequest:
    made = entry.asset_materialization
    assert made is not None
    return dg.RunRequest(run_key=context.cursor, partition_key=made.partition)


arctic = Arctic(
    schedules=[
        Schedule(
            name="arrivals",
            target=of_day,
            trigger=on.partitions("raw", late="ignore"),
            partitions="each",
            suspend_mode="backlog",
            request=request_of(arrivals),
        )
    ],
    numbers_every=None,
    schedule_assets=False,
)
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[dg.AssetSpec("raw", partitions_def=DAYS)], jobs=[of_day], sensors=[arrivals]
    ),
    arctic.definitions(),
)
