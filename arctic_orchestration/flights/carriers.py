"""An asset that reads new files by a partition consumer: each carrier's days."""

from contextlib import ExitStack, closing
from functools import cache
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from arctic_orchestration import PartitionConsumer, lake
from arctic_orchestration.flights import rollups
from arctic_orchestration.flights.assets import raw_flights
from arctic_orchestration.flights.feeds import OriginFile
from arctic_orchestration.flights.landing import Landing
from arctic_orchestration.flights.tables import CARRIER_DAYS, FLIGHTS, rows_of
from arctic_orchestration.settings import Settings

#: Landed files that ``carrier_days`` has not read yet. Files land once, so an immediate retry only
#: helps against errors of the machine.
new_files = PartitionConsumer(raw_flights, name="carrier_days")


@dg.asset(
    deps=[raw_flights],
    group_name="flights",
    kinds={"spark", "iceberg"},
)
def carrier_days(
    context: dg.AssetExecutionContext, pyspark: LazyPySparkResource
) -> dg.MaterializeResult[Any]:
    """Flights, cancellations and delays of each carrier, day and origin.

    A run reads the files that have landed since the last successful run, and no others; concurrent
    runs divide them among themselves. Failed files come one by one.
    """
    files: list[OriginFile] = []
    metadata: dict[str, Any] = {"rows": 0}
    with closing(new_files.on(context.instance)) as consumer:
        while taken := _bring_in(consumer, pyspark, metadata):
            files += taken
        metadata["partitions"] = sorted(file.key for file in files)
        metadata["progress"] = str(consumer.progress())
    return dg.MaterializeResult(metadata=metadata)


def _bring_in(
    consumer: PartitionConsumer, pyspark: LazyPySparkResource, metadata: dict[str, Any]
) -> list[OriginFile]:
    """Reads one block of files; none: nothing is new."""
    settings = Settings.from_environment()
    landing = Landing.of(settings)
    with consumer.consume() as partitions, ExitStack() as held:
        files = [OriginFile.from_key(key) for key in sorted(partitions.keys)]
        if not files:
            return []
        spark = pyspark.spark_session
        paths = [landing.get(file).path for file in files]
        header = [name for name in FLIGHTS.schema.column_names if name != "flight_date"]
        landed = rollups.landed_rows(spark, paths, FLIGHTS.schema, header)
        table = lake.ensure_table(
            lake.open_catalog(settings), CARRIER_DAYS.identifier, CARRIER_DAYS.schema
        )
        rows = rollups.carrier_days(landed).coalesce(1)
        # Once Spark has written its files, and not before, since others wait for it: from here on
        # no other run can take over, and the commit comes before the acknowledgement.
        acknowledging = cache(lambda: held.enter_context(partitions.acknowledging()))
        # The rows of exactly these files are replaced: after a crash between the two they are
        # delivered again, and a second write changes nothing.
        appended = lake.append(
            spark, rows, table, replacing=rows_of(files), before_commit=acknowledging
        )
        metadata["rows"] += appended.rows
        metadata["snapshot"] = str(appended.snapshot_id)
    return files
