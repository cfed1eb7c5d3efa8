"""The expected contents of the tables, computed from the source's CSV by DuckDB alone.

No code is shared with the pipeline: the CSV comes from the installed package, not from the landing
directory, the sums from DuckDB's SQL and not from Spark, and the tables are read by pyiceberg's own
scan.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog

from arctic_orchestration.flights.feeds import FEEDS
from arctic_orchestration.flights.source import FlightsSource

#: A row's columns by name, without those of its key.
Row = Mapping[str, object]

_FLIGHTS = """
    select make_date(year, month, day) as flight_date, origin,
        count(*) as rows, count(*) - count(dep_time) as cancelled,
        count(distinct (carrier, flight, sched_dep_time, dest)) as different,
        sum(dep_delay) as dep_delay, sum(arr_delay) as arr_delay, sum(dep_time) as dep_time,
        sum(air_time) as air_time, sum(distance) as distance, count(tailnum) as tailnums,
        sum(epoch(time_hour)::bigint) as seconds
    from {flights} where make_date(year, month, day) in (select unnest($days)) group by all
"""

_ROUTES = """
    select make_date(year, month, day) as flight_date, origin, dest,
        count(*) as flights, count(*) - count(dep_time) as cancelled,
        count(dep_delay) as departed, count(arr_delay) as arrived,
        sum(dep_delay) as total_dep_delay, sum(arr_delay) as total_arr_delay,
        avg(dep_delay) as mean_dep_delay, avg(arr_delay) as mean_arr_delay
    from {flights} where make_date(year, month, day) in (select unnest($days)) group by all
"""

_SUMMARY = """
    select flight_date, origin, routes, flights, cancelled, mean_dep_delay, mean_arr_delay,
        weather_hours, lowest_visibility, strongest_wind
    from (
        select make_date(year, month, day) as flight_date, origin, count(distinct dest) as routes,
            count(*) as flights, count(*) - count(dep_time) as cancelled,
            avg(dep_delay) as mean_dep_delay, avg(arr_delay) as mean_arr_delay
        from {flights} where make_date(year, month, day) in (select unnest($days)) group by all
    ) left join (
        select make_date(year, month, day) as flight_date, origin, count(*) as weather_hours,
            min(visib) as lowest_visibility, max(wind_speed) as strongest_wind
        from {weather} group by all
    ) using (flight_date, origin)
"""

_WEATHER = """
    select make_date(year, month, day) as flight_date, origin, count(*) as rows,
        sum(temp) as temp, sum(humid) as humid, sum(wind_dir) as wind_dir,
        sum(pressure) as pressure, sum(epoch(time_hour)::bigint) as seconds
    from {weather} where make_date(year, month, day) in (select unnest($days)) group by all
"""

#: Table → the columns that identify a row of its totals, and the SQL over the CSV.
_TOTALS = {
    "flights": (("flight_date", "origin"), _FLIGHTS),
    "delays_by_route": (("flight_date", "origin", "dest"), _ROUTES),
    "weather": (("flight_date", "origin"), _WEATHER),
    "delay_summary": (("flight_date", "origin"), _SUMMARY),
}

TABLES = tuple(_TOTALS)


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Expected rows of each table by their key, for some days."""

    days: tuple[date, ...]
    tables: Mapping[str, Mapping[tuple[str, ...], Row]]

    def rows(self, table: str) -> int:
        """Returns the number of rows of the table for all days."""
        expected = self.tables[table].values()
        return sum(int(str(row["rows"])) for row in expected) if table in FEEDS else len(expected)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference from the expectation; ``column`` is empty if the whole row differs."""

    table: str
    key: str
    column: str
    got: object
    expected: object

    def __str__(self) -> str:
        what = f".{self.column}" if self.column else ""
        return f"{self.table}[{self.key}]{what}: got {self.got!r}, expected {self.expected!r}"


def totals_of(days: Sequence[date]) -> Totals:
    """Returns the totals of these days, straight from the CSV.

    Errors:
        ConfigurationError: the extra ``flights`` is not installed.
    """
    data = FlightsSource.installed()
    with tempfile.TemporaryDirectory() as directory, duckdb.connect() as database:
        # DuckDB reads no zip archives.
        feeds: dict[str, str] = {}
        for feed in FEEDS:
            path = Path(directory) / f"{feed}.csv"
            path.write_bytes(data.csv(feed))
            database.execute(
                f"create view {feed} as select * from read_csv('{path}', nullstr = 'NA')"
            )
            feeds[feed] = feed
        return Totals(
            days=tuple(sorted(set(days))),
            tables={
                table: _by_key(_rows(database, sql.format(**feeds), days), key)
                for table, (key, sql) in _TOTALS.items()
            },
        )


def compare(catalog: Catalog, totals: Totals, tables: Sequence[str] = TABLES) -> list[Difference]:
    """Returns where the Iceberg tables differ from the totals; empty when they agree.

    A table that is missing or contains rows of other days differs too. Sums of decimals may differ
    in the last digits, since they depend on the order of addition.
    """
    found: list[Difference] = []
    for table in tables:
        identifier = f"nyc.{table}"
        key, sql = _TOTALS[table]
        expected = totals.tables[table]
        if not catalog.table_exists(identifier):
            found.append(
                Difference(table=table, key="", column="", got="no table", expected="a table")
            )
            continue
        held = catalog.load_table(identifier).scan().to_arrow()
        rows = _summed(held, table, sql) if table in FEEDS else held.to_pylist()
        by_key = _by_key(rows, key)
        found += _differences(table, by_key, expected)
        repeated = len(rows) - len(by_key)
        if repeated:
            found.append(
                Difference(table=table, key="", column="repeated rows", got=repeated, expected=0)
            )
    return found


def _summed(held: pa.Table, table: str, sql: str) -> list[Row]:
    """Returns the same sums over the table's rows, for any days."""
    with duckdb.connect() as database:
        database.register("held", held)
        days = database.execute("select distinct make_date(year, month, day) from held").fetchall()
        return _rows(database, sql.format(**{table: "held"}), [day for (day,) in days])


def _rows(database: duckdb.DuckDBPyConnection, sql: str, days: Sequence[date]) -> list[Row]:
    result = database.execute(sql, {"days": list(days)})
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _by_key(rows: Sequence[Row], key: tuple[str, ...]) -> dict[tuple[str, ...], Row]:
    return {
        tuple(str(row[name]) for name in key): {
            name: value for name, value in row.items() if name not in key
        }
        for row in rows
    }


def _differences(
    table: str, got: Mapping[tuple[str, ...], Row], expected: Mapping[tuple[str, ...], Row]
) -> list[Difference]:
    found = []
    for key in sorted(got.keys() | expected.keys()):
        here, there = got.get(key), expected.get(key)
        pairs: list[tuple[str, object, object]]
        if here is None or there is None:
            pairs = [("", _presence(here), _presence(there))]
        else:
            pairs = [
                (name, here.get(name), value)
                for name, value in there.items()
                if not _same(here.get(name), value)
            ]
        found += [
            Difference(table=table, key="|".join(key), column=column, got=have, expected=want)
            for column, have, want in pairs
        ]
    return found


def _presence(row: Row | None) -> str:
    return "nothing" if row is None else "a row"


def _same(got: object, expected: object) -> bool:
    if isinstance(got, float) and isinstance(expected, float):
        return math.isclose(got, expected, rel_tol=1e-12)
    return got == expected
