"""The code location whose daemon and code server the crash tests kill."""

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on

feeds = dg.DynamicPartitionsDefinition(name="feeds")
raw = dg.AssetSpec("raw/a", partitions_def=feeds)


@dg.asset(partitions_def=feeds)
def each_feed() -> None:
    """A run for each partition that arrived; its partitions are added by the same tick."""


@dg.op
def nothing() -> None:
    """Never executed: the launcher of these tests only says that a run began and ended."""


@dg.job
def pair() -> None:
    """A run for every two partitions."""
    nothing()


arctic = Arctic(
    schedules=[
        Schedule(
            name="each",
            target={"assets": ["each_feed"]},
            trigger=on.partitions("raw/a"),
            partitions="each",
            enabled=True,
        ),
        Schedule(name="pair", target=pair, trigger=on.partitions("raw/a", count=2), enabled=True),
    ],
    interval_seconds=1,
)
defs = dg.Definitions.merge(
    dg.Definitions(assets=[raw, each_feed], jobs=[pair]), arctic.definitions()
)
