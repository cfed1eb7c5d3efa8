"""Spark settings that start fast; a test lasts seconds, and the best code is compiled later."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: the variable that has the options of each JVM that starts as a driver
OPTIONS = "SPARK_SUBMIT_OPTS"
FAST_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"

FAST = {
    "spark.driver.extraJavaOptions": FAST_JVM,
    "spark.executor.extraJavaOptions": FAST_JVM,
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.log.level": "ERROR",
}


def jvm_options() -> str:
    """For other JVMs of Spark: fast, and with the archive of classes, where the session has one."""
    return os.environ.get(OPTIONS, FAST_JVM)


@dataclass(frozen=True, kw_only=True)
class RunningJvm:
    """The JVM of a session, in which other processes may have sessions of their own.

    That costs them half a second in place of five. It outlives them.
    """

    port: int
    token: str
    pid: int

    @classmethod
    def of(cls, spark: "SparkSession") -> Self:
        context: Any = spark.sparkContext
        gateway = context._gateway.gateway_parameters
        pid = context._jvm.java.lang.ProcessHandle.current().pid()
        return cls(port=gateway.port, token=gateway.auth_token, pid=pid)

    def session(self) -> "SparkSession":
        """A session of this process, which has none yet."""
        from arctic_orchestration.lake.session import prepare_python
        from arctic_orchestration.lake.session_source import attach

        # The workers of this process's jobs: no Python on the PATH need have what they import.
        prepare_python("local")
        return attach(self.port, self.token)
