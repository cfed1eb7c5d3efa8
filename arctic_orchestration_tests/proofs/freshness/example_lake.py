"""The flights lake as two days fill it, and what DuckDB finds in the same CSV."""

from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from arctic_orchestration.flights.feeds import first_days
from arctic_orchestration.flights.source import FlightsSource
from arctic_orchestration.flights.tables import DELAY_SUMMARY, DELAYS_BY_ROUTE, FLIGHTS
from arctic_orchestration.flights.totals import totals_of
from arctic_orchestration.lake import ensure_table, open_catalog
from arctic_orchestration.settings import Settings

#: the assets that tasks of the example need, with the tables that they fill
PLAIN_ASSETS = {
    "flights": FLIGHTS,
    "delays_by_route": DELAYS_BY_ROUTE,
    "delay_summary": DELAY_SUMMARY,
}

#: by table: the columns to compare, and the query that makes their rows from the CSV
EXPECTED = {
    "punctuality.carriers": (
        "carrier, flights, cancelled, mean_dep_delay",
        "select carrier, count(*) as flights, count(*) - count(dep_time) as cancelled, "
        "avg(dep_delay) as mean_dep_delay from flights group by 1",
    ),
    "punctuality.hours": (
        "hour, flights",
        "select hour, count(*) as flights from flights group by 1",
    ),
    "punctuality.worst_routes": (
        "origin, dest, flights",
        "select origin, dest, count(*) as flights from flights group by all "
        "having avg(arr_delay) is not null order by avg(arr_delay) desc, origin, dest limit 10",
    ),
    "punctuality.ranking": (
        "place, carrier, aircraft",
        "select rank() over (order by avg(arr_delay) nulls first) as place, carrier, "
        "count(distinct tailnum) as aircraft from flights group by carrier",
    ),
    "network.fleets": (
        "carrier, aircraft",
        "select carrier, count(distinct tailnum) as aircraft from flights "
        "where tailnum is not null group by 1",
    ),
    "network.connections": (
        "origin, dest, miles, carriers, flights",
        "select origin, dest, max(distance) as miles, count(distinct carrier) as carriers, "
        "count(*) as flights from flights group by all",
    ),
    "network.hubs": (
        "origin, destinations, flights, farthest_miles",
        "select origin, count(distinct dest) as destinations, count(*) as flights, "
        "max(distance) as farthest_miles from flights group by 1",
    ),
    "network.busy_days": (
        "flight_date, flights",
        "select flight_date, count(*) as flights from flights group by 1",
    ),
    "network.overview": (
        "origin, flights, best_carrier",
        "select origin, count(*) as flights, (select carrier from flights group by 1 "
        "order by avg(arr_delay) limit 1) as best_carrier from flights group by 1",
    ),
}


class ExampleLake:
    """The lake of ``settings``, filled without runs, and the CSV of the same days in DuckDB."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = settings
        path = directory / "flights.csv"
        path.write_bytes(FlightsSource.installed().csv("flights"))
        self._csv = duckdb.connect()
        self._csv.execute("set timezone = 'UTC'")
        self._csv.execute(
            "create table flights as select make_date(year, month, day) as flight_date, * "
            f"from read_csv('{path}', nullstr = 'NA') where month = 1 and day <= 2"
        )

    def fill(self) -> None:
        """Makes the tables of the plain assets, with the rows of the two days."""
        catalog, totals = open_catalog(self._settings), totals_of(first_days(2))
        for spec in PLAIN_ASSETS.values():
            table = ensure_table(catalog, spec.identifier, spec.schema)
            columns = table.schema().as_arrow()
            if spec is FLIGHTS:
                rows = self._csv.sql(f"select {', '.join(columns.names)} from flights")
                table.append(rows.to_arrow_table().cast(columns))
                continue
            of_table = totals.tables[spec.identifier.removeprefix("nyc.")]
            keys = ("flight_date", "origin", "dest")
            made = [{**dict(zip(keys, key, strict=False)), **row} for key, row in of_table.items()]
            dated = [
                {**row, "flight_date": date.fromisoformat(str(row["flight_date"]))} for row in made
            ]
            table.append(pa.Table.from_pylist(dated, schema=columns))

    def agrees(self, table: str) -> None:
        """Fails unless the table has exactly the rows that DuckDB finds, each once."""
        columns, query = EXPECTED[table]
        expected = self._rows(f"select {columns} from ({query}) order by all")
        held = open_catalog(self._settings).load_table(table).scan().to_arrow()
        self._csv.register("held", held)
        found = self._rows(f"select {columns} from held order by all")
        assert len(held) == len(expected), table
        assert found == [pytest.approx(row) for row in expected], table

    def _rows(self, query: str) -> list[Any]:
        return self._csv.execute(query).fetchall()
