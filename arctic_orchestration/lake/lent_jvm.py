"""The keeper process of a JVM that is lent to one process after another.

The keeper starts the JVM with the lake's settings, warms it up, and takes it back. It lends it
again only in its original state: a change that cannot be undone or hidden from borrowers ends it.
"""

import json
import os
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession

from arctic_orchestration.lake.session import prepare_environment
from arctic_orchestration.lake.spark_versions import LENT

#: A borrower's Python leaves references in the JVM, which only end with it.
_LOANS = 100


def keep(connection: socket.socket, properties: Mapping[str, str]) -> None:
    """Starts a JVM and lends it until the other end of ``connection`` is closed.

    Writes a JSON line when the JVM can be lent: ``port`` and ``token`` of its gateway. Each line
    that is read returns it; a JVM that cannot be lent again ends with this process.
    """
    prepare_environment(properties["spark.master"])
    builder = SparkSession.builder
    for key, value in {**properties, **LENT}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _warm_up(session)
    context: Any = session.sparkContext
    parameters = context._gateway.gateway_parameters
    offer = json.dumps({"port": parameters.port, "token": parameters.auth_token}).encode() + b"\n"
    state = _state(session)
    for _ in range(_LOANS):
        connection.sendall(offer)
        if not connection.recv(1) or not _is_as_before(session, state):
            return


def _warm_up(session: SparkSession) -> None:
    """Loads the classes that a query over Parquet files needs."""
    with tempfile.TemporaryDirectory(prefix="arctic-warm-up-") as folder:
        rows = session.range(1_000).selectExpr("id", "id % 7 AS part", "string(id) AS text")
        rows.write.parquet(f"{folder}/rows")
        session.read.parquet(f"{folder}/rows").groupBy("part").count().orderBy("part").collect()


def _is_as_before(session: SparkSession, state: Any) -> bool:
    """Clears what can be cleared; returns whether the rest is unchanged."""
    context: SparkContext = session.sparkContext
    try:
        context.cancelAllJobs()
        session.catalog.clearCache()
        java: Any = context._jsc
        for rdd in list(java.getPersistentRDDs().values()):
            rdd.unpersist()
        for view in session.sql("SHOW VIEWS IN global_temp").collect():
            if view["namespace"] == "global_temp":
                session.catalog.dropGlobalTempView(view["viewName"])
        jvm: Any = context._jvm
        _end_python_workers(jvm)
        jvm.System.gc()
        return bool(_state(session) == state)
    except Exception:
        # The context was stopped, or the JVM is gone.
        return False


def _end_python_workers(jvm: Any) -> None:
    """Ends Python workers: Spark would reuse them, with their modules and environment."""
    for daemon in psutil.Process(jvm.java.lang.ProcessHandle.current().pid()).children():
        # Not the daemon that forks them: it runs no code of the borrower, and is needed again.
        for worker in daemon.children():
            with suppress(psutil.Error):
                worker.kill()


def _state(session: SparkSession) -> Any:
    """Returns the state that a borrower can change for later ones."""
    context: Any = session.sparkContext
    jvm, java = context._jvm, context._jsc
    hadoop = java.hadoopConfiguration()
    return (
        bool(java.sc().isStopped()),
        sorted(context.listFiles), sorted(context.listArchives), java.sc().listJars().toString(),
        jvm.java.util.TreeMap(hadoop.getPropsWithPrefix("")).toString(),
        jvm.java.util.TreeMap(jvm.System.getProperties()).toString(),
        java.sc().getCheckpointDir().isDefined(),
        jvm.java.util.TimeZone.getDefault().getID(), jvm.java.util.Locale.getDefault().toString(),
        bool(session._jsparkSession.sharedState().activeStreamingQueries().isEmpty()),
        jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString(),
        sorted(one.name for one in session.catalog.listDatabases()),
        sorted(one.name for one in session.catalog.listTables("default")),
        sorted(row[0] for row in session.sql("SHOW USER FUNCTIONS IN default").collect()),
    )  # fmt: skip


def run_keeper(connection: socket.socket, properties: Mapping[str, str]) -> None:
    """Runs the keeper's process, from its beginning to its end."""
    with suppress(OSError):
        keep(connection, properties)
    # The JVM ends when its standard input does, which this process holds.
    os._exit(0)
