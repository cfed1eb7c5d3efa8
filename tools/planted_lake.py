"""The code location of the home that ``planted_waits.py`` makes."""

from datetime import timedelta

import dagster as dg

from arctic_orchestration import Arctic, Freshness, Schedule, fresh_parents, on, only
from arctic_orchestration.clock import utc_now
from arctic_orchestration.schedules.constraints import ConstraintUnion

_FEEDS = (
    "marketplace_payouts", "supplier_prices", "invoices", "loyalty_events", "delivery_notes",
    "door_counters",
)  # fmt: skip
_JOBS = ("board_pack", "rebuild_customer_360", "train_demand_forecast")


@dg.op
def work() -> None:
    """Never runs."""


def _job(name: str) -> dg.JobDefinition:
    @dg.job(name=name)
    def made() -> None:
        work()

    return made


@fresh_parents({"raw/door_counters": 24}, freshness_hours=12, patience=timedelta(hours=20))
@dg.asset
def store_footfall() -> None:
    """Visitors of each store and hour."""


def _schedule(name: str, feed: str, *constraints: ConstraintUnion, count: int = 1) -> Schedule:
    return Schedule(
        name=name,
        target=name,
        trigger=on.partitions(f"raw/{feed}", count=count),
        constraints=constraints,
        enabled=True,
        suspend_mode="collect",
    )


_opens = utc_now() + timedelta(hours=10)
_window = only.window(f"{_opens:%H}:00", f"{_opens + timedelta(hours=5):%H}:00")
_schedules = [
    _schedule("settle_marketplace", "marketplace_payouts", count=12),
    _schedule("refresh_price_book", "supplier_prices", _window),
    _schedule("file_tax_statement", "invoices", only.rate(1, per="12h")),
    _schedule("credit_loyalty_points", "loyalty_events"),
]
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[dg.AssetSpec(f"raw/{feed}") for feed in _FEEDS],
        jobs=[_job(name) for name in (*_JOBS, *(schedule.name for schedule in _schedules))],
    ),
    Arctic(schedules=_schedules, freshness=Freshness(tasks=[store_footfall])).definitions(),
)
