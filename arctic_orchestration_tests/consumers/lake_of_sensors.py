"""A code location whose sensors run assets, and a job, for each new day."""

import dagster as dg

from arctic_orchestration import PartitionConsumer, consumer_sensor
from arctic_orchestration_tests.consumers.dagster_assets import DAYS


@dg.asset(partitions_def=DAYS, check_specs=[dg.AssetCheckSpec("is_whole", asset="report")])
def report() -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster needs it bare
    """Of a day."""
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)])


@dg.asset(partitions_def=DAYS, deps=[report])
def summary() -> None:
    """Of its report."""


@dg.asset_check(asset=summary)
def is_short() -> dg.AssetCheckResult:
    """Whether people will read it."""
    return dg.AssetCheckResult(passed=True)


@dg.asset
def elsewhere() -> None:
    """Is not run by the sensor."""


named = dg.define_asset_job("named", selection=[report])

defs = dg.Definitions(
    assets=[report, summary, elsewhere],
    asset_checks=[is_short],
    jobs=[named],
    executor=dg.in_process_executor,
    sensors=[
        consumer_sensor(PartitionConsumer("days", name="all"), target=[report, summary]),
        consumer_sensor(
            PartitionConsumer("days", name="part"),
            target=[report, summary],
            request=lambda partition: dg.RunRequest(asset_selection=[summary.key]),
        ),
        consumer_sensor(PartitionConsumer("days", name="job"), target=named),
    ],
)
