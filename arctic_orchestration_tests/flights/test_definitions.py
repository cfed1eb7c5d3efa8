"""The flights lake as Dagster sees it."""

import socket
from pathlib import Path

import dagster as dg
import pytest

from arctic_orchestration import Arctic
from arctic_orchestration.flights.assets import days, hours, origins_of_days
from arctic_orchestration.flights.definitions import flights_compaction, flights_definitions
from arctic_orchestration.flights.feeds import files_of, first_days
from arctic_orchestration.flights.schedules import flights_schedules


def test_the_partitions_are_the_days_and_files_of_the_year() -> None:
    """365 days, 1,095 files of flights and 8,760 of weather, under the keys by which they land."""
    year = first_days(365)
    assert days.get_partition_keys() == [day.isoformat() for day in year]
    keys = {str(key) for key in origins_of_days.get_partition_keys()}
    assert keys == {file.key for file in files_of(year, ["flights"])}
    assert len(keys) == 1095
    assert hours.get_partition_keys() == [file.key for file in files_of(year, ["weather"])]
    assert len(set(hours.get_partition_keys())) == 8760


def test_loading_the_definitions_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No directory, no catalog, no connection."""

    def refuse(*_: object) -> None:
        raise AssertionError("a connection while definitions were loaded")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    arctic = Arctic(schedules=flights_schedules(), compaction=flights_compaction())
    dg.Definitions.validate_loadable(
        dg.Definitions.merge(flights_definitions(), arctic.definitions())
    )
    assert list(tmp_path.iterdir()) == []
