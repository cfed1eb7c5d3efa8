"""Spark sessions on a JVM that another process has started and lends to this one.

A JVM is lent to one process at a time, and to the next one only when nothing of the last one is
left in it. So processes share neither temporary views, configuration, cached tables nor added
files, whatever they do with theirs. The one who lends says how: see
``run_launcher.spark_pool``, and :mod:`~arctic_orchestration.lake.lent_jvm` for its other end.
"""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

#: A JVM may take so long to start, on a machine with much other work.
WAIT_SECONDS = 300.0

Borrow = Callable[[Mapping[str, str]], dict[str, Any]]

_log = logging.getLogger("arctic_orchestration.lake")
_borrow: Borrow | None = None
_session: SparkSession | None = None


def borrow_from(borrow: Borrow) -> None:
    """From now on sessions of this process are asked for with ``borrow``.

    It takes the Spark properties and answers ``{"ok": true, "port": …, "token": …}``, or
    ``{"ok": false, "why": …}``; the session is then started in a JVM of its own.
    """
    global _borrow
    _borrow = borrow


def borrowed_session(properties: Mapping[str, str]) -> SparkSession | None:
    """A new session on a JVM that was started with these properties, if one can be had."""
    global _session
    if _borrow is None or SparkContext._active_spark_context is not None:
        return None
    try:
        answer = _borrow(properties)
    except OSError as error:
        answer = {"ok": False, "why": str(error)}
    if not answer["ok"]:
        _log.warning("no warm Spark: %s. A JVM of this process is started instead", answer["why"])
        return None
    _session = attach(answer["port"], answer["token"])
    return _session


def attach(port: int, token: str) -> SparkSession:
    """A new session on the Spark context of the JVM whose gateway listens at ``port``."""
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = token
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        # Processes that this one starts have Spark to themselves.
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    jvm: Any = gateway.jvm
    scala_context = jvm.org.apache.spark.SparkContext.getOrCreate()
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(scala_context)
    conf = SparkConf(_jvm=jvm, _jconf=java_context.getConf())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=conf)
    first = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    return SparkSession(context, jsparkSession=first.newSession())


def end() -> None:
    """Ends what this process still does in a JVM that was lent to it."""
    global _session
    session, _session = _session, None
    if session is None:
        return
    with suppress(Exception):
        for query in session.streams.active:
            query.stop()
        session.sparkContext.cancelAllJobs()
