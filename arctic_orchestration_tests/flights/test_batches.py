"""The batches of the example: fourteen tasks in two locations, made from two days of flights.

What they hold is compared with what DuckDB finds in the CSV.
"""

import socket
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from arctic_orchestration.definitions import defs as flights_location
from arctic_orchestration.errors import LeaseLost, NotFound, SchemaMismatch
from arctic_orchestration.flights import reports
from arctic_orchestration.flights.batches import NETWORK, PUNCTUALITY
from arctic_orchestration.flights.definitions import flights_freshness
from arctic_orchestration.flights.feeds import first_days
from arctic_orchestration.flights.tables import DELAY_SUMMARY, DELAYS_BY_ROUTE, FLIGHTS
from arctic_orchestration.flights.totals import totals_of
from arctic_orchestration.freshness.batch_file import BatchTask, load_batch
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.dagster import fresh_parents
from arctic_orchestration.freshness.dagster.materialization import TaskRun
from arctic_orchestration.freshness.dagster.materialization import make as make_task
from arctic_orchestration.freshness.graph import TaskGraph
from arctic_orchestration.lake import ensure_table, table_writer
from arctic_orchestration.lake.data_files import write_files
from arctic_orchestration_tests.flights.conftest import FlightsLake

TWO_DAYS = first_days(2)
DAY = "2026-03-02"
#: what stands in for the log of a run
LOG: Any = dg.get_dagster_logger()


def specs() -> tuple[TaskSpec, ...]:
    return (*load_batch(PUNCTUALITY).specs(), *load_batch(NETWORK).specs())


def test_the_batches_need_each_other_without_a_cycle() -> None:
    """Fourteen tasks; three edges lead from one batch into the other, in both directions."""
    found = specs()
    assert len(found) == 14
    batch_of = {spec.name: spec.batch for spec in found}
    across = {
        (spec.name, parent.name)
        for spec in found
        for parent in spec.parents
        if batch_of.get(parent.name, spec.batch) != spec.batch
    }
    assert across == {
        ("punctuality/ranking", "network/fleets"),
        ("network/late_connections", "punctuality/worst_routes"),
        ("network/overview", "punctuality/ranking"),
    }
    graph = TaskGraph(found)
    assert graph.cycle() is None
    parents = {parent.name for spec in found for parent in spec.parents}
    assert {name for name in parents if name not in graph} == {
        "flights", "delays_by_route", "delay_summary"
    }  # fmt: skip


def test_the_workspace_has_both_locations(tmp_path: Path) -> None:
    """And loading them makes and opens nothing."""
    workspace = yaml.safe_load(Path(__file__).parents[2].joinpath("workspace.yaml").read_text())
    modules = [entry["python_module"]["module_name"] for entry in workspace["load_from"]]
    assert modules == ["arctic_orchestration.definitions", "arctic_orchestration.flights.reports"]
    dg.Definitions.validate_loadable(flights_location)
    dg.Definitions.validate_loadable(reports.defs)


def test_each_task_has_a_history_in_its_location() -> None:
    """Those of its own batch, and none of the other's."""
    histories = {}
    for name, location in (("punctuality", flights_location), ("network", reports.defs)):
        graph = location.get_repository_def().asset_graph
        keys = (key.to_user_string() for key in graph.get_all_asset_keys())
        histories[name] = {key for key in keys if key.startswith("arctic/tasks/")}
    for file in (PUNCTUALITY, NETWORK):
        batch = load_batch(file)
        assert histories[batch.name] == {f"arctic/tasks/{task.name}" for task in batch.tasks}
    assert sum(map(len, histories.values())) == 14


def test_loading_the_tasks_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No directory, no catalog, no connection."""

    def refuse(*_: object) -> None:
        raise AssertionError("a connection while definitions were loaded")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    flights_freshness().definitions()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def source(lake: FlightsLake, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The CSV of the two days in DuckDB, as ``flights``."""
    path = tmp_path / "flights.csv"
    path.write_bytes(lake.source.csv("flights"))
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.execute(
            "create table flights as select make_date(year, month, day) as flight_date, * "
            f"from read_csv('{path}', nullstr = 'NA') where month = 1 and day <= 2"
        )
        yield database


@pytest.fixture
def filled(
    lake: FlightsLake,
    source: duckdb.DuckDBPyConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> FlightsLake:
    """A state database, and the tables of the lake as two days fill them, without its assets."""
    monkeypatch.setenv("ARCTIC_DATABASE_URL", f"sqlite:///{tmp_path / 'arctic.db'}")
    totals = totals_of(TWO_DAYS)
    for spec in (FLIGHTS, DELAYS_BY_ROUTE, DELAY_SUMMARY):
        table = ensure_table(lake.catalog, spec.identifier, spec.schema)
        columns = table.schema().as_arrow()
        if spec is FLIGHTS:
            names = ", ".join(columns.names)
            rows = source.sql(f"select {names} from flights").to_arrow_table()
            table.append(rows.cast(columns))
            continue
        of_table = totals.tables[spec.identifier.removeprefix("nyc.")]
        keys = ("flight_date", "origin", "dest")
        made = [{**dict(zip(keys, key, strict=False)), **row} for key, row in of_table.items()]
        dated = [
            {**row, "flight_date": date.fromisoformat(str(row["flight_date"]))} for row in made
        ]
        table.append(pa.Table.from_pylist(dated, schema=columns))
    return lake


@pytest.mark.usefixtures("spark")
def test_all_tasks_are_made_and_agree_with_duckdb(
    filled: FlightsLake, source: duckdb.DuckDBPyConnection
) -> None:
    """Parents first. A partition that is made again takes the place of what it was; another day
    stands beside it."""
    # A run for what one location can make before it needs the other again.
    make(filled, "network/fleets", "network/connections", "network/hubs", "network/busy_days")
    make(filled, *(spec.name for spec in load_batch(PUNCTUALITY).specs()))
    make(filled, "network/late_connections", "network/overview")
    result = reports.defs.resolve_job_def("report_overview").execute_in_process(
        instance=filled.instance
    )
    assert result.success
    again = {"2026-03-02": [842, 943]}
    assert by_day(filled, "network.busy_days") == again
    make(filled, "network/busy_days")
    assert by_day(filled, "network.busy_days") == again
    make(filled, "network/busy_days", day="2026-03-03")
    assert by_day(filled, "network.busy_days") == {**again, "2026-03-03": [842, 943]}

    def holds(table: str, columns: str, sql: str) -> None:
        expected = source.execute(f"select {columns} from ({sql}) order by all").fetchall()
        held = filled.catalog.load_table(table).scan(row_filter=f"as_of = '{DAY}'").to_arrow()
        found = source.execute(f"select {columns} from held order by all").fetchall()
        assert len(held) == len(found)
        assert found == [pytest.approx(row) for row in expected], table

    holds(
        "punctuality.carriers",
        "carrier, flights, cancelled, mean_dep_delay",
        "select carrier, count(*) as flights, count(*) - count(dep_time) as cancelled, "
        "avg(dep_delay) as mean_dep_delay from flights group by 1",
    )
    holds(
        "punctuality.worst_routes",
        "origin, dest, flights",
        "select origin, dest, count(*) as flights from flights group by all "
        "having avg(arr_delay) is not null order by avg(arr_delay) desc, origin, dest limit 10",
    )
    holds(
        "network.hubs",
        "origin, destinations, flights, farthest_miles",
        "select origin, count(distinct dest) as destinations, count(*) as flights, "
        "max(distance) as farthest_miles from flights group by 1",
    )
    holds(
        "network.busy_days",
        "flight_date, flights",
        "select flight_date, count(*) as flights from flights group by 1",
    )
    holds(
        "punctuality.ranking",
        "place, carrier, aircraft",
        "select rank() over (order by avg(arr_delay) nulls first) as place, carrier, "
        "count(distinct tailnum) as aircraft from flights group by carrier",
    )
    best = source.execute(
        "select carrier, (select count(distinct carrier) from flights) from flights "
        "group by 1 order by avg(arr_delay) limit 1"
    ).fetchone()
    card = {row["figure"]: row["value"] for row in rows(filled, "punctuality.scorecard")}
    assert best is not None
    assert (card["best carrier"], card["carriers"]) == (best[0], str(best[1]))
    assert {row["best_carrier"] for row in rows(filled, "network.overview")} == {best[0]}


@pytest.mark.usefixtures("lake")
def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(
    lake: FlightsLake, spark: SparkSession
) -> None:
    """A column where the day goes; other columns than the table has. Views do not stay behind."""

    def made(sql: str, **fields: Any) -> dict[str, Any]:
        task = BatchTask.parse({"name": "x", "sql": sql, "table": "some.rows", **fields})
        run = TaskRun(
            name="x", partition=date(2026, 3, 2), tags={}, log=LOG,
            _session=lambda: spark,
        )  # fmt: skip
        return make_task(task, None, run)

    with pytest.raises(SchemaMismatch, match="x: its rows have a column as_of, which is where"):
        made("select 1 as as_of")
    assert made("select :partition as day, 7 as n")["rows"] == 1
    reads = {"known": "some.rows"}
    assert made("select day, n + 1 as n from known", reads=reads)["rows"] == 1
    assert [(row["day"], row["n"]) for row in rows(lake, "some.rows")] == [(date(2026, 3, 2), 8)]
    assert not spark.catalog.tableExists("known")
    with pytest.raises(SchemaMismatch, match="column m: got int, expected no such column"):
        made("select :partition as day, 9 as m")
    with pytest.raises(
        NotFound, match=r"table 'some.other' is not in catalog lake; there are some"
    ):
        made("select 1 as n from other", reads={"other": "some.other"})
    assert [row["n"] for row in rows(lake, "some.rows")] == [8]


class Held:
    """The right to make a task, until it is taken away."""

    lost = False

    def check(self) -> None:
        """Raises once it was."""
        if self.lost:
            raise LeaseLost("another run has it")


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("is_lost", [False, True], ids=["kept", "lost"])
def test_who_loses_the_task_while_files_are_written_commits_nothing(
    lake: FlightsLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """The rows of who has it now would be overwritten; the files are removed."""

    def made(n: int) -> None:
        task = BatchTask.parse({"name": "x", "sql": f"select {n} as n", "table": "held.rows"})
        day = date(2026, 3, 2)
        make_task(
            task, None,
            TaskRun(name="x", partition=day, tags={}, log=LOG, _session=lambda: spark),
        )  # fmt: skip

    made(1)
    held = Held()

    def written(*arguments: Any) -> Any:
        files = write_files(*arguments)
        held.lost = is_lost
        return files

    monkeypatch.setattr(table_writer, "write_files", written)
    token = fresh_parents._held.set(held)
    try:
        if is_lost:
            with pytest.raises(LeaseLost, match="another run has it"):
                made(2)
        else:
            made(2)
    finally:
        fresh_parents._held.reset(token)
    table = lake.catalog.load_table("held.rows")
    snapshots, expected = (1, [1]) if is_lost else (2, [2])
    assert (len(table.snapshots()), [row["n"] for row in rows(lake, "held.rows")]) == (
        snapshots, expected,
    )  # fmt: skip
    files = list(Path(table.location().removeprefix("file://")).rglob("*.parquet"))
    assert len(files) == snapshots


def make(lake: FlightsLake, *names: str, day: str = DAY) -> None:
    """Materializes tasks manually, in the location that has them."""
    location = flights_location if names[0].startswith("punctuality/") else reports.defs
    result = location.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=lake.instance,
        asset_selection=[dg.AssetKey.from_user_string(name) for name in names],
        partition_key=day,
    )
    assert result.success


def by_day(lake: FlightsLake, table: str) -> dict[str, list[int]]:
    """The flights that a table has under each day of its partitions."""
    found: dict[str, list[int]] = {}
    for row in rows(lake, table):
        found.setdefault(row["as_of"].isoformat(), []).append(row["flights"])
    return found


def rows(lake: FlightsLake, table: str) -> list[dict[str, Any]]:
    found = lake.catalog.load_table(table).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row))
