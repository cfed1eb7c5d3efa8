"""The flights lake as Dagster definitions, without its schedules."""

from datetime import timedelta

import dagster as dg

from arctic_orchestration import Compaction, Freshness
from arctic_orchestration.flights.assets import (
    delay_summary,
    delays_by_route,
    flights,
    raw_flights,
    raw_weather,
    weather,
)
from arctic_orchestration.flights.batches import NETWORK, PUNCTUALITY
from arctic_orchestration.flights.carriers import carrier_days
from arctic_orchestration.flights.nightly import nightly_summary
from arctic_orchestration.flights.tables import DELAY_SUMMARY, DELAYS_BY_ROUTE, FLIGHTS, WEATHER
from arctic_orchestration.lake.spark_resource import LakeSparkResource, pyspark_resource


def flights_definitions() -> dg.Definitions:
    """Returns assets, the Spark resource and the executor; opens no file, table or session.

    Merge them with ``Arctic(...).definitions()``, which contain the ``arctic`` resource.

    Steps of a run share its process, and so its Spark session: a cold one costs more than the work.
    """
    return dg.Definitions(
        assets=[
            raw_flights,
            raw_weather,
            flights,
            delays_by_route,
            weather,
            delay_summary,
            nightly_summary,
            carrier_days,
        ],
        resources={"pyspark": _spark()},
        executor=dg.in_process_executor,
    )


def flights_compaction() -> Compaction:
    """Returns the compaction of the tables that grow day by day; opens nothing.

    An idle worker ends soon, because it takes a slot in the run queue.
    """
    return Compaction(
        tables=[spec.identifier for spec in (FLIGHTS, DELAYS_BY_ROUTE, WEATHER, DELAY_SUMMARY)],
        mode="run",
        interval_seconds=5,
        until_idle=timedelta(seconds=8),
        # With the same properties, so that a JVM that was started for one run suits all of them.
        spark=_spark(),
    )


def _spark() -> LakeSparkResource:
    # A day has some thousand rows: two hundred tasks for each shuffle would be mostly empty.
    return pyspark_resource(properties={"spark.sql.shuffle.partitions": "4"})


def flights_freshness() -> Freshness:
    """Returns the batch ``punctuality``, which needs tasks of ``reports``; opens nothing."""
    return Freshness(batches=[PUNCTUALITY], elsewhere=[NETWORK])
