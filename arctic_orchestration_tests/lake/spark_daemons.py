"""Processes of Spark: a cluster's master and workers, or a Connect server, each on loopback."""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from arctic_orchestration.lake import find_java
from arctic_orchestration_tests.lake.sessions import FAST, jvm_options
from arctic_orchestration_tests.patience import PATIENCE_SECONDS, until
from arctic_orchestration_tests.proofs.processes import end_with_the_parent

_OF_A_CLIENT = {"SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"}


@contextmanager
def daemon(directory: Path, name: str, *arguments: str, **environment: str) -> Iterator[Path]:
    """One daemon of Spark; yields the file with what it says, and kills it at the end."""
    home = Path(pyspark.__file__).parent
    log = directory / f"{name}.log"
    inherited = {key: one for key, one in os.environ.items() if key not in _OF_A_CLIENT}
    environment = {
        **inherited,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{jvm_options()} -Dspark.master.rest.enabled=false",
        "SPARK_WORKER_DIR": str(directory / name),
        **environment,
    }
    with log.open("wb") as output:
        # The script ends in exec: the process that is started is the one that is killed.
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_the_parent,
        )
    try:
        yield log
    finally:
        process.kill()
        process.wait(timeout=PATIENCE_SECONDS)


def logged(log: Path, pattern: str) -> Callable[[], str]:
    """A condition: the group of the pattern, once the log has it."""

    def check() -> str:
        found = re.search(pattern, log.read_text(errors="replace"))
        return found.group(1) if found else ""

    return check


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """A Spark Connect server of two cores; yields its URL, with a token."""
    token = secrets.token_hex(16)
    properties = {
        **FAST,
        "spark.log.level": "INFO",
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
    }
    server = daemon(
        directory,
        "connect",
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(word for key, value in properties.items() for word in ("--conf", f"{key}={value}")),
        SPARK_CONNECT_AUTHENTICATE_TOKEN=token,
        # For Spark's launcher it is a daemon, whose memory is not that of a driver.
        SPARK_DAEMON_MEMORY=FAST["spark.driver.memory"],
        PYSPARK_PYTHON=sys.executable,
    )
    with server as log:
        port = until(
            logged(log, r"SparkConnectServer: .*started at: .*:(\d+)"), "its server listens"
        )
        # By this name PySpark sends a token without TLS.
        yield f"sc://localhost:{port}/;token={token}"
