"""A code location whose schedules wait for an asset check and for a freshness policy."""

from datetime import timedelta

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on, only

orders = dg.AssetSpec(
    ["raw", "orders"],
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=1)),
)


@dg.asset_check(asset=orders.key)
def no_nulls() -> dg.AssetCheckResult:
    """Its evaluations are reported from outside."""
    return dg.AssetCheckResult(passed=True)


@dg.op
def nothing() -> None:
    pass


def _job(name: str) -> dg.JobDefinition:
    @dg.job(name=name)
    def made() -> None:
        nothing()

    return made


failed, stale, gated = (_job(name) for name in ("failed", "stale", "gated"))

arctic = Arctic(
    schedules=[
        Schedule(
            name="failed",
            target=failed,
            trigger=on.check("raw/orders", "no_nulls", status="failed"),
            enabled=True,
        ),
        Schedule(
            name="stale",
            target=stale,
            trigger=on.freshness("raw/orders", state="fail"),
            enabled=True,
        ),
        Schedule(
            name="gated",
            target=gated,
            trigger=on.partitions("raw/orders"),
            constraints=[only.checks_passed("raw/orders", recheck="1s")],
            enabled=True,
        ),
    ],
    interval_seconds=1,
)
defs = dg.Definitions.merge(
    dg.Definitions(assets=[orders], asset_checks=[no_nulls], jobs=[failed, stale, gated]),
    arctic.definitions(),
)
