"""The session for merges, separate from a program's own session."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from arctic_orchestration.lake.connect import beside, is_over_connect, released
from arctic_orchestration.lake.spark_versions import session_settings, small_frame

#: Settings that make a group's files one partition, in one predictable job.
_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.files.minPartitionNum": "1",
    # A struct is not null only because the file lacks all of its requested fields.
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
#: of Connect sessions: those of merges in progress
_open: "WeakKeyDictionary[SparkSession, set[SparkSession]]" = WeakKeyDictionary()


@contextmanager
def merging_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Yields a new session with the given one's settings and those for merging.

    Other users of the given session must not see the settings for merging. On a Connect server the
    session is released at the end of the block: an unreleased one keeps memory there for an hour,
    and the end of this process would wait for a server that is gone.
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
    """Returns a small table for a join with rows of a merging session of ``spark``."""
    # Creating one activates its session, which must stay the given one. Over Connect it does not,
    # and frames of two sessions cannot be joined.
    return small_frame(rows.sparkSession if is_over_connect(spark) else spark, table)


def cancel_merges(spark: SparkSession) -> None:
    """Cancels the jobs of merges, which then fail.

    On a classic session, cancels all jobs of this process's Spark.
    """
    if not is_over_connect(spark):
        spark.sparkContext.cancelAllJobs()
        return
    with _lock:
        sessions = [spark, *_open.get(spark, ())]
    for session in sessions:
        try:
            session.interruptAll()
        except Exception:
            # A merge that has ended meanwhile has closed its session.
            if session is spark or session in _open.get(spark, ()):
                raise


@contextmanager
def _one_more(spark: SparkSession) -> Iterator[SparkSession]:
    session = beside(spark)
    with released(session):
        with _lock:
            _open.setdefault(spark, set()).add(session)
        try:
            yield session
        finally:
            with _lock:
                _open[spark].discard(session)


def _configure(session: SparkSession, spark: SparkSession) -> None:
    have = session_settings(session)
    for key, value in {**session_settings(spark), **_SETTINGS}.items():
        # An existing session may have been given settings of the JVM.
        if have.get(key) != value and session.conf.isModifiable(key):
            session.conf.set(key, value)
