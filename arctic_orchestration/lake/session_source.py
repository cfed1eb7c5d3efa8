"""Spark sessions on a JVM that another process has started and lends to this one.

A JVM is lent to one process at a time, and to the next one only when nothing of the last one is
left in it. So processes share neither temporary views, configuration, cached tables nor added
files. The lender implements this: see ``run_launcher.spark_pool``, and the keeper in
:mod:`~arctic_orchestration.lake.lent_jvm`.
"""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from py4j.java_gateway import GatewayConnection, GatewayParameters
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from arctic_orchestration.lake.spark_versions import default_session

#: The time limit for starting a JVM, on a busy machine.
WAIT_SECONDS = 300.0
#: The time limit for the first answer of a JVM that is up.
_RESPONSE_SECONDS = 30.0

Borrow = Callable[[Mapping[str, str]], dict[str, Any]]

_log = logging.getLogger("arctic_orchestration.lake")
_borrow: Borrow | None = None
_session: SparkSession | None = None


def borrow_from(borrow: Borrow) -> None:
    """Makes this process request its sessions with ``borrow``.

    It receives the Spark properties and returns ``{"ok": true, "port": …, "token": …}``, or
    ``{"ok": false, "why": …}``; the session then starts in a JVM of its own.
    """
    global _borrow
    _borrow = borrow


def borrowed_session(properties: Mapping[str, str]) -> SparkSession | None:
    """Returns a new session on a JVM that was started with these properties, if available."""
    global _session
    if _borrow is None or SparkContext._active_spark_context is not None:
        return None
    try:
        answer = _borrow(properties)
    except OSError as error:
        answer = {"ok": False, "why": str(error)}
    if answer["ok"] and not _responds(answer["port"], answer["token"]):
        answer = {"ok": False, "why": f"its JVM did not answer within {_RESPONSE_SECONDS:g} s"}
    if not answer["ok"]:
        _log.warning("no warm Spark: %s. A JVM of this process is started instead", answer["why"])
        return None
    _session = attach(answer["port"], answer["token"])
    return _session


def _responds(port: int, token: str) -> bool:
    """Whether the JVM answers: a stopped one accepts connections, and would never answer."""
    connection: Any = GatewayConnection(
        GatewayParameters(port=port, auth_token=token, read_timeout=_RESPONSE_SECONDS)
    )
    try:
        connection.start()
    except Py4JError:
        return False
    connection.close()
    return True


def attach(port: int, token: str) -> SparkSession:
    """Returns a new session on the Spark context of the JVM whose gateway listens at ``port``."""
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = token
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        # Child processes have Spark to themselves.
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    jvm: Any = gateway.jvm
    scala_context = jvm.org.apache.spark.SparkContext.getOrCreate()
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(scala_context)
    conf = SparkConf(_jvm=jvm, _jconf=java_context.getConf())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=conf)
    return SparkSession(context, jsparkSession=default_session(jvm).newSession())


def end() -> None:
    """Ends the activity of this process in a borrowed JVM."""
    global _session
    session, _session = _session, None
    if session is None:
        return
    with suppress(Exception):
        for query in session.streams.active:
            query.stop()
        session.sparkContext.cancelAllJobs()
