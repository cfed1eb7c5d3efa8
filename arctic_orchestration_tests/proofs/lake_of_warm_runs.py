"""The code location of ``test_warm_runs``: each run notes that its step began."""

import os
import time
from pathlib import Path
from typing import Any

import dagster as dg

from arctic_orchestration import Arctic, Schedule, on, pyspark_resource

#: the folder of the notes, in the environment
NOTES = "ARCTIC_TEST_NOTES"
#: the folder of the JVMs, in the environment: files named after the process of a run that has one
JVMS = "ARCTIC_TEST_JVMS"


def note(context: dg.OpExecutionContext) -> None:
    """Leaves a file whose name is the job, the run and its process."""
    job = context.run.tags["arctic/job"]
    # A run that is launched twice has one id.
    (Path(os.environ[NOTES]) / f"{job}.{context.run_id}.{os.getpid()}").touch()


@dg.op
def step(context: dg.OpExecutionContext) -> None:
    """Takes long enough to be killed in the middle of it."""
    note(context)
    time.sleep(0.3)


@dg.op(required_resource_keys={"pyspark"})
def spark_step(context: dg.OpExecutionContext) -> None:
    """Asks a borrowed JVM again and again."""
    note(context)
    spark: Any = context.resources.pyspark.spark_session
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    file = Path(os.environ[JVMS]) / str(os.getpid())
    file.with_suffix(".new").write_text(str(jvm))
    file.with_suffix(".new").rename(file)
    for _ in range(5):
        assert spark.range(1_000).count() == 1_000
        time.sleep(0.1)
    file.unlink()


@dg.job(executor_def=dg.in_process_executor)
def work() -> None:
    step()


@dg.job(executor_def=dg.in_process_executor, resource_defs={"pyspark": pyspark_resource()})
def spark_work() -> None:
    spark_step()


feed = dg.DynamicPartitionsDefinition(name="feed")
arctic = Arctic(
    schedules=[
        Schedule(
            name=job.name,
            target=job,
            trigger=on.partitions(f"raw/{asset}"),
            coalesce=False,
            enabled=True,
        )
        for asset, job in (("a", work), ("s", spark_work))
    ],
    interval_seconds=1,
)
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[dg.AssetSpec(["raw", asset], partitions_def=feed) for asset in ("a", "s")],
        jobs=[work, spark_work],
    ),
    arctic.definitions(),
)
