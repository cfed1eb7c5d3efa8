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
    """Assets, the Spark resource and the executor; opens no file, table or session.

    To be merged with ``Arctic(...).definitions()``, which bring the ``arctic`` resource.

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
    """Lets the tables that are fed day by day compact themselves meanwhile; opens nothing.

    A worker ends soon when nothing is left to merge, as it takes a place in the run queue.
    """
    return Compaction(
        tables=[spec.identifier for spec in (FLIGHTS, DELAYS_BY_ROUTE, WEATHER, DELAY_SUMMARY)],
        mode="run",
        interval_seconds=5,
        until_idle=timedelta(seconds=8),
        # Of the same properties, so that a JVM that was started for one run suits all of them.
        spark=_spark(),
    )


def _spark() -> LakeSparkResource:
    # A day has some thousand rows: two hundred tasks for each shuffle would be mostly empty.
    return pyspark_resource(properties={"spark.sql.shuffle.partitions": "4"})


def flights_freshness() -> Freshness:
    """The batch ``punctuality``, which needs tasks of the location ``reports``; opens nothing."""
    return Freshness(batches=[PUNCTUALITY], elsewhere=[NETWORK])
