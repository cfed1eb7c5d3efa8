"""Schedules that wait for asset checks and freshness policies, by the second."""

from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.simulator import simulate
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.schedules.simulator.test_simulator import (
    BEGIN,
    arrives,
    happens,
    schedule,
    simulated,
)

FAILS = {"event": "check", "asset": "a", "check": "c", "partition": "1", "passed": False}
PASSES = {**FAILS, "passed": True}


def test_a_failed_check_starts_a_run_and_holds_another_until_it_passes() -> None:
    """It fails at 1 s and passes at 5 s; what is held is checked again every 10 s."""
    schedules = [
        schedule("alarm", trigger=on.check("a", "c", status="failed").to_form()),
        schedule("gated", constraints=[only.checks_passed("a", recheck="10s").to_form()]),
    ]
    timeline = happens((0, arrives("1")), (1, FAILS), (2, arrives("2")), (5, PASSES))
    decisions = [
        ((found.at - BEGIN).total_seconds(), found.schedule, found.decision, found.reason)
        for found in simulate(schedules, timeline)
        if found.decision in ("held", "launched")
    ]
    assert [found[:3] for found in decisions] == [
        (0, "gated", "held"),
        (1, "alarm", "launched"),
        (10, "gated", "launched"),
    ]
    assert decisions[0][3] == "no check of a was ever evaluated"


def test_a_change_of_a_freshness_policy_starts_a_run() -> None:
    """To fail, not to warn."""
    schedules = [schedule(trigger=on.freshness("a", state="fail").to_form())]
    changes = [{"event": "freshness", "asset": "a", "state": s} for s in ("pass", "warn", "fail")]
    timeline = happens(*((10 * n, change) for n, change in enumerate(changes)))
    assert simulated(schedules, timeline) == [
        (20, "s", "fired"),
        (20, "s", "launched"),
        (80, "s", "ended"),
    ]


def test_each_request_of_a_source_starts_a_run() -> None:
    """One at a time, each with its own partition; the second waits for the end of the first."""
    schedules = [
        schedule(
            trigger=on.requests("files").to_form(), constraints=[only.concurrency(1).to_form()]
        )
    ]
    asks = [{"event": "request", "sensor": "files", "partition": key} for key in ("x", "y")]
    decisions = simulate(schedules, happens((0, asks[0]), (0, asks[1])))
    launched = [
        ((found.at - BEGIN).total_seconds(), found.details["partitions"])
        for found in decisions
        if found.decision == "launched"
    ]
    assert launched == [(0, ["x"]), (60, ["y"])]


def test_two_failures_are_waited_for() -> None:
    """One that passed between them does not count."""
    trigger = on.check("a", status="failed", count=2).to_form()
    timeline = happens((0, FAILS), (1, PASSES), (2, FAILS))
    assert [found[:3] for found in simulated([schedule(trigger=trigger)], timeline)][:2] == [
        (2, "s", "fired"),
        (2, "s", "launched"),
    ]


def test_each_partition_waits_for_its_own_checks() -> None:
    """The check of partition 1 fails, and passes at 5 s; that of partition 2 has passed."""
    gated = schedule(partitions="each", constraints=[only.checks_passed(recheck="10s").to_form()])
    timeline = happens(
        (0, FAILS),
        (0, {**PASSES, "partition": "2"}),
        (1, arrives("1")),
        (1, arrives("2")),
        (5, PASSES),
    )
    launched = [
        ((found.at - BEGIN).total_seconds(), found.details["partitions"])
        for found in simulate([gated], timeline)
        if found.decision == "launched"
    ]
    assert launched == [(1, ["2"]), (11, ["1"])]


def test_time_since_an_arrival_waits_for_its_check() -> None:
    """No job takes an arrival that has failed its check."""
    since = on.partitions("a", checks=["c"])
    schedules = [schedule(trigger=on.elapsed("10s", since=since).to_form())]

    def launched(*checks: tuple[int, dict[str, object]]) -> object:
        found = simulate(schedules, happens((1, arrives("1")), *checks))
        runs = (one.details["partitions"] for one in found if one.decision == "launched")
        return next(runs, None)

    assert launched((2, FAILS)) is None
    assert launched((2, FAILS), (5, PASSES)) == ["1"]
