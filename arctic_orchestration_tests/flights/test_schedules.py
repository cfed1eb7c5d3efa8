"""The schedules of the flights lake in the simulator, with the partitions of the lake."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from arctic_orchestration import Arctic
from arctic_orchestration.flights.assets import days, hours, origins_of_days
from arctic_orchestration.flights.definitions import flights_definitions
from arctic_orchestration.flights.feeds import first_days, hours_of
from arctic_orchestration.flights.nightly import nights
from arctic_orchestration.flights.schedules import flights_schedules
from arctic_orchestration.schedules.dagster.targets import resolved
from arctic_orchestration.schedules.declared_assets import DeclaredAsset
from arctic_orchestration.schedules.simulator import DeclaredAssets, read_timeline, simulate
from arctic_orchestration.schedules.simulator.lines import parse_moment

_PARTITIONS = {
    "raw/flights": origins_of_days,
    "raw/weather": hours,
    "nightly_summary": nights,
    **dict.fromkeys(("flights", "weather", "delays_by_route", "delay_summary"), days),
}
ASSETS = DeclaredAssets(
    assets={name: DeclaredAsset(partitions=found) for name, found in _PARTITIONS.items()}
)


def runs_of(
    name: str, lines: list[dict[str, Any]], folder: Path, until: str
) -> list[tuple[str, list[str]]]:
    """The moment of each run of a schedule, and the days that it is for."""
    file = folder / "timeline.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arctic = Arctic(schedules=flights_schedules()).definitions()
    graph = dg.Definitions.merge(flights_definitions(), arctic).resolve_asset_graph()
    declared = [resolved(s, graph) for s in flights_schedules() if s.name == name]
    assert ASSETS.problems(declared) == []
    decisions = simulate(
        declared,
        read_timeline(file),
        tick=timedelta(minutes=1),
        until=parse_moment(f"2026-01-{until}:00Z"),
        run_duration=timedelta(seconds=30),
        assets=ASSETS,
    )
    return [
        (f"{decision.at:%dT%H:%M}", decision.details["partitions"])
        for decision in decisions
        if decision.decision == "launched"
    ]


def arrived(at: str, asset: str, *keys: str) -> list[dict[str, Any]]:
    """Partitions of January 2013 arrive on a day of January 2026."""
    event = {"at": f"2026-01-{at}:00Z", "event": "partition", "asset": asset}
    return [{**event, "partition": f"2013-01-{key}"} for key in keys]


def test_the_three_origins_of_a_day_make_a_run_of_that_day(tmp_path: Path) -> None:
    """Not three files of several days; after six hours without a file, what there is of a day."""
    lines = [
        *arrived("02T12:00", "raw/flights", "01|EWR", "01|JFK", "02|EWR"),
        *arrived("02T12:10", "raw/flights", "01|LGA", "03|EWR"),
        *arrived("02T17:00", "raw/flights", "02|JFK"),
        *arrived("03T12:00", "raw/flights", "02|LGA"),
    ]
    assert runs_of("flights", lines, tmp_path, until="04T12:00") == [
        ("02T12:10", ["2013-01-01"]),
        ("02T18:10", ["2013-01-03"]),
        ("02T23:00", ["2013-01-02"]),
        # A file that comes late is not waited for again.
        ("03T12:00", ["2013-01-02"]),
    ]


def test_24_hours_make_a_day_and_adjacent_days_share_a_run(tmp_path: Path) -> None:
    """Not 24 hours of two days. Two days that are complete at once are one run."""
    first, second, third = ([file.key[8:] for file in hours_of(day)] for day in first_days(3))
    lines = [
        *arrived("02T12:00", "raw/weather", *first[:23], second[0]),
        *arrived("02T12:10", "raw/weather", first[23]),
        *arrived("02T12:20", "raw/weather", *second[1:], *third),
    ]
    assert runs_of("weather", lines, tmp_path, until="03T12:00") == [
        ("02T12:10", ["2013-01-01"]),
        ("02T12:20", ["2013-01-02", "2013-01-03"]),
    ]


def test_routes_and_weather_are_joined_by_day(tmp_path: Path) -> None:
    """Each day with its own weather; a day that stays without goes after six hours."""
    lines = [
        *arrived("02T12:00", "delays_by_route", "01", "02"),
        *arrived("02T12:10", "weather", "03", "02"),
        *arrived("02T12:20", "delays_by_route", "03"),
    ]
    assert runs_of("delay_summary", lines, tmp_path, until="03T12:00") == [
        ("02T12:10", ["2013-01-02"]),
        ("02T12:20", ["2013-01-03"]),
        ("02T18:00", ["2013-01-01"]),
    ]


def test_each_night_there_is_a_summary_of_the_day_that_ended(tmp_path: Path) -> None:
    """At four in New York, which is nine in UTC, of the day before; not of a day of 2013."""
    lines = [{"at": "2026-01-02T12:00:00Z", "do": "advance"}]
    assert runs_of("nightly_summary", lines, tmp_path, until="04T12:00") == [
        ("03T09:00", ["2026-01-02"]),
        ("04T09:00", ["2026-01-03"]),
    ]
