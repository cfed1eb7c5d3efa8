"""A code location whose schedules each say one sentence about days, for real runs.

The partitions of ``raw/…`` arrive from outside. What is made from them notes in its metadata which
partitions it was made from.
"""

import os
from pathlib import Path

import dagster as dg

from arctic_orchestration import Arctic, ArcticResource, Schedule, on

DAYS = dg.DailyPartitionsDefinition("2024-01-01")
HOURS = dg.HourlyPartitionsDefinition("2024-01-01-00:00")
REGIONS = dg.StaticPartitionsDefinition(["emea", "amer", "apac"])
#: the metadata that says which partitions arrived for a run
UPSTREAM = "upstream"
#: while this file is in ``DAGSTER_HOME``, the check of ``raw/invoices`` fails
NULLS = "nulls"

sources = [
    dg.AssetSpec(
        ["raw", "orders"],
        partitions_def=dg.MultiPartitionsDefinition({"date": DAYS, "region": REGIONS}),
    ),
    dg.AssetSpec(["raw", "hours"], partitions_def=HOURS),
    dg.AssetSpec(["raw", "sales"], partitions_def=DAYS),
    dg.AssetSpec(["raw", "payments"], partitions_def=DAYS),
    dg.AssetSpec(["raw", "refunds"], partitions_def=DAYS),
    dg.AssetSpec(["raw", "table"]),
    dg.AssetSpec(["raw", "gate"]),
    dg.AssetSpec(["raw", "marker"]),
]


@dg.asset(key=["raw", "invoices"], partitions_def=DAYS)
def invoices() -> None:
    """Its runs are those of the test."""


@dg.asset_check(asset=invoices, blocking=True)
def no_nulls() -> dg.AssetCheckResult:
    """Fails as long as the test says so."""
    return dg.AssetCheckResult(passed=not (Path(os.environ["DAGSTER_HOME"]) / NULLS).exists())


def _made(name: str, *sources: str, days: bool = True) -> dg.AssetsDefinition:
    """An asset of a day, or without partitions, that depends on others."""

    @dg.asset(
        name=name,
        deps=[dg.AssetKey.from_user_string(source) for source in sources],
        partitions_def=DAYS if days else None,
    )
    def made(arctic: ArcticResource) -> dg.MaterializeResult[None]:
        upstream = {asset: sorted(keys) for asset, keys in arctic.upstream_partitions.items()}
        return dg.MaterializeResult(metadata={UPSTREAM: upstream})

    return made


made = [
    _made("regions_of_day", "raw/orders"),
    _made("hours_of_day", "raw/hours"),
    _made("sales_paid", "raw/sales", "raw/payments"),
    _made("nightly"),
    _made("invoices_checked", "raw/invoices"),
    _made("refunds", "raw/refunds"),
    _made("refunds_in_ranges", "raw/refunds"),
    _made("four_commits", "raw/table", days=False),
    _made("marker", "raw/marker", days=False),
]
jobs = [
    dg.define_asset_job(f"{name}_job", selection=[name])
    for name in ("refunds", "refunds_in_ranges")
]


def _schedule(name: str, trigger: object, partitions: str = "each", job: bool = False) -> Schedule:
    target = f"{name}_job" if job else dg.AssetSelection.assets(name)
    return Schedule(name=name, target=target, trigger=trigger, partitions=partitions, enabled=True)


_refunds = on.partitions("raw/refunds") & on.partitions("raw/gate")
arctic = Arctic(
    schedules=[
        _schedule("regions_of_day", on.partitions("raw/orders", count="all")),
        _schedule("hours_of_day", on.partitions("raw/hours", count="all")),
        _schedule("sales_paid", on.partitions("raw/sales") & on.partitions("raw/payments")),
        _schedule("nightly", on.cron("0 2 * * *", catch_up="all", partition="last_ended")),
        _schedule("invoices_checked", on.partitions("raw/invoices")),
        _schedule("refunds", _refunds, job=True),
        _schedule("refunds_in_ranges", _refunds, "range", job=True),
        _schedule("four_commits", on.partitions("raw/table", count=4), "none"),
        _schedule("marker", on.partitions("raw/marker"), "none"),
    ],
    interval_seconds=1,
)
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[*sources, invoices, *made],
        asset_checks=[no_nulls],
        jobs=jobs,
        executor=dg.in_process_executor,
    ),
    arctic.definitions(),
)
