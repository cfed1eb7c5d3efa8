"""The flights lake as Dagster definitions, without its schedules."""

import dagster as dg

from arctic_orchestration.flights.assets import (
    delay_summary,
    delays_by_route,
    flights,
    raw_flights,
    raw_weather,
    weather,
)
from arctic_orchestration.lake.spark_resource import pyspark_resource


def flights_definitions() -> dg.Definitions:
    """Assets, the Spark resource and the executor; opens no file, table or session.

    To be merged with ``Arctic(...).definitions()``, which bring the ``arctic`` resource.

    Steps of a run share its process, and so its Spark session: a cold one costs more than the work.
    """
    return dg.Definitions(
        assets=[raw_flights, raw_weather, flights, delays_by_route, weather, delay_summary],
        resources={"pyspark": pyspark_resource()},
        executor=dg.in_process_executor,
    )
