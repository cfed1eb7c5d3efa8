"""``carrier_days`` takes exactly the files that are new, and what it writes agrees with DuckDB."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
import sqlalchemy as sa

from arctic_orchestration import PartitionConsumer
from arctic_orchestration import lake as lake_api
from arctic_orchestration.errors import LeaseLost, NotFound
from arctic_orchestration.flights import carriers
from arctic_orchestration.flights.assets import raw_flights
from arctic_orchestration.flights.feeds import OriginFile
from arctic_orchestration.lake import data_files, table_writer
from arctic_orchestration.state.consumer_tables import consumer_leases
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration_tests.flights.conftest import FlightsLake

pytestmark = pytest.mark.usefixtures("spark")

FIRST = ["2013-01-01|EWR", "2013-01-01|JFK"]
SECOND = ["2013-01-01|LGA", "2013-01-02|EWR"]


@pytest.fixture
def state(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The state database that runs use, once on each backend."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", database_url)
    database = Database(database_url)
    database.upgrade()
    yield database
    database.close()


def announce(lake: FlightsLake, *keys: str) -> None:
    """The files are there, as Dagster's metadata says."""
    for key in keys:
        lake.instance.report_runless_asset_event(
            dg.AssetMaterialization(["raw", "flights"], partition=key)
        )


def run(lake: FlightsLake) -> list[str]:
    """A run of the asset; the partitions that it took."""
    (event,) = lake.materialize("carrier_days").get_asset_materialization_events()
    found: Any = event.materialization.metadata["partitions"].value
    return list(found)


def expected(lake: FlightsLake, keys: list[str]) -> list[tuple[Any, ...]]:
    """The rows of some files, by DuckDB."""
    files = [lake.source.file(OriginFile.from_key(key)).content for key in keys]
    path = Path(lake.settings.lake) / "whole.csv"
    path.write_bytes(files[0] + b"".join(part.split(b"\n", 1)[1] for part in files[1:]))
    with duckdb.connect() as database:
        return database.execute(
            "select make_date(year, month, day) as flight_date, origin, carrier, count(*), "
            "count(*) - count(dep_time), sum(dep_delay)::bigint "
            f"from read_csv('{path}', nullstr = 'NA') group by all order by all"
        ).fetchall()


def held(lake: FlightsLake) -> list[tuple[Any, ...]]:
    """The rows of the table's files, by DuckDB."""
    table = lake.catalog.load_table("nyc.carrier_days")
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    with duckdb.connect() as database:
        return database.execute(f"select * from read_parquet({files!r}) order by all").fetchall()


def expire(database: Database) -> None:
    """The leases have been over for a minute, as if their owners had been stopped."""
    with database.begin() as tx:
        past = database_time(tx) - timedelta(minutes=1)
        tx.execute(sa.update(consumer_leases).values(expires_at=past))


def test_each_run_takes_exactly_what_is_new(
    lake: FlightsLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two files, then two more; then one that failed at first; then nothing."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", f"sqlite:///{tmp_path / 'arctic.db'}")
    lake.land("flights", *FIRST, *SECOND)
    announce(lake, *FIRST)
    assert run(lake) == FIRST
    announce(lake, *SECOND)
    assert run(lake) == SECOND
    assert held(lake) == expected(lake, [*FIRST, *SECOND])
    # A file that was announced and is not there fails, and keeps its partition.
    announce(lake, "2013-01-02|JFK", FIRST[0])
    with pytest.raises(NotFound):
        run(lake)
    assert run(lake) == []
    progress = carriers.new_files.on(lake.instance).progress()
    assert (progress.acknowledged, progress.waiting, progress.resting) == (3, 2, 2)


def test_what_was_committed_and_not_acknowledged_is_in_the_table_once(
    lake: FlightsLake, state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run dies between the two; its files are delivered again, with one that came since."""
    again_at_once = PartitionConsumer(raw_flights, name="carrier_days", retry_after=timedelta(0))
    monkeypatch.setattr(carriers, "new_files", again_at_once)
    lake.land("flights", *FIRST, *SECOND)
    announce(lake, *FIRST)

    def append(*given: Any, **named: Any) -> None:
        table_writer.append(*given, **named)
        raise OSError("the machine is gone")

    with monkeypatch.context() as dying:
        dying.setattr(lake_api, "append", append)
        with pytest.raises(OSError, match="the machine is gone"):
            run(lake)
    assert held(lake) == expected(lake, FIRST)
    progress = again_at_once.on(lake.instance).progress()
    assert (progress.acknowledged, progress.waiting) == (0, 2)
    announce(lake, SECOND[0])
    (event,) = lake.materialize("carrier_days").get_asset_materialization_events()
    metadata: Any = {name: value.value for name, value in event.materialization.metadata.items()}
    assert (metadata["partitions"], metadata["progress"]) == (
        [*FIRST, SECOND[0]],
        "3 of 3 (100.0%)",
    )
    assert held(lake) == expected(lake, [*FIRST, SECOND[0]])
    assert run(lake) == []


def test_a_run_that_was_overtaken_while_spark_worked_commits_nothing(
    lake: FlightsLake, state: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one has its files by then."""
    lake.land("flights", *FIRST)
    announce(lake, *FIRST)
    taken: list[str] = []

    def write_files(*given: Any) -> Any:
        written = appending_write_files(*given)
        expire(state)
        # What was lost with a block comes one by one.
        for _ in FIRST:
            with carriers.new_files.on(lake.instance).consume(owner="another") as partitions:
                taken.extend(partitions.keys)
        return written

    appending_write_files = data_files.write_files
    with monkeypatch.context() as stopped:
        stopped.setattr(table_writer, "write_files", write_files)
        with pytest.raises(LeaseLost, match="others were given its partitions"):
            run(lake)
    assert taken == FIRST
    table = lake.catalog.load_table("nyc.carrier_days")
    assert table.current_snapshot() is None
