"""An asset that takes what is new by a partition consumer: each carrier's days."""

from contextlib import closing
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from arctic_orchestration import PartitionConsumer
from arctic_orchestration.flights import rollups
from arctic_orchestration.flights.assets import raw_flights
from arctic_orchestration.flights.feeds import FeedFile
from arctic_orchestration.flights.landing import Landing
from arctic_orchestration.flights.tables import CARRIER_DAYS, FLIGHTS, rows_of
from arctic_orchestration.lake import append, ensure_table, open_catalog
from arctic_orchestration.settings import Settings

#: Landed files that ``carrier_days`` has not seen yet. Files land once, so trying again at once
#: helps only where the machine was at fault.
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

    A run brings in the files that have landed since the last one that succeeded, however many,
    and no other; runs that overlap divide them among themselves.
    """
    settings = Settings.from_environment()
    landing = Landing.of(settings)
    with closing(new_files.on(context.instance)) as consumer, consumer.consume() as partitions:
        files = [FeedFile.from_key(key) for key in sorted(partitions.keys)]
        metadata: dict[str, Any] = {"partitions": [file.key for file in files], "rows": 0}
        if files:
            spark = pyspark.spark_session
            paths = [landing.get("flights", file).path for file in files]
            header = [name for name in FLIGHTS.schema.column_names if name != "flight_date"]
            landed = rollups.landed_rows(spark, paths, FLIGHTS.schema, header)
            table = ensure_table(
                open_catalog(settings), CARRIER_DAYS.identifier, CARRIER_DAYS.schema
            )
            # Others may have them by now, if this process was stopped for long.
            partitions.check()
            # The rows of exactly these files are replaced: to write them twice changes nothing.
            rows = rollups.carrier_days(landed).coalesce(1)
            appended = append(spark, rows, table, replacing=rows_of(files))
            metadata |= {"rows": appended.rows, "snapshot": str(appended.snapshot_id)}
        metadata["progress"] = str(consumer.progress())
    return dg.MaterializeResult(metadata=metadata)
