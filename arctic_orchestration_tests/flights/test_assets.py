"""The assets fill the tables with what DuckDB finds in the CSV, however the files come in."""

import os
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from arctic_orchestration import ArcticResource
from arctic_orchestration.errors import NotFound
from arctic_orchestration.flights.feeds import HourFile, first_days
from arctic_orchestration.flights.landing import LandedFile, Landing
from arctic_orchestration.flights.totals import TABLES, compare, totals_of
from arctic_orchestration_tests.flights.conftest import FlightsLake

TWO_DAYS = first_days(2)
FIRST, SECOND = (day.isoformat() for day in TWO_DAYS)
CHAIN = ("flights", "weather", "delays_by_route", "delay_summary")

pytestmark = pytest.mark.usefixtures("spark")


def test_two_days_from_files_to_summary_agree_with_duckdb(lake: FlightsLake) -> None:
    """842 flights on 1 January and 943 on the 2nd; materializing again changes no table.

    A range of days is one run, of which Dagster has a materialization for each day.
    """
    lake.land_days(TWO_DAYS)
    totals = totals_of(TWO_DAYS)
    assert [totals_of([day]).rows("flights") for day in TWO_DAYS] == [842, 943]

    made = lake.materialize(*CHAIN, partition=FIRST, through=SECOND)
    assert made.success
    assert compare(lake.catalog, totals) == []
    before = {table: lake.rows(table) for table in TABLES}
    # `grep -c ,2013,1,1, weather.csv`, and of the 2nd: each airport in each hour.
    assert rows_by_day(lake, made, "flights") == {FIRST: 842, SECOND: 943}
    assert rows_by_day(lake, made, "weather") == {FIRST: 67, SECOND: 72}
    assert rows_by_day(lake, made, "delay_summary") == {FIRST: 3, SECOND: 3}

    again = lake.materialize(*CHAIN, partition=SECOND)
    assert rows_by_day(lake, again, "flights") == {SECOND: 943}
    assert {table: lake.rows(table) for table in TABLES} == before
    # Of ``make test-versions``: tables of other versions have to have the same rows.
    if "ARCTIC_WRITE_ROWS" in os.environ:
        lake.write_rows(Path(os.environ["ARCTIC_WRITE_ROWS"]), TABLES)


def test_each_column_of_each_flight_survives(lake: FlightsLake) -> None:
    """Table and CSV are the same multiset of rows, all 19 columns, as DuckDB compares them."""
    lake.land_days(TWO_DAYS[:1], "flights")
    lake.materialize("flights", partition=FIRST)
    held = lake.catalog.load_table("nyc.flights").scan().to_arrow()
    text = [lake.source.file(file.file).content for file in _landed(lake)]
    path = lake.settings.lake / "whole.csv"
    path.write_bytes(text[0] + b"".join(part.split(b"\n", 1)[1] for part in text[1:]))
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.register("held", held)
        whole = f"(select * from read_csv('{path}', nullstr='NA'))"
        ours = "(select * exclude (flight_date) from held)"
        assert database.execute(f"select count(*) from {whole}").fetchone() == (842,)
        for one, other in ((whole, ours), (ours, whole)):
            assert database.execute(f"from {one} except all from {other}").fetchall() == []
    assert held.schema.field("time_hour").type == pa.timestamp("us", tz="UTC")


def test_days_in_any_order_make_the_same_tables(lake: FlightsLake) -> None:
    """The second before the first; flights and routes of a day before its weather has landed."""
    lake.land_days(TWO_DAYS, "flights")
    for day in (SECOND, FIRST):
        lake.materialize("flights", "delays_by_route", "delay_summary", partition=day)
    assert {row["weather_hours"] for row in lake.rows("delay_summary")} == {None}
    lake.land_days(TWO_DAYS, "weather")
    for day in (SECOND, FIRST):
        lake.materialize("weather", "delay_summary", partition=day)
    assert compare(lake.catalog, totals_of(TWO_DAYS)) == []


def test_a_file_that_lands_after_its_day_was_made_completes_the_day(lake: FlightsLake) -> None:
    """305 flights of Newark, and all 842 once the other two airports are there."""
    lake.land("flights", f"{FIRST}|EWR")
    lake.materialize("flights", "delays_by_route", partition=FIRST)
    assert len(lake.rows("flights")) == 305
    lake.land_days(TWO_DAYS[:1], "flights")
    lake.materialize("flights", "delays_by_route", partition=FIRST)
    assert compare(lake.catalog, totals_of(TWO_DAYS[:1]), ["flights", "delays_by_route"]) == []


def test_days_on_which_clocks_change_have_all_their_hours(lake: FlightsLake) -> None:
    """23 and 25 files; the weather of 31 December, which nobody observed, is a day of no rows."""
    found = [date(2013, 3, 10), date(2013, 11, 3), date(2013, 12, 31)]
    for day, hours in zip(found, (23, 25, 24), strict=True):
        lake.land_days([day], "weather")
        assert len(Landing.of(lake.settings).landed("weather", [day])) == hours
        assert lake.materialize("weather", partition=day.isoformat()).success
    assert compare(lake.catalog, totals_of(found), ["weather"]) == []


def test_a_file_that_was_announced_and_is_not_there_fails_the_run(
    lake: FlightsLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written, and the message says how to land it."""
    lake.land("flights", f"{FIRST}|EWR")
    arrived = {"raw/flights": [f"{FIRST}|EWR", f"{FIRST}|JFK"]}
    monkeypatch.setattr(ArcticResource, "upstream_partitions", arrived)
    with pytest.raises(NotFound, match=r"raw/flights 2013-01-01\|JFK"):
        lake.materialize("flights", partition=FIRST)
    assert not lake.catalog.table_exists("nyc.flights")


def test_a_day_of_which_nothing_has_landed_fails_the_run(lake: FlightsLake) -> None:
    """Nothing is written, also not of the other day, and the message says which one."""
    lake.land_days(TWO_DAYS[:1], "flights")
    with pytest.raises(dg.Failure, match=f"no file of raw/flights has landed for {SECOND}: land"):
        lake.materialize("flights", partition=FIRST, through=SECOND)
    assert not lake.catalog.table_exists("nyc.flights")


def test_a_file_with_a_broken_cell_changes_nothing(lake: FlightsLake, spark: SparkSession) -> None:
    """A delay that is no number stops the run before anything is committed."""
    lake.land("flights", f"{FIRST}|EWR")
    (landed,) = _landed(lake)
    content = landed.path.read_bytes()
    broken = content.replace(b",1400,5,15,", b",14.0,5,15,")
    assert len(broken) == len(content)
    assert broken != content
    landed.path.write_bytes(broken)
    assert not lake.materialize("flights", partition=FIRST, raising=False).success
    assert lake.rows("flights") == []


def test_materializing_a_raw_partition_lands_its_file(lake: FlightsLake) -> None:
    """As the Materialize button in Dagster does; the event has path, bytes and rows."""
    result = lake.materialize("raw/flights", partition=f"{FIRST}|EWR")
    (landed,) = _landed(lake)
    (event,) = result.asset_materializations_for_node("raw__flights")
    assert event.partition == f"{FIRST}|EWR"
    metadata = {name: value.value for name, value in event.metadata.items()}
    assert metadata == {"path": str(landed.path), "bytes": landed.bytes, "rows": 305}
    lake.materialize("raw/weather", partition="2013-11-03-01:00-0500")
    (hour,) = Landing.of(lake.settings).landed("weather")
    assert hour.file == HourFile.from_key("2013-11-03-01:00-0500")
    assert (hour.path.name, hour.rows) == ("01-0500.csv", 3)


def test_differences_are_named_by_table_key_and_column(lake: FlightsLake) -> None:
    """A missing table, a missing day and a wrong number each have a line."""
    totals = totals_of(TWO_DAYS)
    assert [str(difference) for difference in compare(lake.catalog, totals)] == [
        f"{table}[]: got 'no table', expected 'a table'" for table in TABLES
    ]
    lake.land_days(TWO_DAYS[:1], "flights")
    lake.materialize("flights", partition=FIRST)
    lines = [str(difference) for difference in compare(lake.catalog, totals, ["flights"])]
    assert lines == [
        f"flights[2013-01-02|{origin}]: got 'nothing', expected 'a row'"
        for origin in ("EWR", "JFK", "LGA")
    ]
    key = ("2013-01-01", "EWR")
    wrong = {**totals.tables["flights"], key: {**totals.tables["flights"][key], "rows": 304}}
    differences = compare(
        lake.catalog, type(totals)(days=totals.days, tables={"flights": wrong}), ["flights"]
    )
    assert str(differences[0]) == "flights[2013-01-01|EWR].rows: got 305, expected 304"


def _landed(lake: FlightsLake) -> list[LandedFile]:
    return Landing.of(lake.settings).landed("flights")


def rows_by_day(
    lake: FlightsLake, result: dg.ExecuteInProcessResult, asset: str
) -> dict[str | None, Any]:
    """The rows that each materialization of an asset names, by its partition."""
    entries = lake.instance.all_logs(
        result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
    )
    events = [entry.asset_materialization for entry in entries]
    return {
        event.partition: event.metadata["rows"].value
        for event in events
        if event is not None and event.asset_key == dg.AssetKey(asset)
    }
