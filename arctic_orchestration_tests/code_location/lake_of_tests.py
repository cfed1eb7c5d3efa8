"""A small code location, for tests that need a real one."""

import dagster as dg

from arctic_orchestration import Arctic, ArcticResource, Schedule, on, only

days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")
feeds = dg.DynamicPartitionsDefinition(name="feeds")
raw = dg.AssetSpec("raw/a", partitions_def=feeds)


@dg.asset(partitions_def=days, backfill_policy=dg.BackfillPolicy.single_run())
def daily(context: dg.AssetExecutionContext) -> None:
    """Makes the days it is requested."""
    context.log.info("days %s", context.partition_keys)


@dg.asset(partitions_def=feeds)
def each_feed(context: dg.AssetExecutionContext) -> None:
    """Makes one feed."""
    context.log.info("feed %s", context.partition_key)


@dg.op
def remember(context: dg.OpExecutionContext, arctic: ArcticResource) -> list[str]:
    """Logs what the run is for."""
    context.log.info("PARTITIONS %s", ",".join(arctic.partitions))
    context.log.info("COLOR %s", arctic.properties.get("color"))
    return arctic.partitions


@dg.job
def gather() -> None:
    """One run for all partitions that arrived."""
    remember()


arctic = Arctic(
    schedules=[
        Schedule(
            name="gather_three",
            target=gather,
            trigger=on.partitions("raw/a", count=3),
            properties={"color": "blue"},
            enabled=True,
        ),
        Schedule(
            name="a_day_each",
            target=dg.AssetSelection.assets("daily"),
            trigger=on.partitions("raw/a", where="2026-*"),
            partitions="each",
            enabled=True,
        ),
        Schedule(
            name="days_together",
            target={"assets": ["daily"]},
            trigger=on.partitions("raw/a", where="2026-*"),
            partitions="range",
            constraints=[only.concurrency(10)],
            enabled=True,
        ),
        Schedule(
            name="new_feeds",
            target={"assets": ["each_feed"]},
            trigger=on.partitions("raw/a", where="feed-*"),
            partitions="each",
            enabled=True,
        ),
    ]
)
defs = dg.Definitions.merge(
    dg.Definitions(assets=[raw, daily, each_feed], jobs=[gather]), arctic.definitions()
)
