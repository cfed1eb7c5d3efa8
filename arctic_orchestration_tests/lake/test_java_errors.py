"""What people read of an error of Spark: a line, without the stack of the JVM."""

import socket

import pytest
from py4j.protocol import Py4JError

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


def test_errors_that_come_from_the_jvm_are_told_from_others() -> None:
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
    said = str(refused.value)
    assert said.startswith("Spark at spark://10.0.0.1:7077 did not start: An error occurred")
    assert "No space left on device). Check ARCTIC_SPARK_MASTER" in said
    assert "\n" not in said and "\tat" not in said


def test_no_jvm_is_started_for_a_master_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would try for a minute, and print its stack each time."""
    # The session of other tests of this process: with one, nothing is started.
    monkeypatch.setattr(session.SparkContext, "_active_spark_context", None)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"spark://127.0.0.1:{closed.getsockname()[1]}"
    settings = Settings.from_environment({"ARCTIC_SPARK_MASTER": address})
    with pytest.raises(ConfigurationError, match=f"Spark at {address} does not answer: .*refused"):
        session.spark_session(settings)
