"""The code location of ``benchmarks.latency``; the environment says which of its kinds it is."""

import os

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on

KIND = "ARCTIC_BENCH_KIND"
SPARK = "ARCTIC_BENCH_SPARK"


@dg.op
def step() -> None:
    """Nothing: what is measured is everything around it."""


@dg.op(required_resource_keys={"pyspark"})
def aggregate(context: dg.OpExecutionContext) -> None:
    """Adds up one partition of an Iceberg table, and commits the result to another."""
    import pyspark.sql.functions as F

    from arctic_orchestration import lake
    from arctic_orchestration.settings import Settings
    from arctic_orchestration_tests.lake.row_filters import EqualTo

    spark = context.resources.pyspark.spark_session
    catalog = lake.open_catalog(Settings.from_environment())
    part = EqualTo("part", 1)
    rows = lake.read(spark, catalog.load_table("bench.rows"), row_filter=part)
    result = rows.groupBy("part").agg(F.sum("value").alias("value"))
    lake.append(spark, result.coalesce(1), catalog.load_table("bench.sums"))


def prepare() -> None:
    """Makes the tables that ``aggregate`` reads and writes."""
    import pyarrow as pa

    from arctic_orchestration import lake
    from arctic_orchestration.settings import Settings

    catalog = lake.open_catalog(Settings.from_environment())
    catalog.create_namespace_if_not_exists("bench")
    rows = pa.table({"part": pa.array([n % 4 for n in range(100_000)], pa.int64()),
                     "value": pa.array(range(100_000), pa.int64())})  # fmt: skip
    table = catalog.create_table("bench.rows", rows.schema)
    with table.update_spec() as spec:
        spec.add_identity("part")
    table.append(rows)
    catalog.create_table("bench.sums", rows.schema)


@dg.job(executor_def=dg.in_process_executor)
def work() -> None:
    if os.environ.get(SPARK):
        aggregate()
    else:
        step()


def definitions() -> dg.Definitions:
    resources = {}
    if os.environ.get(SPARK):
        from arctic_orchestration.lake.spark_resource import pyspark_resource

        resources["pyspark"] = pyspark_resource()
    base = dg.Definitions(assets=[dg.AssetSpec(["raw", "a"])], jobs=[work], resources=resources)
    if os.environ.get(KIND) == "stock":

        @dg.asset_sensor(
            asset_key=dg.AssetKey(["raw", "a"]),
            job=work,
            minimum_interval_seconds=1,
            default_status=dg.DefaultSensorStatus.RUNNING,
        )
        def arrived(context: dg.SensorEvaluationContext) -> dg.RunRequest:
            return dg.RunRequest(run_key=context.cursor)

        return dg.Definitions.merge(base, dg.Definitions(sensors=[arrived]))
    schedule = Schedule(
        name="work", target=work, trigger=on.partitions("raw/a"), enabled=True, coalesce=False
    )
    return dg.Definitions.merge(base, Arctic(schedules=[schedule]).definitions())


defs = definitions()
