"""``carrier_days`` takes exactly the files that are new, and what it writes agrees with DuckDB."""

from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from arctic_orchestration.errors import NotFound
from arctic_orchestration.flights.feeds import FeedFile
from arctic_orchestration_tests.flights.conftest import FlightsLake

pytestmark = pytest.mark.usefixtures("spark")

FIRST = ["2013-01-01|EWR", "2013-01-01|JFK"]
SECOND = ["2013-01-01|LGA", "2013-01-02|EWR"]


def announce(lake: FlightsLake, *keys: str) -> None:
    """The files are there, as Dagster is told."""
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
    files = [lake.source.file("flights", FeedFile.from_key(key)).content for key in keys]
    path = Path(lake.settings.lake) / "whole.csv"
    path.write_bytes(files[0] + b"".join(part.split(b"\n", 1)[1] for part in files[1:]))
    with duckdb.connect() as database:
        return database.execute(
            "select make_date(year, month, day) as flight_date, origin, carrier, count(*), "
            "count(*) - count(dep_time), sum(dep_delay)::bigint "
            f"from read_csv('{path}', nullstr = 'NA') group by all order by all"
        ).fetchall()


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
    table = lake.catalog.load_table("nyc.carrier_days")
    held = sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())
    assert held == expected(lake, [*FIRST, *SECOND])
    # A file that was announced and is not there fails, and keeps its partition.
    announce(lake, "2013-01-02|JFK", FIRST[0])
    with pytest.raises(NotFound):
        run(lake)
    assert run(lake) == []
    from arctic_orchestration.flights.carriers import new_files

    progress = new_files.on(lake.instance).progress()
    assert (progress.acknowledged, progress.waiting, progress.resting) == (3, 2, 2)
