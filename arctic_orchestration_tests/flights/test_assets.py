"""The assets fill the tables with what DuckDB finds in the CSV, however the files come in."""

from datetime import date

import dagster as dg
import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from arctic_orchestration.errors import NotFound
from arctic_orchestration.flights.feeds import first_days
from arctic_orchestration.flights.landing import LandedFile, Landing
from arctic_orchestration.flights.requested import days_filled_by
from arctic_orchestration.flights.totals import DAYTIME, compare, totals_of
from arctic_orchestration_tests.flights.conftest import FlightsLake

TWO_DAYS = first_days(2)
ALL = (*DAYTIME, "weather", "delay_summary")

pytestmark = pytest.mark.usefixtures("spark")


def test_two_days_from_files_to_summary_agree_with_duckdb(lake: FlightsLake) -> None:
    """842 flights on 1 January and 943 on the 2nd; materializing again changes no table."""
    lake.land_days("flights", TWO_DAYS)
    lake.land_days("weather", TWO_DAYS)
    totals = totals_of(TWO_DAYS)
    assert totals.flights_by_day == {date(2013, 1, 1): 842, date(2013, 1, 2): 943}

    chain = (("flights",), ("delays_by_route",), ("weather", "delay_summary"))
    for assets in chain:
        assert lake.materialize(*assets).success
    assert compare(lake.catalog, totals, ALL) == []
    before = {table: lake.rows(table) for table in ALL}

    assert lake.materialize(
        "flights", partitions=["2013-01-01|EWR", "2013-01-01|JFK", "2013-01-02|LGA"]
    ).success
    for day in TWO_DAYS:
        assert lake.materialize("delays_by_route", partition=day.isoformat()).success
    assert lake.materialize("weather", "delay_summary").success
    assert {table: lake.rows(table) for table in ALL} == before


def test_each_column_of_each_flight_survives(lake: FlightsLake) -> None:
    """Table and CSV are the same multiset of rows, all 19 columns, as DuckDB compares them."""
    lake.land_days("flights", TWO_DAYS[:1])
    lake.materialize("flights")
    held = lake.catalog.load_table("nyc.flights").scan().to_arrow()
    text = [lake.source.file("flights", file.file).content for file in _landed(lake)]
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


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_files_of_two_days_in_mixed_jobs_make_the_same_table(
    lake: FlightsLake, order: tuple[int, ...]
) -> None:
    """Three runs whose files cross the days and overlap, in several orders."""
    lake.land_days("flights", TWO_DAYS)
    runs = [
        ["2013-01-01|EWR", "2013-01-02|LGA", "2013-01-01|JFK"],
        ["2013-01-02|EWR", "2013-01-01|LGA", "2013-01-02|LGA"],
        ["2013-01-02|JFK", "2013-01-01|EWR"],
    ]
    for number in order:
        assert lake.materialize("flights", partitions=runs[number]).success
    assert compare(lake.catalog, totals_of(TWO_DAYS), ["flights"]) == []


def test_a_rollup_after_half_a_day_is_made_whole_by_the_next(lake: FlightsLake) -> None:
    """What is behind is found by counting, when nobody names a day."""
    lake.land_days("flights", TWO_DAYS)
    lake.materialize("flights", partitions=["2013-01-01|EWR"])
    lake.materialize("delays_by_route", partition="2013-01-01")
    differences = compare(lake.catalog, totals_of(TWO_DAYS[:1]))
    assert {difference.table for difference in differences} == {"flights", "delays_by_route"}
    lake.materialize("flights", partitions=["2013-01-01|JFK", "2013-01-01|LGA"])
    result = lake.materialize("delays_by_route")
    assert compare(lake.catalog, totals_of(TWO_DAYS[:1])) == []
    assert _partitions(lake, result) == ["2013-01-01"]
    assert _partitions(lake, lake.materialize("delays_by_route")) == []


def test_a_run_that_is_for_no_file_takes_those_that_are_missing(lake: FlightsLake) -> None:
    """It says which days it filled; the next one has nothing left to do."""
    lake.land("flights", "2013-01-01|EWR", "2013-01-02|JFK")
    lake.materialize("flights", partitions=["2013-01-01|EWR"])
    result = lake.materialize("flights")
    assert days_filled_by(lake.instance, [result.run_id]) == [date(2013, 1, 2)]
    snapshot = lake.catalog.load_table("nyc.flights").current_snapshot()
    assert days_filled_by(lake.instance, [lake.materialize("flights").run_id]) == []
    assert lake.catalog.load_table("nyc.flights").current_snapshot() == snapshot


def test_a_range_of_days_is_one_run(lake: FlightsLake) -> None:
    """Dagster records both partitions."""
    lake.land_days("flights", TWO_DAYS)
    lake.materialize("flights")
    result = lake.materialize(
        "delays_by_route",
        tags={
            "dagster/asset_partition_range_start": "2013-01-01",
            "dagster/asset_partition_range_end": "2013-01-02",
        },
    )
    assert _partitions(lake, result) == ["2013-01-01", "2013-01-02"]
    assert compare(lake.catalog, totals_of(TWO_DAYS)) == []


def test_a_file_that_was_announced_and_is_not_there_fails_the_run(lake: FlightsLake) -> None:
    """Nothing is written, and the message says how to land it."""
    lake.land("flights", "2013-01-01|EWR")
    with pytest.raises(NotFound, match=r"raw/flights 2013-01-01\|JFK"):
        lake.materialize("flights", partitions=["2013-01-01|EWR", "2013-01-01|JFK"])
    assert lake.rows("flights") == []


def test_a_file_with_a_broken_cell_changes_nothing(lake: FlightsLake, spark: SparkSession) -> None:
    """A delay that is no number stops the run before anything is committed."""
    lake.land("flights", "2013-01-01|EWR")
    (landed,) = _landed(lake)
    content = landed.path.read_bytes()
    broken = content.replace(b",1400,5,15,", b",14.0,5,15,")
    assert len(broken) == len(content) and broken != content
    landed.path.write_bytes(broken)
    assert not lake.materialize("flights", raising=False).success
    assert lake.rows("flights") == []


def test_materializing_a_raw_partition_lands_its_file(lake: FlightsLake) -> None:
    """As the Materialize button in Dagster does; the event has path, bytes and rows."""
    result = lake.materialize("raw/flights", partition="2013-01-01|EWR")
    (landed,) = _landed(lake)
    (event,) = result.asset_materializations_for_node("raw__flights")
    assert event.partition == "2013-01-01|EWR"
    metadata = {name: value.value for name, value in event.metadata.items()}
    assert metadata == {"path": str(landed.path), "bytes": landed.bytes, "rows": 305}


def test_differences_are_named_by_table_key_and_column(lake: FlightsLake) -> None:
    """A missing table, a missing day and a wrong number each have a line."""
    totals = totals_of(TWO_DAYS)
    assert [str(difference) for difference in compare(lake.catalog, totals)] == [
        "flights[]: got 'no table', expected 'a table'",
        "delays_by_route[]: got 'no table', expected 'a table'",
    ]
    lake.land_days("flights", TWO_DAYS[:1])
    lake.materialize("flights")
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


def _partitions(lake: FlightsLake, result: dg.ExecuteInProcessResult) -> list[str]:
    """The partitions of which a run recorded a materialization."""
    entries = lake.instance.all_logs(
        result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
    )
    found = [entry.asset_materialization for entry in entries]
    return sorted(event.partition for event in found if event and event.partition)
