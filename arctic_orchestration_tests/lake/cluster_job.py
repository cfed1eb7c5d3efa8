"""A program for a cluster: appends a partitioned table through two executors, reads it back.

``python -m …cluster_job LAKE`` with ``ARCTIC_SPARK_MASTER`` set; prints the executors that ran
tasks and the sum of what was read.
"""

import json
import sys
from pathlib import Path

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField

from arctic_orchestration.lake import append, ensure_table, open_catalog, read, spark_session
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.lake.sessions import FAST, jvm_options

CLUSTER = {
    **FAST,
    "spark.executor.extraJavaOptions": jvm_options(),
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # No job starts before both executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}


def main(lake: str) -> None:
    settings = Settings.from_environment()
    schema = Schema(NestedField(1, "id", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "bucket"))
    with spark_session(settings, CLUSTER) as spark:
        table = ensure_table(open_catalog(settings), "lake.cluster", schema, partition_spec=spec)
        append(spark, spark.range(0, 1000, 1, 4), table)
        total = read(spark, table).groupBy().sum("id").collect()[0][0]
        files = [str(path) for path in Path(lake).rglob("*.parquet")]
        memory = spark._jsc.sc().getExecutorMemoryStatus()
        hosts = memory.size()
    print("ANSWER " + json.dumps({"total": total, "files": len(files), "block managers": hosts}))


if __name__ == "__main__":
    main(sys.argv[1])
