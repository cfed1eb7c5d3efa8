"""The assets of the flights lake. The package's docstring explains their partitions."""

from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from arctic_orchestration import ArcticResource, lake
from arctic_orchestration.compaction.dagster.arrivals import TABLE
from arctic_orchestration.flights import rollups
from arctic_orchestration.flights.feeding import metadata_of
from arctic_orchestration.flights.feeds import (
    FIRST_DAY,
    LAST_DAY,
    ORIGINS,
    TIMEZONE,
    Feed,
    asset_of,
    file_of,
)
from arctic_orchestration.flights.landing import LandedFile, Landing
from arctic_orchestration.flights.source import FlightsSource
from arctic_orchestration.flights.tables import (
    DELAY_SUMMARY,
    DELAYS_BY_ROUTE,
    FLIGHTS,
    WEATHER,
    TableSpec,
    rows_by_day,
    rows_of_days,
)
from arctic_orchestration.settings import Settings

# Without an end, the days from 2014 to today would wait for files forever.
_END = LAST_DAY.replace(year=LAST_DAY.year + 1, month=1, day=1)

days = dg.DailyPartitionsDefinition(
    start_date=FIRST_DAY.isoformat(), end_date=_END.isoformat(), timezone=TIMEZONE
)
hours = dg.HourlyPartitionsDefinition(
    start_date=f"{FIRST_DAY.isoformat()}-00:00",
    end_date=f"{_END.isoformat()}-00:00",
    timezone=TIMEZONE,
)
origins_of_days = dg.MultiPartitionsDefinition(
    {"date": days, "origin": dg.StaticPartitionsDefinition(list(ORIGINS))}
)


def _file_set(
    feed: Feed, partitions: dg.PartitionsDefinition[Any], description: str
) -> dg.AssetsDefinition:
    @dg.asset(
        key=["raw", feed],
        partitions_def=partitions,
        group_name="flights",
        kinds={"csv"},
        description=f"{description} Files announce themselves as they arrive; materializing a "
        "partition lands its file.",
    )
    def file_set(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        file = file_of(feed, context.partition_key)
        content = FlightsSource.installed().file(file)
        landed = Landing.of(Settings.from_environment()).land(file, content)
        return dg.MaterializeResult(metadata=metadata_of(landed))

    return file_set


raw_flights = _file_set(
    "flights", origins_of_days, "Landed files of departures, one a day and origin."
)
raw_weather = _file_set(
    "weather", hours, "Landed files of weather, one an hour with all three origins."
)


@dg.asset(
    deps=[raw_flights],
    partitions_def=days,
    backfill_policy=dg.BackfillPolicy.single_run(),
    group_name="flights",
    kinds={"spark", "iceberg"},
    metadata={TABLE: FLIGHTS.identifier},
)
def flights(
    context: dg.AssetExecutionContext, arctic: ArcticResource, pyspark: LazyPySparkResource
) -> dg.MaterializeResult[Any]:
    """The flights of a day: the rows of its landed files replace those of the day."""
    files = _landed(context, arctic, "flights")
    return _ingested(context, pyspark.spark_session, files, FLIGHTS)


@dg.asset(
    deps=[raw_weather],
    partitions_def=days,
    backfill_policy=dg.BackfillPolicy.single_run(),
    group_name="flights",
    kinds={"spark", "iceberg"},
    metadata={TABLE: WEATHER.identifier},
)
def weather(
    context: dg.AssetExecutionContext, arctic: ArcticResource, pyspark: LazyPySparkResource
) -> dg.MaterializeResult[Any]:
    """The weather of a day: the rows of its landed hours replace those of the day.

    Hours belong to days by Dagster's `TimeWindowPartitionMapping`, its default for the two.
    """
    files = _landed(context, arctic, "weather")
    return _ingested(context, pyspark.spark_session, files, WEATHER)


@dg.asset(
    deps=[flights],
    partitions_def=days,
    backfill_policy=dg.BackfillPolicy.single_run(),
    group_name="flights",
    kinds={"spark", "iceberg"},
    metadata={TABLE: DELAYS_BY_ROUTE.identifier},
)
def delays_by_route(
    context: dg.AssetExecutionContext, pyspark: LazyPySparkResource
) -> dg.MaterializeResult[Any]:
    """Flights, cancellations and delays of each route on a day, recomputed as a whole."""
    spark, of_days = pyspark.spark_session, rows_of_days(_days(context))
    rows = rollups.delays_by_route(lake.read(spark, _table(FLIGHTS), row_filter=of_days))
    return _replaced(context, spark, rows, DELAYS_BY_ROUTE)


@dg.asset(
    deps=[delays_by_route, weather],
    partitions_def=days,
    backfill_policy=dg.BackfillPolicy.single_run(),
    group_name="flights",
    kinds={"spark", "iceberg"},
    metadata={TABLE: DELAY_SUMMARY.identifier},
)
def delay_summary(
    context: dg.AssetExecutionContext, pyspark: LazyPySparkResource
) -> dg.MaterializeResult[Any]:
    """Each origin on a day: its routes together, beside the weather of the same day."""
    spark, of_days = pyspark.spark_session, rows_of_days(_days(context))
    rows = rollups.delay_summary(
        lake.read(spark, _table(DELAYS_BY_ROUTE), row_filter=of_days),
        lake.read(spark, _table(WEATHER), row_filter=of_days),
    )
    return _replaced(context, spark, rows, DELAY_SUMMARY)


def _days(context: dg.AssetExecutionContext) -> list[date]:
    """Returns the days that a run is for: one, or those of a range."""
    return [date.fromisoformat(key) for key in context.partition_keys]


def _table(spec: TableSpec) -> Table:
    catalog = lake.open_catalog(Settings.from_environment())
    return lake.ensure_table(
        catalog,
        spec.identifier,
        spec.schema,
        partition_spec=spec.partition_spec,
        properties=spec.properties,
    )


def _landed(
    context: dg.AssetExecutionContext, arctic: ArcticResource, feed: Feed
) -> list[LandedFile]:
    """Returns the landed files of a run's days.

    Errors:
        NotFound: a file that was reported to the run's schedule has not landed.
        Failure: no file of one of the days has landed.
    """
    landing = Landing.of(Settings.from_environment())
    for key in arctic.upstream_partitions.get(asset_of(feed), ()):
        landing.get(file_of(feed, key))
    wanted = _days(context)
    files = landing.landed(feed, wanted)
    if without := sorted(set(wanted) - {landed.file.day for landed in files}):
        raise dg.Failure(
            f"no file of {asset_of(feed)} has landed for {', '.join(map(str, without))}: land them "
            "first, by materializing its partitions, and materialize once more"
        )
    return files


def _ingested(
    context: dg.AssetExecutionContext,
    spark: SparkSession,
    files: Sequence[LandedFile],
    spec: TableSpec,
) -> dg.MaterializeResult[Any]:
    header = [name for name in spec.schema.column_names if name != "flight_date"]
    rows = rollups.landed_rows(spark, [landed.path for landed in files], spec.schema, header)
    expected: Counter[date] = Counter()
    for landed in files:
        expected[landed.file.day] += landed.rows
    return _replaced(context, spark, rows, spec, expected)


def _replaced(
    context: dg.AssetExecutionContext,
    spark: SparkSession,
    rows: DataFrame,
    spec: TableSpec,
    expected: Counter[date] | None = None,
) -> dg.MaterializeResult[Any]:
    """Replaces the rows of a run's days in one commit, and reports each day to Dagster."""
    table, wanted = _table(spec), _days(context)
    # An unpartitioned table would get a file for each of Spark's partitions, and its rows are few.
    few = rows if table.spec().fields else rows.coalesce(1)
    appended = lake.append(spark, few, table, replacing=rows_of_days(wanted))
    if expected is not None and appended.rows != expected.total():
        raise dg.Failure(
            f"{spec.identifier} took {appended.rows} rows from files that hold {expected.total()} "
            "by their markers: land those files again and materialize once more"
        )
    for day, count in rows_by_day(table, wanted).items():
        context.add_asset_metadata(
            {"rows": count, "dagster/row_count": count}, partition_key=day.isoformat()
        )
    return dg.MaterializeResult(
        metadata={"snapshot": str(appended.snapshot_id), "table": spec.identifier}
    )
