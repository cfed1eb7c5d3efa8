"""What a borrower leaves in a JVM that the next one would find is noticed when it is given back."""

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, create_autospec

import pytest
from pyspark.sql import SparkSession

from arctic_orchestration.lake import lent_jvm
from arctic_orchestration.lake.lent_jvm import _state


def hadoop_value(spark: SparkSession) -> Callable[[], Any]:
    java: Any = spark.sparkContext._jsc
    hadoop = java.hadoopConfiguration()
    before = hadoop.get("io.file.buffer.size")
    hadoop.set("io.file.buffer.size", "12345")
    return lambda: hadoop.set("io.file.buffer.size", before)


def time_zone(spark: SparkSession) -> Callable[[], Any]:
    jvm: Any = spark.sparkContext._jvm
    zones = jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone("Asia/Tokyo"))
    return lambda: zones.setDefault(before)


def database(spark: SparkSession) -> Callable[[], Any]:
    spark.sql("create database left_over")
    return lambda: spark.sql("drop database left_over")


def system_property(spark: SparkSession) -> Callable[[], Any]:
    jvm: Any = spark.sparkContext._jvm
    jvm.System.setProperty("left.over", "x")
    return lambda: jvm.System.clearProperty("left.over")


def function(spark: SparkSession) -> Callable[[], Any]:
    spark.sql("create function left_over as 'left.Over'")
    return lambda: spark.sql("drop function left_over")


def stream_of_another_session(spark: SparkSession) -> Callable[[], Any]:
    rates = spark.newSession().readStream.format("rate").load()
    return rates.writeStream.format("memory").queryName("left_over").start().stop


@pytest.mark.parametrize(
    "leave",
    [hadoop_value, time_zone, database, system_property, function, stream_of_another_session],
)
def test_what_is_left_in_a_jvm_is_noticed(
    classic_spark: SparkSession, leave: Callable[[SparkSession], Callable[[], Any]]
) -> None:
    # Spark 3.5 sets where its databases are when one is first looked for.
    classic_spark.catalog.listDatabases()
    before = _state(classic_spark)
    undo = leave(classic_spark)
    try:
        assert _state(classic_spark) != before
    finally:
        undo()
    assert _state(classic_spark) == before


def test_a_jvm_is_lent_a_hundred_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """However clean it is: references of borrowers stay in it."""
    session, connection = MagicMock(), create_autospec(socket.socket, instance=True)
    session.sparkContext._gateway.gateway_parameters = SimpleNamespace(port=1, auth_token="t")
    builder = MagicMock()
    builder.config.return_value = builder
    builder.getOrCreate.return_value = session
    monkeypatch.setattr(lent_jvm, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setattr(lent_jvm, "prepare_environment", lambda _: None)
    monkeypatch.setattr(lent_jvm, "_warm_up", lambda _: None)
    monkeypatch.setattr(lent_jvm, "_state", lambda _: "as it was")
    monkeypatch.setattr(lent_jvm, "_is_as_before", lambda *_: True)
    connection.recv.return_value = b"\n"
    lent_jvm.keep(connection, {"spark.master": "local"})
    assert connection.sendall.call_count == 100
