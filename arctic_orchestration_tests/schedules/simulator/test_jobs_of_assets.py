"""Runs of jobs whose assets a file declares: they make these assets, as in Dagster."""

from datetime import timedelta

from arctic_orchestration.schedules.simulator import read_declared, simulate
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.schedules.simulator.test_simulator import (
    BEGIN,
    arrives,
    happens,
    schedule,
    simulated,
)

DAILY = {"partitions": {"daily": {"start": "2025-12-30"}}}
DECLARED = {"assets": {"a": DAILY, "summary": DAILY}, "jobs": {"rollup": ["summary"]}}
MAKES = schedule("makes", target="rollup", partitions="each")


def test_a_run_of_a_job_starts_who_listens_to_its_assets() -> None:
    """One that a schedule requested, and one that a line starts; not one of another location."""
    follows = schedule("follows", trigger=on.run(assets=["summary"], status="started").to_form())
    elsewhere = {"event": "run", "job": "rollup", "status": "started", "location": "other"}
    timeline = happens(
        (0, arrives("2025-12-30")), (10, {"do": "start_run", "job": "rollup"}), (20, elsewhere)
    )
    decisions = simulated([MAKES, follows], timeline, assets=read_declared(DECLARED))
    assert [found[0] for found in decisions if found[1:] == ("follows", "fired")] == [1, 10]


def test_what_a_run_of_a_job_made_is_not_missing() -> None:
    """Whether an arrival or a request of a source started it, before the first look."""
    at_three = on.cron("0 3 * * *", partition="all_missing")
    fills = schedule("fills", target="rollup", partitions="each", trigger=at_three.to_form())
    asked = schedule("asked", target="rollup", trigger=on.requests("files").to_form())
    request = {"event": "request", "sensor": "files", "job": "rollup", "partition": "2025-12-30"}
    for maker, line in ((MAKES, arrives("2025-12-30")), (asked, request)):
        decisions = simulate(
            [maker, fills],
            happens((0, line)),
            tick=timedelta(minutes=1),
            until=BEGIN + timedelta(hours=4),
            assets=read_declared(DECLARED),
        )
        fired = [found for found in decisions if found.decision == "fired"]
        assert [found.details["partition"] for found in fired if found.schedule == "fills"] == [
            "2025-12-31"
        ]
