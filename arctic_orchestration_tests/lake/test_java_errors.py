"""What people read of an error of Spark: a line, without the stack of the JVM."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.lake import session
from arctic_orchestration.lake.java_errors import is_of_java, one_line
from arctic_orchestration.settings import Settings

#: as py4j and Spark write it, with fewer lines
TEXT = """An error occurred while calling o57.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.jobFailed(QueryExecutionErrors.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:1583)
Caused by: java.io.IOException: write failed
\tat java.base/java.io.FileOutputStream.write(FileOutputStream.java:1)
\t... 21 more
Caused by: java.io.IOException: No space left on device
\t... 40 more
"""


def test_the_stack_is_left_out_and_the_root_cause_is_named() -> None:
    """Of two causes the last one."""
    assert one_line(TEXT) == (
        "An error occurred while calling o57.parquet. : org.apache.spark.SparkException: Job "
        "aborted due to stage failure (caused by: java.io.IOException: No space left on device)"
    )
    assert one_line("disk full\n") == "disk full"
    assert one_line(" \n") == "no reason was given"
    assert len(one_line("x" * 5000)) == 1000


def test_errors_of_the_jvm_are_distinguished_from_others() -> None:
    """By themselves, or by what caused them."""
    caused = RuntimeError("the merge failed")
    caused.__cause__ = Py4JError("gone")
    assert [is_of_java(error) for error in (Py4JError(""), caused, ValueError())] == [
        True,
        True,
        False,
    ]


def test_a_cluster_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the address and what to check."""

    class Broken:
        def config(self, key: str, value: str) -> "Broken":
            return self

        def getOrCreate(self) -> None:
            raise Py4JError(TEXT)

    class Session:
        builder = Broken()

    monkeypatch.setattr(session, "SparkSession", Session)
    monkeypatch.setattr(session, "prepare_environment", lambda master: None)
    monkeypatch.setattr(session, "_require_answer", lambda master: None)
    settings = Settings.from_environment({"ARCTIC_SPARK_MASTER": "spark://10.0.0.1:7077"})
    with pytest.raises(ConfigurationError) as refused:
        session.spark_session(settings)
    message = str(refused.value)
    assert message.startswith("Spark at spark://10.0.0.1:7077 did not start: An error occurred")
    assert "No space left on device). Check ARCTIC_SPARK_MASTER" in message
    assert "\n" not in message
    assert "\tat" not in message


@pytest.mark.parametrize(("loaded", "exits", "starts"), [(True, 2, 3), (True, 9, 3), (False, 9, 1)])
def test_a_process_that_grpc_has_ended_is_started_again(
    loaded: bool, exits: int, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where gRPC is loaded; not for ever, because Java may exit by itself."""
    made = []

    class Ended:
        def config(self, key: str, value: str) -> "Ended":
            return self

        def getOrCreate(self) -> str:
            made.append(1)
            if len(made) > exits:
                return "a session"
            raise PySparkRuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited")

    class Session:
        builder = Ended()

    monkeypatch.setattr(session, "SparkSession", Session)
    monkeypatch.setattr(session, "prepare_environment", lambda master: None)
    if loaded:
        monkeypatch.setitem(sys.modules, "grpc", ModuleType("grpc"))
    else:
        monkeypatch.delitem(sys.modules, "grpc", raising=False)
    settings = Settings.from_environment({"ARCTIC_SPARK_MASTER": "local[1]"})
    if exits < starts:
        assert str(session.spark_session(settings)) == "a session"
    else:
        with pytest.raises(ConfigurationError, match="JAVA_GATEWAY_EXITED"):
            session.spark_session(settings)
    assert len(made) == starts


def test_no_jvm_is_started_for_a_master_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would try for a minute, and print its stack each time."""
    # The session of other tests of this process: with one, nothing is started.
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"spark://127.0.0.1:{closed.getsockname()[1]}"
    settings = Settings.from_environment({"ARCTIC_SPARK_MASTER": address})
    with pytest.raises(ConfigurationError, match=f"Spark at {address} does not answer: .*refused"):
        session.spark_session(settings)


#: The context is made, and then fails.
FAILS = """
from arctic_orchestration.lake.session import spark_session
from arctic_orchestration.settings import Settings
lost = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "/no/such/directory"}
spark_session(Settings.from_environment({"ARCTIC_SPARK_MASTER": "local[1]"}), lost)
"""


def logged_by_spark(folder: Path, **environment: str) -> str:
    """What a process writes to standard error whose JVM fails after it has started."""
    inherited = {key: one for key, one in os.environ.items() if not key.startswith("SPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", FAILS],
        env={**inherited, **environment},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 1
    # Python's own traceback begins there.
    log, _, error = done.stderr.partition("Traceback (most recent call last)")
    assert "did not start: " in error
    assert "/no/such/directory does not exist" in error
    return log


def test_a_jvm_that_fails_after_its_start_prints_no_stack(tmp_path: Path) -> None:
    """A line for the error; where Spark is configured by others, as these want it."""
    log = logged_by_spark(tmp_path)
    (line,) = [line for line in log.splitlines() if "ERROR" in line]
    assert line.rstrip().endswith("File file:/no/such/directory does not exist")
    assert "\tat " not in log
    assert "\tat " in logged_by_spark(tmp_path, SPARK_CONF_DIR=str(tmp_path))
