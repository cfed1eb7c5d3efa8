"""The second code location of the topology's test: its asset follows one of the first."""

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on
from arctic_orchestration.lake import open_catalog
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.deployment.orders import TABLE


@dg.asset
def totals() -> dg.MaterializeResult[None]:
    """The number of orders."""
    table = open_catalog(Settings.from_environment()).load_table(TABLE)
    return dg.MaterializeResult(metadata={"rows": table.scan().count()})


arctic = Arctic(
    schedules=[
        Schedule(
            name="totals",
            target=dg.AssetSelection.assets("totals"),
            trigger=on.partitions("orders"),
            enabled=True,
        )
    ],
    interval_seconds=1,
)
defs = dg.Definitions.merge(
    arctic.definitions(),
    dg.Definitions(assets=[dg.AssetSpec("orders"), totals], executor=dg.in_process_executor),
)
