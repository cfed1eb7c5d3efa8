"""``dagster asset materialize`` on the flights assets, as in any Dagster project."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from arctic_orchestration.flights.feeds import first_days
from arctic_orchestration.flights.landing import Landing
from arctic_orchestration.flights.totals import compare, totals_of
from arctic_orchestration_tests.flights.conftest import FlightsLake
from arctic_orchestration_tests.patience import PATIENCE_SECONDS

Starting = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def dagster(lake: FlightsLake, tmp_path: Path) -> Iterator[Starting]:
    """Starts ``dagster asset materialize`` with more arguments, in a process group of its own."""
    command = [sys.executable, "-m", "dagster", "asset", "materialize"]
    command += ["-m", "arctic_orchestration.definitions"]
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"output-{len(started)}").open("wb") as output:
            process = subprocess.Popen(
                [*command, *arguments],
                env={**os.environ, "DAGSTER_HOME": lake.instance.root_directory},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_file_lands_and_a_killed_run_is_run_again(
    lake: FlightsLake, dagster: Starting, tmp_path: Path, spark: SparkSession
) -> None:
    """Killed with Spark's files written or being written, the run leaves no row behind or all."""
    lake.land("flights", "2013-01-01|EWR", "2013-01-01|JFK")
    process = dagster("--select", "raw/flights", "--partition", "2013-01-01|LGA")
    assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / "output-0").read_text()
    assert len(Landing.of(lake.settings).landed("flights")) == 3
    key = dg.AssetKey(["raw", "flights"])
    assert lake.instance.get_materialized_partitions(key) == {"2013-01-01|LGA"}

    process = dagster("--select", "flights", "--partition", "2013-01-01")
    data = lake.settings.lake / "warehouse" / "nyc" / "flights" / "data"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(data.glob("append-*")):
        assert process.poll() is None, (tmp_path / "output-1").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(lake.rows("flights")) in (0, 842)

    assert lake.materialize("flights", partition="2013-01-01").success
    assert compare(lake.catalog, totals_of(first_days(1)), ["flights"]) == []
