"""The session that merges run in, beside the one that a program works with."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from arctic_orchestration.lake.connect import beside, is_over_connect, released
from arctic_orchestration.lake.spark_versions import session_settings, small_frame

#: For a session in which a group's files are one partition, in one job without surprises.
_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.files.minPartitionNum": "1",
    # A struct of which no field that is asked for is in the file is not therefore null.
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    "spark.sql.sources.useV1SourceList": "parquet",
}

_lock = threading.Lock()
#: of classic sessions, which keep theirs as long as they live
_kept: "WeakKeyDictionary[SparkSession, SparkSession]" = WeakKeyDictionary()
#: of Connect sessions, those of the merges under way
_open: "WeakKeyDictionary[SparkSession, set[SparkSession]]" = WeakKeyDictionary()


@contextmanager
def merging_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session beside the given one, with its settings and those for merging.

    What merging needs must not be seen by others that use the session at the same time. On a
    Connect server the session is released at the end of the block: one that is left keeps memory
    there for an hour, and the end of this process waiting for a server that is gone.
    """
    if is_over_connect(spark):
        with _one_more(spark) as session:
            _configure(session, spark)
            yield session
        return
    with _lock:
        kept = _kept.get(spark)
        if kept is None:
            kept = _kept[spark] = beside(spark)
        _configure(kept, spark)
    yield kept


def facts_frame(spark: SparkSession, rows: DataFrame, table: pa.Table) -> DataFrame:
    """A small table for a join with rows of a merging session of ``spark``."""
    # Making one makes its session the active one, which is to be the given one. Over Connect it
    # does not, and frames of two sessions cannot be joined.
    return small_frame(rows.sparkSession if is_over_connect(spark) else spark, table)


def cancel_merges(spark: SparkSession) -> None:
    """Cancels the jobs of merges, which fail by it.

    On a classic session, cancels all jobs of this process's Spark.
    """
    if not is_over_connect(spark):
        spark.sparkContext.cancelAllJobs()
        return
    with _lock:
        sessions = [spark, *_open.get(spark, ())]
    for session in sessions:
        session.interruptAll()


@contextmanager
def _one_more(spark: SparkSession) -> Iterator[SparkSession]:
    session = beside(spark)
    with _lock:
        _open.setdefault(spark, set()).add(session)
    try:
        with released(session):
            yield session
    finally:
        with _lock:
            _open[spark].discard(session)


def _configure(session: SparkSession, spark: SparkSession) -> None:
    have = session_settings(session)
    for key, value in {**session_settings(spark), **_SETTINGS}.items():
        # A session that was there before may have been given settings of the JVM.
        if have.get(key) != value and session.conf.isModifiable(key):
            session.conf.set(key, value)
