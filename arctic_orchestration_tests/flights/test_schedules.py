"""The schedule of ``flights`` in the simulator, with the partitions of the lake."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from arctic_orchestration import Arctic
from arctic_orchestration.code_location.targets import resolved
from arctic_orchestration.flights.assets import feed_files
from arctic_orchestration.flights.definitions import flights_definitions
from arctic_orchestration.flights.schedules import flights_schedules
from arctic_orchestration.scheduling.declared_assets import DeclaredAsset
from arctic_orchestration.scheduling.simulation import DeclaredAssets, read_timeline, simulate
from arctic_orchestration.scheduling.simulation.lines import parse_moment


def runs_of(lines: list[dict[str, Any]], folder: Path, until: str) -> list[tuple[str, list[str]]]:
    """The moment of each run of ``flights``, and the files it is handed."""
    file = folder / "timeline.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arctic = Arctic(schedules=flights_schedules()).definitions()
    graph = dg.Definitions.merge(flights_definitions(), arctic).resolve_asset_graph()
    declared = [resolved(s, graph) for s in flights_schedules() if s.name == "flights"]
    assets = {"raw/flights": DeclaredAsset(partitions=feed_files), "flights": DeclaredAsset()}
    decisions = simulate(
        declared,
        read_timeline(file),
        tick=timedelta(minutes=1),
        until=parse_moment(until),
        assets=DeclaredAssets(assets=assets),
    )
    return [
        (f"{decision.at:%dT%H:%M}", decision.details["partitions"])
        for decision in decisions
        if decision.decision == "launched"
    ]


def landed(at: str, *keys: str) -> list[dict[str, Any]]:
    at = f"2026-01-{at}:00Z"
    event = {"at": at, "event": "partition", "asset": "raw/flights"}
    return [{**event, "partition": f"2013-01-{key}"} for key in keys]


def test_the_three_origins_of_a_day_make_a_run(tmp_path: Path) -> None:
    """Not three files of several days; at night each day that is not complete goes, too."""
    lines = [
        *landed("02T12:00", "01|EWR", "01|JFK", "02|EWR"),
        *landed("02T12:10", "01|LGA", "03|EWR"),
        *landed("03T12:00", "02|LGA"),
    ]
    assert runs_of(lines, tmp_path, "2026-01-04T12:00:00Z") == [
        ("02T12:10", ["2013-01-01|EWR", "2013-01-01|JFK", "2013-01-01|LGA"]),
        # Three in the morning in New York; one run at a time.
        ("03T08:00", ["2013-01-02|EWR"]),
        ("03T08:01", ["2013-01-03|EWR"]),
        ("03T12:00", ["2013-01-02|LGA"]),
    ]
