"""The Spark session of the lake: its Java, its master, and the settings that its files need."""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.lake.connect import connect_session
from arctic_orchestration.lake.java import find_java, require_user_name
from arctic_orchestration.lake.java_errors import one_line
from arctic_orchestration.settings import Settings

#: Without these, files would be written or read wrongly; a session without them is refused.
NEEDED = {
    # Partition values and filters are computed from wall times, which in Iceberg are UTC.
    "spark.sql.session.timeZone": "UTC",
    # Columns are found by field id: a renamed column stays the same column.
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    # Never: a file without ids would silently be read as nulls.
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    # Pruned structs have lost the ids: what was renamed would be read as nulls.
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Dates before 1582 are written as they are, not moved to the Julian calendar.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}

_PREFERRED = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # Above this number, Spark starts an extra job only to list its input files.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
}

_OF_THE_DRIVER = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

#: how often Java is started where gRPC may end it
_STARTS = 3
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
#: The JVM's log without stacks: the exception describes a failure.
_LOG4J = Path(__file__).with_name("log4j2.properties")
#: If one of these is set, Spark has its own defaults, including its log's.
_CONFIGURED_BY = {"SPARK_CONF_DIR", "SPARK_HOME"}
_STANDALONE = "spark://"
#: the time limit for connecting to a standalone master
_ANSWER_SECONDS = 5.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def spark_properties(
    settings: Settings, properties: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns the lake's Spark configuration for ``ARCTIC_SPARK_MASTER``.

    ``properties`` are applied last and may change everything but :data:`NEEDED`. With
    ``ARCTIC_SPARK_REMOTE`` the result only contains settings of a session: the driver is the
    server's.

    Errors:
        ConfigurationError: a property contradicts one that the lake needs.
    """
    if settings.spark_remote is not None:
        merged = _PREFERRED | NEEDED | dict(properties or {})
    else:
        chosen = dict(properties or {})
        own = _of_the_driver(settings, chosen.get("spark.master", settings.spark_master))
        merged = _with_jvm_options(own | NEEDED | chosen)
    _refuse_contradictions(merged)
    return merged


def _of_the_driver(settings: Settings, master: str) -> dict[str, str]:
    own = {
        "spark.app.name": "arctic",
        "spark.master": master,
        # Only the files outlive the session, so the directory keeps nothing else.
        "spark.sql.warehouse.dir": str(settings.lake.resolve() / ".spark"),
        **_PREFERRED,
        **_OF_THE_DRIVER,
    }
    if _stays_on_this_machine(master):
        own |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    return own


def _with_jvm_options(properties: dict[str, str]) -> dict[str, str]:
    options = properties.get(_JVM_OPTIONS, "")
    if _CONFIGURED_BY & os.environ.keys() or "log4j" in options:
        return properties
    added = f"{options} -Dlog4j2.configurationFile={_LOG4J.as_uri()}".strip()
    return properties | {_JVM_OPTIONS: added}


def spark_session(settings: Settings, properties: Mapping[str, str] | None = None) -> SparkSession:
    """Starts Spark, or returns the existing session of this process.

    As a context manager, it is stopped at the end of the block. A cold start takes 4 to 16 s. Sets
    ``JAVA_HOME`` and ``PYSPARK_PYTHON``, see :func:`prepare_environment`. With
    ``ARCTIC_SPARK_REMOTE``, opens a new session on that server instead, see
    :func:`~arctic_orchestration.lake.connect.connect_session`.

    Errors:
        JavaNotFound: there is no Java that can run Spark.
        ConfigurationError: a property contradicts one that the lake needs, Spark does not start,
            or the Connect server does not answer; the message says why on one line.
    """
    configuration = spark_properties(settings, properties)
    if settings.spark_remote is not None:
        return connect_session(settings.spark_remote, configuration)
    _require_answer(configuration["spark.master"])
    prepare_environment(configuration["spark.master"])
    builder = SparkSession.builder
    for key, value in configuration.items():
        builder = builder.config(key, value)
    try:
        return _started(builder)
    except Exception as error:
        raise ConfigurationError(
            f"Spark at {configuration['spark.master']} did not start: {one_line(str(error))}. "
            "Check ARCTIC_SPARK_MASTER, and the Spark properties (--conf)"
        ) from error


def _started(builder: Any) -> SparkSession:
    """Starts Java, again if gRPC may have ended the process that was to become Java.

    PySpark forks, and gRPC's handlers of forks abort the new process now and then while another
    thread of this one uses a channel: 190 of 2,269 processes in a trial, and none with
    ``GRPC_ENABLE_FORK_SUPPORT=0``, which has to be set before gRPC is used.
    """
    left = _STARTS if "grpc" in sys.modules else 1
    while True:
        left -= 1
        try:
            session: SparkSession = builder.getOrCreate()
        except PySparkRuntimeError as error:
            if not left or "JAVA_GATEWAY_EXITED" not in str(error):
                raise
        else:
            return session


def _require_answer(master: str) -> None:
    """Refuses a standalone cluster that does not answer, before a JVM retries for a minute.

    Errors:
        ConfigurationError: none of its masters accepts a connection.
    """
    if not master.startswith(_STANDALONE) or SparkContext._active_spark_context is not None:
        return
    why = "no address"
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
            return
        except (OSError, ValueError) as error:
            why = str(error)
    raise ConfigurationError(
        f"Spark at {master} does not answer: {why}. Check ARCTIC_SPARK_MASTER, and that the "
        "cluster's master is up"
    )


def prepare_environment(master: str) -> None:
    """Sets the environment of this process for the Spark that it starts.

    ``JAVA_HOME`` is set to the Java that was found, and ``PYSPARK_PYTHON``, unless it is set, to
    this Python when the workers are on this machine. Nothing changes after Spark was started.

    Errors:
        JavaNotFound: there is no Java that can run Spark.
        ConfigurationError: the user of this process has no name.
    """
    if SparkContext._gateway is not None:
        return
    require_user_name()
    os.environ["JAVA_HOME"] = str(find_java().home)
    prepare_python(master)


def prepare_python(master: str) -> None:
    """Sets ``PYSPARK_PYTHON``, unless it is set, to this Python if workers are on this machine."""
    if _stays_on_this_machine(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def require_lake_session(spark: SparkSession) -> None:
    """Refuses a session that would read or write the lake's files wrongly.

    Errors:
        ConfigurationError: the session lacks a setting that the lake needs.
    """
    _refuse_contradictions({key: spark.conf.get(key) or "" for key in NEEDED})


def _refuse_contradictions(configuration: Mapping[str, str]) -> None:
    wrong = [
        f"{key} is {configuration[key]!r}, expected {value!r}"
        for key, value in NEEDED.items()
        if configuration[key].lower() != value.lower()
    ]
    if wrong:
        raise ConfigurationError(
            "the lake's files need other Spark settings: "
            + "; ".join(wrong)
            + ". Take the session from arctic_orchestration.lake.spark_session or pyspark_resource"
        )


def _stays_on_this_machine(master: str) -> bool:
    return master.startswith("local") or urlsplit(master).hostname in _LOOPBACK
