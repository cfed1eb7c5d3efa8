"""The first code location of the topology's test: orders, each batch of them in small files."""

import dagster as dg

from arctic_orchestration import Arctic, Compaction, Schedule, on
from arctic_orchestration.lake import open_catalog
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.compaction.small_lake import table_of

TABLE = "lake.orders"
FILES = 4
_MERGED_AT_ONCE = {
    "arctic.compaction.minor.min-files": str(FILES),
    "arctic.compaction.minor.interval": "1s",
    "arctic.compaction.check-interval": "1s",
    "arctic.compaction.commit-interval": "1s",
}


@dg.asset(metadata={"arctic/table": TABLE})
def orders() -> None:
    """Ten rows in each file."""
    table_of(open_catalog(Settings.from_environment()), TABLE, FILES, **_MERGED_AT_ONCE)


arctic = Arctic(
    schedules=[
        Schedule(
            name="orders",
            target=dg.AssetSelection.assets("orders"),
            trigger=on.partitions("raw/orders"),
            enabled=True,
        )
    ],
    compaction=Compaction(tables=[TABLE], mode="run", interval_seconds=1),
    interval_seconds=1,
)
defs = dg.Definitions.merge(
    arctic.definitions(),
    dg.Definitions(
        assets=[dg.AssetSpec(["raw", "orders"]), orders], executor=dg.in_process_executor
    ),
)
