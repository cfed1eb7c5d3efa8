"""Spark's computations: rows of landed files, delays of a route, the summary of a day."""

from collections.abc import Sequence
from pathlib import Path

from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from arctic_orchestration.lake.schema import spark_schema
from arctic_orchestration.lake.table_reader import literal_path


def landed_rows(
    spark: SparkSession, paths: Sequence[Path], schema: Schema, header: Sequence[str]
) -> DataFrame:
    """Returns the rows of CSV files with the columns ``header``, in the columns of ``schema``.

    ``flight_date`` is made from year, month and day. A file with other columns, or a cell of
    another type, fails when the rows are read.
    """
    kinds = spark_schema(schema)
    columns = StructType([kinds[name] for name in header])
    read = spark.read.csv(
        [literal_path(str(path)) for path in paths],
        schema=columns,
        header=True,
        enforceSchema=False,
        mode="FAILFAST",
        nullValue="NA",
        timestampFormat="yyyy-MM-dd'T'HH:mm:ssX",
    )
    dated = read.withColumn("flight_date", F.make_date("year", "month", "day"))
    return dated.select(*schema.column_names)


def delays_by_route(flights: DataFrame) -> DataFrame:
    """Returns one row a day, origin and destination. A flight that never departed was cancelled."""
    return flights.groupBy("flight_date", "origin", "dest").agg(
        F.count("*").alias("flights"),
        F.count(F.when(F.col("dep_time").isNull(), 1)).alias("cancelled"),
        F.count("dep_delay").alias("departed"),
        F.count("arr_delay").alias("arrived"),
        F.sum("dep_delay").alias("total_dep_delay"),
        F.sum("arr_delay").alias("total_arr_delay"),
        F.avg("dep_delay").alias("mean_dep_delay"),
        F.avg("arr_delay").alias("mean_arr_delay"),
    )


def carrier_days(flights: DataFrame) -> DataFrame:
    """Returns one row a day, origin and carrier. A flight that never departed was cancelled."""
    return flights.groupBy("flight_date", "origin", "carrier").agg(
        F.count("*").alias("flights"),
        F.count(F.when(F.col("dep_time").isNull(), 1)).alias("cancelled"),
        F.sum("dep_delay").alias("total_dep_delay"),
    )


def delay_summary(routes: DataFrame, weather: DataFrame) -> DataFrame:
    """Returns one row a day and origin with flights; unknown weather is null."""
    delays = routes.groupBy("flight_date", "origin").agg(
        F.count("*").alias("routes"),
        F.sum("flights").alias("flights"),
        F.sum("cancelled").alias("cancelled"),
        # Null where nothing departed, as everywhere else, in any of Spark's ANSI modes.
        F.try_divide(F.sum("total_dep_delay"), F.sum("departed")).alias("mean_dep_delay"),
        F.try_divide(F.sum("total_arr_delay"), F.sum("arrived")).alias("mean_arr_delay"),
    )
    days = weather.groupBy("flight_date", "origin").agg(
        F.count("*").alias("weather_hours"),
        F.min("visib").alias("lowest_visibility"),
        F.max("wind_speed").alias("strongest_wind"),
    )
    return delays.join(days, ["flight_date", "origin"], "left")
