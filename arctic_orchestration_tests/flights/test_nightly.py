"""The nightly summary of what arrived on the day that ended."""

from datetime import timedelta

import dagster as dg
import pytest

from arctic_orchestration.clock import utc_now
from arctic_orchestration.flights import nightly
from arctic_orchestration.flights.feeding import DagsterAnnouncements
from arctic_orchestration_tests.flights.conftest import FlightsLake

NOTHING = {"files": 0, "rows": 0, "bytes": 0}


def test_it_counts_what_arrived_in_its_window_each_file_once(
    lake: FlightsLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever day of 2013 a file is of; what Spark made of it is no arrival."""
    monkeypatch.setattr(nightly, "_PAGE", 2)
    begin = utc_now() - timedelta(seconds=1)
    announcements = DagsterAnnouncements(lake.instance)
    for asset, key, rows in (
        ("raw/flights", "2013-01-01|EWR", 305),
        ("raw/flights", "2013-01-02|EWR", 350),
        ("raw/weather", "2013-01-01-05:00", 3),
        ("raw/weather", "2013-01-01-05:00", 3),
        ("raw/weather", "2013-01-01-06:00", 2),
    ):
        announcements.announce(asset, key, {"rows": rows, "bytes": 10 * rows})
    lake.instance.report_runless_asset_event(dg.AssetMaterialization("flights"))
    end = utc_now() + timedelta(seconds=1)

    assert nightly.arrived(lake.instance, dg.TimeWindow(begin, end)) == {
        "files": 4,
        "raw/flights": {"files": 2, "rows": 655, "bytes": 6550},
        "raw/weather": {"files": 2, "rows": 5, "bytes": 50},
    }
    before = dg.TimeWindow(begin - timedelta(days=1), begin)
    assert nightly.arrived(lake.instance, before) == {
        "files": 0,
        "raw/flights": NOTHING,
        "raw/weather": NOTHING,
    }


def test_a_run_is_for_a_day_of_arrival(lake: FlightsLake) -> None:
    """On the first day of 2026 nothing arrived."""
    made = lake.materialize("nightly_summary", partition="2026-01-01")
    (event,) = made.asset_materializations_for_node("nightly_summary")
    assert event.partition == "2026-01-01"
    assert {name: value.value for name, value in event.metadata.items()} == {
        "files": 0,
        "raw/flights": NOTHING,
        "raw/weather": NOTHING,
    }
