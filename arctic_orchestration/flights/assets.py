"""The assets of the flights lake. The package's docstring says why the partitions are cut so."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from arctic_orchestration import ArcticResource, lake
from arctic_orchestration.code_location.compaction.arrivals import TABLE
from arctic_orchestration.flights import rollups
from arctic_orchestration.flights.feeding import metadata_of
from arctic_orchestration.flights.feeds import FIRST_DAY, LAST_DAY, ORIGINS, Feed, FeedFile
from arctic_orchestration.flights.landing import LandedFile, Landing
from arctic_orchestration.flights.requested import (
    DAYS,
    days_filled_by,
    days_of,
    requested_partitions,
)
from arctic_orchestration.flights.source import FlightsSource
from arctic_orchestration.flights.tables import (
    DELAY_SUMMARY,
    DELAYS_BY_ROUTE,
    FLIGHTS,
    WEATHER,
    TableSpec,
    days_behind,
    files_in,
    rows_of,
    rows_of_days,
)
from arctic_orchestration.settings import Settings

days = dg.DailyPartitionsDefinition(
    start_date=FIRST_DAY.isoformat(),
    # Without an end, the days from 2014 to today would wait for files for ever.
    end_date=LAST_DAY.replace(year=LAST_DAY.year + 1, month=1, day=1).isoformat(),
)
feed_files = dg.MultiPartitionsDefinition(
    {"date": days, "origin": dg.StaticPartitionsDefinition(list(ORIGINS))}
)


def _file_set(feed: Feed, description: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=["raw", feed],
        partitions_def=feed_files,
        group_name="flights",
        kinds={"csv"},
        description=description,
    )
    def file_set(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        file = FeedFile.from_key(context.partition_key)
        content = FlightsSource.installed().file(feed, file)
        landed = Landing.of(Settings.from_environment()).land(feed, file, content)
        return dg.MaterializeResult(metadata=metadata_of(landed))

    return file_set


raw_flights = _file_set(
    "flights",
    "Landed files of departures, one a day and origin. Files announce themselves as they arrive; "
    "materializing a partition lands its file.",
)
raw_weather = _file_set(
    "weather",
    "Landed files of hourly weather, one a day and origin. Files announce themselves as they "
    "arrive; materializing a partition lands its file.",
)


class FeedFiles(dg.Config):
    """Run configuration of ``flights``; ``partitions`` are keys like ``2013-01-01|EWR``."""

    partitions: list[str] = Field(default_factory=list)


@dg.asset(
    deps=[raw_flights],
    group_name="flights",
    kinds={"spark", "iceberg"},
    metadata={TABLE: FLIGHTS.identifier},
)
def flights(
    context: dg.AssetExecutionContext,
    config: FeedFiles,
    arctic: ArcticResource,
    pyspark: LazyPySparkResource,
) -> dg.MaterializeResult[Any]:
    """All flights. A run brings in the files it is for; one that is for none, all that are missing.

    The rows of a file replace what the table had of its day and origin, in one commit.
    """
    landing = Landing.of(Settings.from_environment())
    table = _table(FLIGHTS)
    keys = config.partitions or requested_partitions(context, arctic)
    if keys:
        files = [landing.get("flights", FeedFile.from_key(key)) for key in sorted(set(keys))]
    else:
        present = files_in(table)
        files = [landed for landed in landing.landed("flights") if landed.file not in present]
    metadata = _extent(files)
    if files:
        replacing = rows_of(landed.file for landed in files)
        metadata |= _ingested(pyspark.spark_session, files, FLIGHTS, replacing)
    return dg.MaterializeResult(metadata=metadata)


@dg.asset(
    deps=[flights],
    partitions_def=days,
    backfill_policy=dg.BackfillPolicy.single_run(),
    output_required=False,
    group_name="flights",
    kinds={"spark", "iceberg"},
    metadata={TABLE: DELAYS_BY_ROUTE.identifier},
)
def delays_by_route(
    context: dg.AssetExecutionContext, arctic: ArcticResource, pyspark: LazyPySparkResource
) -> Iterator[dg.MaterializeResult[Any]]:
    """Flights, cancellations and delays of each route, a day at a time, computed anew as a whole.

    A run that was started by the end of a run of ``flights`` does the days which that one filled;
    a run that is for no day does all that are behind.
    """
    source, table = _table(FLIGHTS), _table(DELAYS_BY_ROUTE)
    wanted = (
        days_of(requested_partitions(context, arctic))
        or days_filled_by(context.instance, arctic.upstream_run_ids)
        or days_behind(source, table)
    )
    if not wanted:
        context.log.info("no day was asked for and none is behind: nothing to do")
        return
    only = rows_of_days(wanted)
    spark = pyspark.spark_session
    result = rollups.delays_by_route(lake.read(spark, source, row_filter=only))
    metadata = _replaced(spark, result, table, only)
    if context.has_partition_key or context.has_partition_key_range:
        yield dg.MaterializeResult(metadata=metadata)
        return
    # The run has no partition in Dagster, because no run has an arbitrary set of them.
    for day in wanted:
        rows = table.scan(row_filter=rows_of_days([day])).count()
        context.log_event(
            dg.AssetMaterialization(
                context.asset_key,
                partition=day.isoformat(),
                metadata={
                    "rows": rows,
                    "dagster/row_count": rows,
                    "table": DELAYS_BY_ROUTE.identifier,
                },
            )
        )


@dg.asset(
    deps=[raw_weather],
    group_name="flights",
    kinds={"spark", "iceberg"},
    metadata={TABLE: WEATHER.identifier},
)
def weather(pyspark: LazyPySparkResource) -> dg.MaterializeResult[Any]:
    """The hourly weather of all files that have landed, replaced as a whole."""
    files = Landing.of(Settings.from_environment()).landed("weather")
    metadata = _extent(files)
    if files:
        metadata |= _ingested(pyspark.spark_session, files, WEATHER, AlwaysTrue())
    return dg.MaterializeResult(metadata=metadata)


@dg.asset(
    deps=[delays_by_route, weather],
    group_name="flights",
    kinds={"spark", "iceberg"},
    metadata={TABLE: DELAY_SUMMARY.identifier},
)
def delay_summary(pyspark: LazyPySparkResource) -> dg.MaterializeResult[Any]:
    """Each day and origin so far: its routes together, beside the weather of the day."""
    spark = pyspark.spark_session
    result = rollups.delay_summary(
        lake.read(spark, _table(DELAYS_BY_ROUTE)), lake.read(spark, _table(WEATHER))
    )
    return dg.MaterializeResult(
        metadata=_replaced(spark, result, _table(DELAY_SUMMARY), AlwaysTrue())
    )


def _table(spec: TableSpec) -> Table:
    catalog = lake.open_catalog(Settings.from_environment())
    return lake.ensure_table(
        catalog,
        spec.identifier,
        spec.schema,
        partition_spec=spec.partition_spec,
        properties=spec.properties,
    )


def _extent(files: Sequence[LandedFile]) -> dict[str, Any]:
    return {
        DAYS: sorted({landed.file.day.isoformat() for landed in files}),
        "partitions": [landed.file.key for landed in files],
        "rows": 0,
    }


def _ingested(
    spark: SparkSession,
    files: Sequence[LandedFile],
    spec: TableSpec,
    replacing: BooleanExpression,
) -> dict[str, Any]:
    header = [name for name in spec.schema.column_names if name != "flight_date"]
    rows = rollups.landed_rows(spark, [landed.path for landed in files], spec.schema, header)
    metadata = _replaced(spark, rows, _table(spec), replacing)
    expected = sum(landed.rows for landed in files)
    if metadata["rows"] != expected:
        raise dg.Failure(
            f"{spec.identifier} took {metadata['rows']} rows from files that hold {expected} "
            "by their markers: land those files again and materialize once more"
        )
    return metadata


def _replaced(
    spark: SparkSession, rows: DataFrame, table: Table, replacing: BooleanExpression
) -> dict[str, Any]:
    # A table without partitions would get a file for each of Spark's, and its rows are few.
    few = rows if table.spec().fields else rows.coalesce(1)
    appended = lake.append(spark, few, table, replacing=replacing)
    return {
        "rows": appended.rows,
        "dagster/row_count": appended.rows,
        "bytes": appended.bytes,
        "snapshot": str(appended.snapshot_id),
        "table": ".".join(table.name()),
    }
