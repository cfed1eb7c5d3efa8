"""Cron through days of change, ends of months, leap years and a week without a dispatcher.

Moments are written in UTC and were computed manually; the zone's rule stands beside them. How
one tick follows ``dst`` is in ``test_cron.py``.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from arctic_orchestration.schedules.triggers import on
from arctic_orchestration.schedules.triggers.cron import Cron
from arctic_orchestration_tests.schedules.triggers.ticking import due, moment, shown, ticks

DAY = timedelta(days=1)

# Expression, zone, a span of time, the ticks in it.
THROUGH_CHANGES: list[tuple[str, str, str, str, list[str]]] = [
    # New York, 2026-03-08: 02:00 EST (-5) → 03:00 EDT (-4), at 07:00 UTC.
    ("0 4 * * *", "America/New_York", "03-07 00:00", "03-10 00:00",
     ["03-07 09:00", "03-08 08:00", "03-09 08:00"]),
    ("0 */6 * * *", "America/New_York", "03-08 00:00", "03-09 00:00",
     ["03-08 05:00", "03-08 10:00", "03-08 16:00", "03-08 22:00"]),
    # Quarters of an hour go on in real time: 01:45 EST, 03:00 EDT.
    ("*/15 * * * *", "America/New_York", "03-08 06:29", "03-08 07:16",
     ["03-08 06:30", "03-08 06:45", "03-08 07:00", "03-08 07:15"]),
    # New York, 2026-11-01: 02:00 EDT → 01:00 EST, at 06:00 UTC.
    ("0 4 * * *", "America/New_York", "10-31 00:00", "11-03 00:00",
     ["10-31 08:00", "11-01 09:00", "11-02 09:00"]),
    ("0 */6 * * *", "America/New_York", "11-01 00:00", "11-02 00:00",
     ["11-01 04:00", "11-01 11:00", "11-01 17:00", "11-01 23:00"]),
    ("*/15 * * * *", "America/New_York", "11-01 05:29", "11-01 06:31",
     ["11-01 05:30", "11-01 05:45", "11-01 06:00", "11-01 06:15", "11-01 06:30"]),
    # Berlin, 2026-03-29: 02:00 CET (+1) → 03:00 CEST (+2), at 01:00 UTC; a Sunday.
    ("0 4 * * *", "Europe/Berlin", "03-28 00:00", "03-30 12:00",
     ["03-28 03:00", "03-29 02:00", "03-30 02:00"]),
    ("0 0 * * sun,mon", "Europe/Berlin", "03-28 00:00", "03-31 00:00",
     ["03-28 23:00", "03-29 22:00"]),
    # Berlin, 2026-10-25: 03:00 CEST → 02:00 CET, at 01:00 UTC.
    ("0 4 * * *", "Europe/Berlin", "10-24 00:00", "10-26 12:00",
     ["10-24 02:00", "10-25 03:00", "10-26 03:00"]),
    # Lord Howe, 2026-04-05: 02:00 (+11) → 01:30 (+10:30), at 15:00 UTC of the day before.
    ("0 4 * * *", "Australia/Lord_Howe", "04-03 12:00", "04-06 00:00",
     ["04-03 17:00", "04-04 17:30", "04-05 17:30"]),
    ("*/15 * * * *", "Australia/Lord_Howe", "04-04 14:29", "04-04 15:31",
     ["04-04 14:30", "04-04 14:45", "04-04 15:00", "04-04 15:15", "04-04 15:30"]),
    # Lord Howe, 2026-10-04: 02:00 (+10:30) → 02:30 (+11), at 15:30 UTC of the day before.
    ("0 4 * * *", "Australia/Lord_Howe", "10-02 12:00", "10-05 00:00",
     ["10-02 17:30", "10-03 17:00", "10-04 17:00"]),
    # UTC has no such day.
    ("0 4 * * *", "UTC", "03-07 12:00", "03-09 12:00", ["03-08 04:00", "03-09 04:00"]),
]  # fmt: skip


@pytest.mark.parametrize("policy", ["dagster", "first", "second", "both", "skip"])
@pytest.mark.parametrize(("expression", "zone", "begin", "end", "expected"), THROUGH_CHANGES)
def test_what_stands_beside_a_change_of_clocks_keeps_its_wall_time(
    policy: str, expression: str, zone: str, begin: str, end: str, expected: list[str]
) -> None:
    """Nothing of it is missing or doubled, whatever ``dst`` says of the hour that changes."""
    cron = on.cron(expression, timezone=zone, dst=policy)
    assert shown(ticks(cron, moment(begin), moment(end))) == expected


# ── ends of months and leap years ─────────────────────────────────────────────────────────


def test_the_31st_of_a_zone_follows_its_clock() -> None:
    """Midnight in New York is 05:00 UTC in winter and 04:00 in summer; seven months have one."""
    found = ticks(
        on.cron("0 0 31 * *", timezone="America/New_York"), moment("01-01"), moment("2027-01-01")
    )
    assert shown(found) == [
        "01-31 05:00", "03-31 04:00", "05-31 04:00", "07-31 04:00", "08-31 04:00", "10-31 04:00",
        "12-31 05:00",
    ]  # fmt: skip


def test_the_last_day_of_february_is_the_leap_day_when_there_is_one() -> None:
    """2028 is a leap year; 2027, 2029 and 2100 are not."""
    cron = on.cron("0 0 L 2 *")
    for year, day in ((2027, 28), (2028, 29), (2029, 28), (2100, 28)):
        begin = datetime.fromisoformat(f"{year}-01-01T00:00:00+00:00")
        assert cron.next_tick(begin, "s") == begin.replace(month=2, day=day)


def test_a_leap_day_begins_and_ends_by_the_clock_of_its_zone() -> None:
    """In Kolkata (+5:30) at 18:30 UTC of the 28th, in New York (-5) at 05:00 UTC of the 29th."""
    begin = moment("2028-02-01")
    for zone, expected in (
        ("Asia/Kolkata", "2028-02-28 18:30"),
        ("America/New_York", "2028-02-29 05:00"),
    ):
        cron = on.cron("0 0 29 2 *", timezone=zone)
        assert cron.next_tick(begin, "s") == moment(expected)


def test_every_day_of_a_leap_year_has_one_tick() -> None:
    """366 of them, the day after 28 February is the 29th."""
    found = ticks(on.cron("0 12 * * *"), moment("2028-01-01"), moment("2029-01-01"))
    assert len(found) == 366
    assert shown(found[58:61]) == ["02-28 12:00", "02-29 12:00", "03-01 12:00"]


# ── a week without a dispatcher ───────────────────────────────────────────────────────────

#: 02:30 in New York from 5 to 12 March: EST, then the end of the gap, then EDT.
NIGHTS = ["03-05 07:30", "03-06 07:30", "03-07 07:30", "03-08 07:00", "03-09 06:30",
          "03-10 06:30", "03-11 06:30", "03-12 06:30"]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"catch_up": "latest"}, NIGHTS[-1:]),
        # 06:30 is five and a half hours ago.
        ({"catch_up": "latest", "grace": "5h30m"}, NIGHTS[-1:]),
        ({"catch_up": "latest", "grace": "5h29m"}, []),
        ({"catch_up": "all"}, NIGHTS),
        ({"catch_up": "all", "catch_up_limit": 8}, NIGHTS),
        ({"catch_up": "all", "catch_up_limit": 5}, NIGHTS[-5:]),
        ({"catch_up": "all", "catch_up_limit": 1}, NIGHTS[-1:]),
        # Not before noon of the 9th; the limit still holds.
        ({"catch_up": "all", "grace": "3d"}, NIGHTS[-3:]),
        ({"catch_up": "all", "grace": "3d", "catch_up_limit": 2}, NIGHTS[-2:]),
        # Down to the gap's end, 4 days and 5 hours ago.
        ({"catch_up": "all", "grace": "4d5h"}, NIGHTS[-5:]),
        ({"catch_up": "all", "grace": "5h"}, []),
        ({"catch_up": "none"}, []),
        ({"catch_up": "none", "grace": "5h29m"}, []),
        ({"catch_up": "none", "grace": "6h"}, NIGHTS[-1:]),
        ({"catch_up": "none", "grace": "3d"}, NIGHTS[-1:]),
    ],
)
def test_a_week_that_was_missed_is_made_up_by_the_rule(
    fields: dict[str, Any], expected: list[str]
) -> None:
    """Nothing ran from 5 to 12 March at noon, with a change of clocks between."""
    cron = on.cron("30 2 * * *", timezone="America/New_York", **fields)
    assert due(cron, "03-05 07:30", "03-12 12:00") == (expected, "03-13 06:30")


@pytest.mark.parametrize(
    ("dst", "nights"),
    [
        ("first", ["10-31 05:30", "11-01 05:30", "11-02 06:30"]),
        ("dagster", ["10-31 05:30", "11-01 06:30", "11-02 06:30"]),
        ("both", ["10-31 05:30", "11-01 05:30", "11-01 06:30", "11-02 06:30"]),
        ("skip", ["10-31 05:30", "11-02 06:30"]),
    ],
)
def test_nights_of_autumn_are_made_up_as_they_would_have_been(dst: str, nights: list[str]) -> None:
    """01:30 in New York occurs twice on 1 November, at 05:30 and 06:30 UTC."""
    cron = on.cron("30 1 * * *", timezone="America/New_York", catch_up="all", dst=dst)
    assert due(cron, "10-31 05:30", "11-02 12:00") == (nights, "11-03 06:30")
    assert due(cron, nights[1], "11-02 12:00")[0] == nights[1:]


def test_a_tick_at_the_very_moment_is_delivered_and_not_again() -> None:
    """What is due now is delivered by every rule; the next one is a day later."""
    for rule in ("latest", "all", "none"):
        cron = on.cron("0 4 * * *", catch_up=rule)
        assert due(cron, "01-02 04:00", "01-02 04:00") == (["01-02 04:00"], "01-03 04:00")


def test_a_leap_day_that_was_missed_is_made_up() -> None:
    """Down from 25 February to 3 March 2028; the next one is in 2032."""
    cron = on.cron("0 12 29 2 *")
    found = cron.ticks_due(moment("2028-02-29 12:00"), moment("2028-03-03 00:00"), "s")
    assert found.deliver == (moment("2028-02-29 12:00"),)
    assert found.next_at == moment("2032-02-29 12:00")
    strict: Cron = on.cron("0 12 29 2 *", grace="2d")
    assert strict.ticks_due(moment("2028-02-29 12:00"), moment("2028-03-03"), "s").deliver == ()


def test_the_end_of_a_month_that_was_missed_is_made_up() -> None:
    """The 31st of March and May, requested in June, when there is none."""
    cron = on.cron("0 0 31 * *", catch_up="all")
    assert due(cron, "03-31 00:00", "06-30 12:00") == (
        ["03-31 00:00", "05-31 00:00"],
        "07-31 00:00",
    )


def test_nothing_is_due_before_its_time_when_the_clock_was_set_back() -> None:
    """04:00 was delivered, it is 03:30 once more, and tomorrow's tick is the one to come."""
    for rule in ("latest", "all", "none"):
        cron = on.cron("0 4 * * *", catch_up=rule)
        assert cron.ticks_due(moment("01-03 04:00"), moment("01-02 03:30"), "s").deliver == ()


def test_a_timer_that_other_rules_of_the_zone_have_set_skips_no_tick() -> None:
    """It was set for 03:00; after an update of the zones that moment is no tick, and 04:00 is."""
    for rule in ("latest", "all", "none"):
        cron = on.cron("0 4 * * *", catch_up=rule)
        assert due(cron, "01-02 03:00", "01-02 03:10") == ([], "01-02 04:00")
        assert due(cron, "01-02 03:00", "01-02 04:00") == (["01-02 04:00"], "01-03 04:00")
