"""The flights lake on Iceberg's REST catalog and an object store has the tables of a local one."""

from pathlib import Path

import pytest

from arctic_orchestration.flights.feeds import first_days
from arctic_orchestration.flights.totals import TABLES, compare, totals_of
from arctic_orchestration_tests.flights.conftest import FlightsLake
from arctic_orchestration_tests.served_catalog import served_catalog

pytestmark = pytest.mark.usefixtures("spark")


def test_the_tables_are_the_same_on_a_rest_catalog_and_s3(
    lake: FlightsLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made by the assets, from files to the summary; nothing of them is on this machine's disk."""
    (day,) = first_days(1)
    lake.land_days([day])
    chain = ("flights", "weather", "delays_by_route", "delay_summary")
    assert lake.materialize(*chain, partition=day.isoformat()).success
    local = {table: lake.rows(table) for table in TABLES}
    on_disk = set(lake.settings.lake.rglob("*.parquet"))
    with served_catalog(tmp_path) as environment, monkeypatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        assert lake.materialize(*chain, partition=day.isoformat()).success
        assert compare(lake.catalog, totals_of([day])) == []
        assert {table: lake.rows(table) for table in TABLES} == local
        location = lake.catalog.load_table("nyc.flights").location()
    assert location.startswith("s3://")
    assert set(lake.settings.lake.rglob("*.parquet")) == on_disk
    assert len(local["flights"]) == 842
