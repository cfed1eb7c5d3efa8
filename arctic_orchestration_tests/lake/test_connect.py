"""Sessions on a Spark Connect server: what is refused, what one sees of another, and their end."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from arctic_orchestration.errors import ConfigurationError
from arctic_orchestration.lake import connect, spark_properties
from arctic_orchestration.lake.connect import connect_session, is_over_connect, released
from arctic_orchestration.lake.merging.sessions import cancel_merges, merging_session
from arctic_orchestration.lake.session import require_lake_session
from arctic_orchestration.lake.spark_versions import HAS_CONNECT
from arctic_orchestration.settings import Settings
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(not HAS_CONNECT, reason="Spark Connect: from PySpark 4.3 on")


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"sc://127.0.0.1:{server.getsockname()[1]}"


def refusal(remote: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        connect_session(remote, {})
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_a_server_that_is_not_there_is_named_at_once() -> None:
    """With the reason, and without the token."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"sc://127.0.0.1:{closed.getsockname()[1]}"
    message = refusal(f"{address}/;user_id=secret")
    assert message.startswith(f"Spark Connect at {address} does not answer: UNAVAILABLE: ")
    assert "refused" in message
    assert "ARCTIC_SPARK_REMOTE" in message
    assert "secret" not in message


def test_a_server_that_says_nothing_is_given_up(
    silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After five seconds; here, after one."""
    monkeypatch.setattr(connect, "_ANSWER_SECONDS", 1.0)
    assert f"Spark Connect at {silent_server} does not answer: waited 1 s" in refusal(silent_server)


def test_another_token_is_refused_with_the_reason(connect_url: str) -> None:
    """The server says what is wrong."""
    address, _, _ = connect_url.partition(";")
    message = refusal(f"{address};token=another")
    assert "does not answer: UNAUTHENTICATED: Invalid authentication token" in message


def test_sessions_on_one_server_do_not_see_each_other(connect_url: str) -> None:
    """Neither settings nor temporary views; both have what the lake needs."""
    remote = Settings.from_environment({"ARCTIC_SPARK_REMOTE": connect_url})
    properties = spark_properties(remote, {"spark.sql.shuffle.partitions": "7"})
    with (
        released(connect_session(connect_url, properties)) as one,
        released(connect_session(connect_url, spark_properties(remote))) as other,
    ):
        require_lake_session(one)
        require_lake_session(other)
        one.range(3).createOrReplaceTempView("numbers")
        assert one.conf.get("spark.sql.shuffle.partitions") == "7"
        assert other.conf.get("spark.sql.shuffle.partitions") == "2"
        assert one.sql("select count(*) from numbers").head() == (3,)
        with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
            other.sql("select count(*) from numbers").head()


def test_a_session_is_given_only_what_it_can_be_given(connect_url: str) -> None:
    """The master, the driver and the JVM's options are the server's."""
    remote = Settings.from_environment({"ARCTIC_SPARK_REMOTE": connect_url})
    assert {key.split(".")[1] for key in spark_properties(remote)} == {"sql"}
    with pytest.warns(UserWarning, match=r"spark\.driver\.memory"):
        session = connect_session(connect_url, {"spark.driver.memory": "9g"})
    with released(session):
        assert session.conf.get("spark.driver.memory") != "9g"


def test_canceled_merges_fail(spark: SparkSession) -> None:
    """A job in a merging session that would take days ends; the session goes on."""
    ended: list[Exception] = []

    def merge() -> None:
        try:
            with merging_session(spark) as session:
                session.range(10**14).selectExpr("sum(sqrt(id))").collect()
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=merge)
    thread.start()
    while thread.is_alive():
        # Until the job has begun, there is nothing to cancel.
        cancel_merges(spark)
        thread.join(0.2)
    assert "cancel" in str(ended[0]).lower()
    assert spark.range(3).count() == 3


def test_a_merge_that_ends_while_it_is_canceled_does_not_stop_the_others(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over Connect its session is closed when it is interrupted, which Spark refuses."""
    interrupted = []
    with ExitStack() as ending, merging_session(spark) as going_on:
        ended = ending.enter_context(merging_session(spark))
        for session in {ended, going_on}:

            def interrupt(session: SparkSession = session) -> None:
                ending.close()
                interrupted.append(session)
                type(session).interruptAll(session)

            monkeypatch.setattr(session, "interruptAll", interrupt)
        cancel_merges(spark)
        assert going_on.range(3).count() == 3
    if is_over_connect(spark):
        assert {*interrupted} == {ended, going_on}


RUN = """
import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark import SparkContext

from arctic_orchestration.lake import append, ensure_table, open_catalog, read, spark_session
from arctic_orchestration.lake.spark_resource import pyspark_resource
from arctic_orchestration.settings import Settings

settings = Settings.from_environment()
schema = Schema(NestedField(1, "id", LongType()))
table = ensure_table(open_catalog(settings), "lake.numbers", schema)

@dg.asset
def numbers(pyspark: LazyPySparkResource) -> None:
    append(pyspark.spark_session, pyspark.spark_session.range(5), table)

resource = pyspark_resource()
assert "token" not in repr(resource), resource
assert dg.materialize([numbers], resources={"pyspark": resource}).success
with spark_session(settings) as spark:
    assert read(spark, table).count() == 5
assert spark.is_stopped
assert SparkContext._gateway is None
"""


def test_a_run_appends_over_connect_without_java(connect_url: str, tmp_path: Path) -> None:
    """The variable is all it takes; no JVM is started, and the token is not shown."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN],
        env={
            "ARCTIC_SPARK_REMOTE": connect_url,
            "ARCTIC_LAKE": str(tmp_path / "lake"),
            "PATH": "",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert connect_url.rpartition("=")[2] not in done.stdout + done.stderr
