"""Ticks that were missed while nothing ran, and the rules by which they are made up."""

from typing import Any

import pytest

from arctic_orchestration.schedules.triggers import Arrivals, on
from arctic_orchestration_tests.executed_lines import executed_lines
from arctic_orchestration_tests.schedules.triggers.ticking import due, moment


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["01-01 01:00"]),
        ({"catch_up": "latest"}, ["01-01 01:00"]),
        ({"catch_up": "all"}, [f"01-01 00:{m:02}" for m in range(5, 60, 5)] + ["01-01 01:00"]),
        ({"catch_up": "all", "catch_up_limit": 3}, ["01-01 00:50", "01-01 00:55", "01-01 01:00"]),
        ({"catch_up": "all", "grace": "10m"}, ["01-01 00:55", "01-01 01:00"]),
        ({"catch_up": "latest", "grace": "2m"}, []),
        ({"catch_up": "none"}, []),
        ({"catch_up": "none", "grace": "3m"}, ["01-01 01:00"]),
    ],
)
def test_ticks_that_were_missed_follow_the_rule(
    fields: dict[str, Any], expected: list[str]
) -> None:
    """Every five minutes, nothing ran from 00:05 to 01:03; the next tick is 01:05."""
    cron = on.cron("*/5 * * * *", **fields)
    assert due(cron, "01-01 00:05", "01-01 01:03") == (expected, "01-01 01:05")


def test_a_tick_in_time_is_delivered_whatever_the_rule() -> None:
    """A dispatcher that looks every few seconds sees a tick some seconds late."""
    for rule in ("latest", "all", "none"):
        cron = on.cron("*/5 * * * *", catch_up=rule)
        assert due(cron, "01-01 00:05", "01-01 00:05:04") == (["01-01 00:05"], "01-01 00:10")


def test_a_week_without_a_dispatcher_is_made_up() -> None:
    """Seven nights at four; only the nights of the last two days with a grace of 48 hours."""
    nights = [f"01-{day:02} 04:00" for day in range(2, 9)]
    cron = on.cron("0 4 * * *", catch_up="all")
    assert due(cron, "01-02 04:00", "01-08 12:00") == (nights, "01-09 04:00")
    cron = on.cron("0 4 * * *", catch_up="all", grace="2d")
    assert due(cron, "01-02 04:00", "01-08 12:00") == (nights[-2:], "01-09 04:00")
    assert due(on.cron("0 4 * * *"), "01-02 04:00", "01-08 12:00") == (nights[-1:], "01-09 04:00")


def test_what_is_made_up_on_a_day_of_change_is_in_order_and_once() -> None:
    """Two wall times in one gap are one tick; an hour that repeats is caught up in real time."""
    cron = on.cron("0,30 2 * * *", timezone="America/New_York", catch_up="all")
    assert due(cron, "03-08 07:00", "03-08 12:00")[0] == ["03-08 07:00"]
    cron = on.cron("0,30 1 * * *", timezone="America/New_York", catch_up="all", dst="both")
    wanted = ["11-01 05:00", "11-01 05:30", "11-01 06:00", "11-01 06:30"]
    assert due(cron, "11-01 05:00", "11-01 12:00")[0] == wanted


def test_a_year_without_a_dispatcher_costs_no_year_of_ticks() -> None:
    """Half a million missed minutes: only the newest are looked for."""
    cron = on.cron("* * * * *", catch_up="all", catch_up_limit=3)

    def caught_up() -> None:
        assert due(cron, "2025-01-01 00:01", "01-01 00:00:30")[0] == [
            "12-31 23:58",
            "12-31 23:59",
            "01-01 00:00",
        ]

    # Not one a minute.
    assert executed_lines(caught_up) < 365 * 24 * 60


def test_a_yearly_tick_is_made_up_after_months() -> None:
    """The search goes back as far as the tick that is due."""
    cron = on.cron("0 0 1 1 *")
    assert due(cron, "01-01 00:00", "11-20 12:00") == (["01-01 00:00"], "01-01 00:00")


def test_one_tick_satisfies_and_the_reason_names_the_expression() -> None:
    """Without a tick the trigger is not satisfied."""
    cron = on.cron("0 4 * * *", timezone="Europe/Berlin")
    nothing = cron.evaluate([Arrivals()], moment("01-01"))
    assert (nothing.satisfied, nothing.reason) == (
        False,
        "no tick of cron 0 4 * * * (Europe/Berlin) yet",
    )
    assert cron.evaluate([Arrivals(events=2)], moment("01-01")).satisfied
