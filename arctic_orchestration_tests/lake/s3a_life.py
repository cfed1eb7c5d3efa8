"""A table on S3 in the hands of a Spark with Hadoop's own file system for it; prints what happened.

A program of its own: the jars of a session are chosen when its JVM starts.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from arctic_orchestration.lake import append, read, spark_session
from arctic_orchestration.lake.file_access import file_access
from arctic_orchestration.lake.manifests import live_files
from arctic_orchestration.lake.merging.merge import Engine
from arctic_orchestration.lake.merging.strategy import Way
from arctic_orchestration_tests.compaction.small_lake import rows_of, table_of
from arctic_orchestration_tests.lake.conftest import settings_for
from arctic_orchestration_tests.lake.delete_writer import (
    add_equality_deletes,
    add_position_deletes,
)
from arctic_orchestration_tests.lake.sessions import FAST
from arctic_orchestration_tests.lake.stored_tables import group_of, merged, replaced
from arctic_orchestration_tests.object_store import BUCKET, object_store


def main(home: Path, packages: str) -> None:
    spark = spark_session(settings_for(home), FAST | {"spark.jars.packages": packages})
    with object_store() as store:
        catalog = SqlCatalog(
            "lake",
            uri=f"sqlite:///{home}/catalog.db",
            warehouse=f"s3://{BUCKET}/a b%20c",
            **store.properties,
        )
        table = table_of(catalog, files=3)
        before = rows_of(table)
        report: dict[str, Any] = {"by_s3a": file_access(spark, table.io, [table.location()]).by_s3a}
        group = group_of(table)
        copied = merged(spark, table, group, way=Way.APPEND)
        replaced(table, group, copied)
        report |= {"copied": copied.way.value, "same": rows_of(table) == before}
        append(spark, spark.range(5000, 5010).selectExpr("id", "'new' as word"), table)
        report["read"] = sorted(row.id for row in read(spark, table).collect())
        paths = sorted(file.path for file in live_files(table.refresh()).files)
        add_position_deletes(table, {path: [0] for path in paths})
        add_equality_deletes(table, pa.table({"id": pa.array([1001, 5003])}), ["id"])
        group = group_of(table)
        done = merged(spark, table, group, engine=Engine.SPARK)
        replaced(table, group, done, "two")
        report |= {"because": done.because, "deleted": done.rows_deleted}
        report |= {"files": len(paths), "left": len(rows_of(table))}
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
