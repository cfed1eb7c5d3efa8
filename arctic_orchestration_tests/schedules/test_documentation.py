"""``docs/partitions.md`` says what happens."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from arctic_orchestration.quantities import parse_duration
from arctic_orchestration.schedules.schedule_file import read_schedules
from arctic_orchestration.schedules.simulator import DeclaredAssets, read_declared, simulate
from arctic_orchestration.schedules.simulator.lines import parse_moment
from arctic_orchestration.schedules.simulator.timeline import read_timeline
from arctic_orchestration.yaml_file import load

PAGE = Path(__file__).parents[2].joinpath("docs/partitions.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
NAMED = {
    match[1]: block for block in BLOCKS if (match := re.search(r"- name: (\w+)", block)) is not None
}
THREE = ("emea", "amer", "apac")


def arrive(at: str, *keys: str | None, asset: str = "raw/orders", **more: Any) -> list[Any]:
    given = {"at": f"2026-01-{at}Z", "event": "partition", "asset": asset, **more}
    return [{**given, "partition": key} if key else given for key in keys]


def regions(at: str, day: str, *of: str) -> list[Any]:
    return arrive(at, *(f"2026-01-{day}|{region}" for region in of or THREE))


def checked(at: str, day: str, *, passed: bool) -> dict[str, Any]:
    asset = {"asset": "raw/payments", "check": "no_nulls", "partition": day}
    return {"at": f"2026-01-{at}Z", "event": "check", "passed": passed, **asset}


HOURS = [f"2026-01-02-{hour:02d}:00" for hour in range(24)]
#: what happens, and the moments and partitions of the runs, on days of January
STORIES: dict[str, tuple[list[Any], list[tuple[str, list[str]]]]] = {
    "regions_of_a_day": (
        [*regions("03T00:00:00", "02", "emea", "amer"), *regions("03T01:00:00", "01"),
         *regions("03T02:00:00", "02", "apac")],
        [("03T01:00", ["2026-01-01"]), ("03T02:00", ["2026-01-02"])],
    ),
    "hours_of_a_day": (
        [*arrive("02T23:00:00", *HOURS[:23], asset="raw/hours"),
         *arrive("03T00:10:00", HOURS[23], asset="raw/hours")],
        [("03T00:10", ["2026-01-02"])],
    ),
    "orders_and_payments": (
        [*regions("03T00:00:00", "02"), *arrive("03T01:00:00", "2026-01-01", asset="raw/payments"),
         *arrive("03T02:00:00", "2026-01-02", asset="raw/payments")],
        [("03T02:00", ["2026-01-02"])],
    ),
    "each_night": (
        [{"at": "2026-01-02T12:00:00Z", "do": "advance"},
         {"at": "2026-01-04T12:00:00Z", "do": "advance"}],
        [("03T02:00", ["2026-01-02"]), ("04T02:00", ["2026-01-03"])],
    ),
    "all_or_at_six": (
        [*regions("02T00:30:00", "01"), *regions("02T01:00:00", "02", "emea"),
         {"at": "2026-01-03T12:00:00Z", "do": "advance"}],
        [("02T00:30", ["2026-01-01"]), ("03T06:00", ["2026-01-02"])],
    ),
    "four_commits": (
        [commit for minute in range(5)
         for commit in arrive(f"03T00:0{minute}:00", None, asset="lake/events")],
        [("03T00:03", [])],
    ),
    "late_regions": (
        [*regions("03T00:00:00", "02"), *regions("03T05:00:00", "02", "emea"),
         *regions("03T05:30:00", "02", "apac")],
        [("03T00:00", ["2026-01-02"]), ("03T06:00", ["2026-01-02"])],
    ),
    "no_backfills": (
        [*arrive("03T00:00:00", "2026-01-01", asset="raw/payments", run_id="a", backfill="b"),
         *arrive("03T01:00:00", "2026-01-02", asset="raw/payments", run_id="c")],
        [("03T01:00", ["2026-01-02"])],
    ),
    "report_of_a_day": (
        [*regions("03T00:00:00", "02", "emea", "amer"), *regions("03T01:00:00", "01", "apac"),
         *regions("03T02:00:00", "02", "apac")],
        [("03T02:00", ["2026-01-02|emea", "2026-01-02|amer", "2026-01-02|apac"])],
    ),
    "complete_days": (
        [*regions("03T00:00:00", "02", "emea", "amer"), *regions("03T01:00:00", "02", "apac"),
         *regions("03T05:00:00", "02", "emea")],
        [("03T01:00", ["2026-01-02"]), ("03T05:00", ["2026-01-02"])],
    ),
    "checked_payments": (
        [*arrive("03T00:00:00", "2026-01-01", "2026-01-02", asset="raw/payments",
                 checks=["no_nulls"]),
         checked("03T00:10:00", "2026-01-01", passed=False),
         checked("03T00:20:00", "2026-01-02", passed=True),
         checked("03T05:00:00", "2026-01-01", passed=True)],
        [("03T00:20", ["2026-01-02"]), ("03T05:00", ["2026-01-01"])],
    ),
    "failed_check": (
        [checked("03T00:10:00", "2026-01-01", passed=True),
         checked("03T00:20:00", "2026-01-02", passed=False)],
        [("03T00:20", ["2026-01-02"])],
    ),
    "stale_events": (
        [{"at": f"2026-01-03T00:{minute}:00Z", "event": "freshness", "asset": "lake/events",
          "state": state} for minute, state in ((10, "warn"), (20, "fail"), (30, "pass"))],
        [("03T00:20", [])],
    ),
    "changed_payments": (
        [*arrive("03T00:00:00", "2026-01-01", asset="raw/payments", data_version="a"),
         *arrive("03T01:00:00", "2026-01-01", asset="raw/payments", data_version="a"),
         *arrive("03T02:00:00", "2026-01-01", asset="raw/payments", data_version="b")],
        [("03T00:00", ["2026-01-01"]), ("03T02:00", ["2026-01-01"])],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def assets() -> DeclaredAssets:
    """Those of the first block."""
    return read_declared(load(BLOCKS[0], name="docs"))


def test_each_example_has_a_story() -> None:
    """And all blocks but that of the assets are examples."""
    assert set(NAMED) == set(STORIES)
    assert len(NAMED) == len(BLOCKS) - 1


@pytest.mark.parametrize("name", STORIES)
def test_an_example_runs_as_the_page_says(
    name: str, assets: DeclaredAssets, tmp_path: Path
) -> None:
    """At these moments, and for these partitions of the target."""
    lines, expected = STORIES[name]
    schedules = read_schedules(NAMED[name], name="docs")
    assert assets.problems(schedules) == []
    file = tmp_path / "timeline.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    timeline = read_timeline(file)
    found = [
        (f"{decision.at:%dT%H:%M}", decision.details["partitions"])
        for decision in simulate(
            schedules,
            timeline,
            tick=parse_duration("1m"),
            until=parse_moment("2026-01-04T12:00:00Z") if name == "each_night" else None,
            run_duration=parse_duration("60s"),
            assets=assets,
        )
        if decision.decision == "launched"
    ]
    assert found == expected
