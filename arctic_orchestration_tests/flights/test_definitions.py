"""The flights lake as Dagster sees it."""

import socket
from collections.abc import Callable
from datetime import date
from pathlib import Path

import dagster as dg
import pytest

from arctic_orchestration import Arctic
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.flights.assets import days, feed_files
from arctic_orchestration.flights.definitions import flights_compaction, flights_definitions
from arctic_orchestration.flights.feeds import files_of, first_days
from arctic_orchestration.flights.requested import days_filled_by, days_of
from arctic_orchestration.flights.schedules import flights_schedules


def test_the_partitions_are_the_days_and_files_of_the_year() -> None:
    """365 days, and 1,095 files under the keys by which they land."""
    assert days.get_partition_keys() == [day.isoformat() for day in first_days(365)]
    keys = {str(key) for key in feed_files.get_partition_keys()}
    assert keys == {file.key for file in files_of(first_days(365))}
    assert len(keys) == 1095


def test_loading_the_definitions_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No directory, no catalog, no connection."""

    def refuse(*_: object) -> None:
        raise AssertionError("a connection while definitions were loaded")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    arctic = Arctic(schedules=flights_schedules())
    dg.Definitions.validate_loadable(
        dg.Definitions.merge(flights_definitions(), arctic.definitions(), flights_compaction())
    )
    assert list(tmp_path.iterdir()) == []


def test_keys_of_files_and_of_days_name_days() -> None:
    """Three origins of a day are one day."""
    keys = ["2013-01-02|EWR", "2013-01-01", "2013-01-02|JFK", "2013-01-02"]
    assert days_of(keys) == [date(2013, 1, 1), date(2013, 1, 2)]
    for key in ("", "EWR", "2012-12-31", "2013-13-01|EWR"):
        with pytest.raises(InvalidInput, match="a day of 2013"):
            days_of([key])


def test_days_are_collected_over_several_upstream_runs(
    dagster_instance: Callable[[str], dg.DagsterInstance],
) -> None:
    """From the materializations of flights alone, each day once."""
    instance = dagster_instance("sqlite")

    def run(key: str, filled: list[str]) -> str:
        @dg.asset(name=key)
        def filling() -> dg.MaterializeResult:
            return dg.MaterializeResult(metadata={"days": filled})

        return dg.materialize([filling], instance=instance).run_id

    runs = [
        run("flights", ["2013-01-02", "2013-01-01"]),
        run("flights", ["2013-01-02"]),
        run("flights", []),
        run("weather", ["2013-01-07"]),
    ]
    assert days_filled_by(instance, runs) == [date(2013, 1, 1), date(2013, 1, 2)]
    assert days_filled_by(instance, []) == []
