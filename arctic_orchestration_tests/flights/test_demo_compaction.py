"""What the demo says of compaction: files and scans before and after, and when it is at rest."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test
from pyspark.sql import SparkSession

from arctic_orchestration.compaction.dagster.worker_job import JOB
from arctic_orchestration.compaction.service import CompactionService
from arctic_orchestration.definitions import defs
from arctic_orchestration.flights.demo_compaction import compacted, progress
from arctic_orchestration.flights.feeds import first_days
from arctic_orchestration.flights.totals import compare, totals_of
from arctic_orchestration.state.database import Database
from arctic_orchestration_tests.flights.conftest import FlightsLake

FED = ["flights", "delays_by_route"]
NAMES = [f"nyc.{name}" for name in FED]


@pytest.fixture
def database(lake: FlightsLake, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    database = Database(database_url)
    database.upgrade()
    return database


def feed(lake: FlightsLake, *days: int) -> None:
    """Days arrive, each in a run of its own."""
    for number in days:
        (day,) = first_days(number + 1)[-1:]
        lake.land_days([day], "flights")
        made = lake.materialize("flights", "delays_by_route", partition=day.isoformat())
        assert made.success


def merge(lake: FlightsLake) -> None:
    """A run of the worker."""
    job = defs.get_repository_def().get_job(JOB)
    config = {"queue": "default", "parallelism": 2, "until_idle": 0.0}
    result = job.execute_in_process(
        instance=lake.instance, run_config={"ops": {"merge_small_files": {"config": config}}}
    )
    assert result.success


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_days_that_were_appended_become_one_file_while_more_come(
    lake: FlightsLake, database: Database, spark: SparkSession
) -> None:
    """Four days are merged, two more come, one of them between plan and merge: all rows are right.

    6 files were written of each table, and 3 are left: the merged one, and the last two days, which
    would be merged after an hour.
    """
    feed(lake, 0)
    for name in NAMES:
        with lake.catalog.load_table(name).transaction() as changing:
            changing.set_properties({"arctic.compaction.minor.interval": "1h"})
    feed(lake, 1, 2, 3)
    now = datetime.now(UTC)
    compaction = CompactionService(database, lake.catalog)
    counts = compaction.tick(now)
    assert counts.planned.offered == 2

    def restless() -> str:
        with database.read() as tx:
            return progress(tx, lake.catalog, lake.instance, NAMES).restless

    assert restless().startswith("2 tasks are not finished")
    feed(lake, 4)
    assert "nyc.flights has a snapshot that was not planned yet" in restless()
    merge(lake)
    feed(lake, 5)
    assert compaction.tick(now + timedelta(minutes=1)).committed.snapshots == 2
    compaction.tick(now + timedelta(minutes=2))
    assert restless() == ""
    assert compare(lake.catalog, totals_of(first_days(6)), FED) == []

    for name in NAMES:
        found = compacted(lake.catalog.load_table(name))
        assert found is not None
        assert (found.commits, found.before.files, found.after.files) == (1, 6, 3)
        assert found.before.rows == found.after.rows
        assert min(found.before.seconds, found.after.seconds) > 0
    create_run_for_test(lake.instance, job_name=JOB, status=dg.DagsterRunStatus.STARTED)
    assert restless() == f"1 runs of {JOB} have not ended"

    # The rows of a day that was compacted are written again: there is nothing to compare with.
    assert lake.materialize("flights", partition="2013-01-02").success
    assert compare(lake.catalog, totals_of(first_days(6)), FED) == []
    assert compacted(lake.catalog.load_table("nyc.flights")) is None


def test_a_table_that_is_not_compacted_yet_is_as_it_was_written(
    lake: FlightsLake, spark: SparkSession
) -> None:
    """No commit, and the same files before and after; a day that is written twice counts once."""
    lake.land_days(first_days(2), "flights")
    for day in ("2013-01-01", "2013-01-02", "2013-01-01"):
        lake.materialize("flights", partition=day)
    found = compacted(lake.catalog.load_table("nyc.flights"))
    assert found is not None
    assert (found.commits, found.before.files, found.after.files) == (0, 2, 2)
