"""``window``: when it is open, on ordinary days and on those on which clocks change.

Moments are written in UTC. Those of days of change were computed manually from the zone's
rule, which stands beside them.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.constraints import Decision, only
from arctic_orchestration.schedules.constraints.window import DAYS, Window
from arctic_orchestration_tests.schedules.constraints.known import Known, moment

TICK = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)


def opening_after(window: Window, begin: str) -> tuple[str, str]:
    """The next opening after a moment, as text."""
    opens_at = window.opens_at(moment(begin))
    closes_at = window.closes_at(opens_at)
    assert closes_at is not None
    return f"{opens_at:%m-%d %H:%M}", f"{closes_at:%m-%d %H:%M}"


# ── days of change ────────────────────────────────────────────────────────────────────────

# Start, end, zone, a moment before, and the next opening in UTC.
CHANGES: list[tuple[str, str, str, str, tuple[str, str]]] = [
    # New York, 2026-03-08: 02:00 EST (-5) → 03:00 EDT (-4), at 07:00 UTC.
    # Seven hours: 22:00 EST to 06:00 EDT.
    ("22:00", "06:00", "America/New_York", "03-08 00:00", ("03-08 03:00", "03-08 10:00")),
    # 02:30 does not exist: from 03:00 EDT on.
    ("02:30", "04:00", "America/New_York", "03-08 00:00", ("03-08 07:00", "03-08 08:00")),
    # It ends at 02:30, which does not exist: until 03:00 EDT.
    ("01:30", "02:30", "America/New_York", "03-08 00:00", ("03-08 06:30", "03-08 07:00")),
    # All of it does not exist: the next day, 02:00 EDT.
    ("02:00", "03:00", "America/New_York", "03-08 00:00", ("03-09 06:00", "03-09 07:00")),
    ("02:15", "02:45", "America/New_York", "03-08 00:00", ("03-09 06:15", "03-09 06:45")),
    # New York, 2026-11-01: 02:00 EDT → 01:00 EST, at 06:00 UTC.
    # Nine hours: 22:00 EDT to 06:00 EST.
    ("22:00", "06:00", "America/New_York", "11-01 00:00", ("11-01 02:00", "11-01 11:00")),
    # Two hours: 01:00 EDT to 02:00 EST.
    ("01:00", "02:00", "America/New_York", "11-01 00:00", ("11-01 05:00", "11-01 07:00")),
    # It starts at the first 01:30, EDT.
    ("01:30", "06:00", "America/New_York", "11-01 00:00", ("11-01 05:30", "11-01 11:00")),
    # It ends at the first 01:30, EDT.
    ("22:00", "01:30", "America/New_York", "11-01 00:00", ("11-01 02:00", "11-01 05:30")),
    ("01:15", "01:45", "America/New_York", "11-01 00:00", ("11-01 05:15", "11-01 05:45")),
    # An ordinary night: eight hours, EDT.
    ("22:00", "06:00", "America/New_York", "07-01 12:00", ("07-02 02:00", "07-02 10:00")),
    # Berlin, 2026-03-29: 02:00 CET (+1) → 03:00 CEST (+2), at 01:00 UTC.
    ("22:00", "06:00", "Europe/Berlin", "03-28 12:00", ("03-28 21:00", "03-29 04:00")),
    ("02:30", "05:00", "Europe/Berlin", "03-28 12:00", ("03-29 01:00", "03-29 03:00")),
    ("02:00", "02:59", "Europe/Berlin", "03-28 12:00", ("03-30 00:00", "03-30 00:59")),
    # Berlin, 2026-10-25: 03:00 CEST → 02:00 CET, at 01:00 UTC.
    ("22:00", "06:00", "Europe/Berlin", "10-24 12:00", ("10-24 20:00", "10-25 05:00")),
    ("02:00", "03:00", "Europe/Berlin", "10-24 12:00", ("10-25 00:00", "10-25 02:00")),
    ("01:00", "02:30", "Europe/Berlin", "10-24 12:00", ("10-24 23:00", "10-25 00:30")),
    # Lord Howe, 2026-04-05: 02:00 (+11) → 01:30 (+10:30), at 15:00 UTC of the day before.
    # Eight and a half hours.
    ("22:00", "06:00", "Australia/Lord_Howe", "04-04 10:00", ("04-04 11:00", "04-04 19:30")),
    ("01:45", "03:00", "Australia/Lord_Howe", "04-04 12:00", ("04-04 14:45", "04-04 16:30")),
    ("01:00", "01:45", "Australia/Lord_Howe", "04-04 12:00", ("04-04 14:00", "04-04 14:45")),
    # Lord Howe, 2026-10-04: 02:00 (+10:30) → 02:30 (+11), at 15:30 UTC of the day before.
    # Seven and a half hours.
    ("22:00", "06:00", "Australia/Lord_Howe", "10-03 10:00", ("10-03 11:30", "10-03 19:00")),
    ("02:15", "03:00", "Australia/Lord_Howe", "10-03 12:00", ("10-03 15:30", "10-03 16:00")),
    ("02:00", "02:30", "Australia/Lord_Howe", "10-03 12:00", ("10-04 15:00", "10-04 15:30")),
    # UTC has no such days, and Kolkata (+5:30) neither.
    ("22:00", "06:00", "UTC", "03-08 12:00", ("03-08 22:00", "03-09 06:00")),
    ("22:00", "06:00", "Asia/Kolkata", "03-08 12:00", ("03-08 16:30", "03-09 00:30")),
    # Saint John's, 2026-03-08: 02:00 (-3:30) → 03:00 (-2:30), at 05:30 UTC.
    ("22:00", "06:00", "America/St_Johns", "03-08 00:00", ("03-08 01:30", "03-08 08:30")),
    # Cairo, 2026-04-24: midnight → 01:00 (+3), at 22:00 UTC of the day before.
    ("00:00", "02:00", "Africa/Cairo", "04-23 12:00", ("04-23 22:00", "04-23 23:00")),
    # Cairo, 2026-10-29: midnight → 23:00 (+2) of the same day, at 21:00 UTC: the 29th shows
    # 23:00 twice, and its midnight comes at 22:00 UTC.
    ("23:00", "01:00", "Africa/Cairo", "10-29 12:00", ("10-29 20:00", "10-29 23:00")),
]  # fmt: skip


@pytest.mark.parametrize(("start", "end", "zone", "before", "expected"), CHANGES)
def test_an_opening_on_a_day_of_change_is_exact(
    start: str, end: str, zone: str, before: str, expected: tuple[str, str]
) -> None:
    """To the microsecond: the beginning is inside, the end is not."""
    window = only.window(start, end, timezone=zone)
    assert opening_after(window, before) == expected
    begin, close = (moment(text) for text in expected)
    assert [window.is_open(at) for at in (begin - TICK, begin, close - TICK, close)] == [
        False, True, True, False,
    ]  # fmt: skip


def test_windows_that_meet_leave_no_hole_and_do_not_overlap() -> None:
    """Each quarter of an hour of the nights of change is in exactly one of three."""
    for zone in ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe"):
        for cut in ("01:30", "01:45", "02:00", "02:15", "02:30"):
            parts = [("18:00", cut), (cut, "09:00"), ("09:00", "18:00")]
            windows = [only.window(start, end, timezone=zone) for start, end in parts]
            for day in ("03-08", "03-29", "04-04", "10-03", "10-25", "11-01"):
                for quarter in range(24 * 4):
                    at = moment(f"{day} 00:00") + quarter * timedelta(minutes=15)
                    assert sum(window.is_open(at) for window in windows) == 1


# ── days of the week and of the calendar ──────────────────────────────────────────────────


def test_a_night_belongs_to_the_day_on_which_it_starts() -> None:
    """2 January 2026 is a Friday: that night, and neither the one before nor the one after."""
    window = only.window("22:00", "06:00", days="fri")
    assert opening_after(window, "01-01 00:00") == ("01-02 22:00", "01-03 06:00")
    assert window.is_open(moment("01-03 05:59"))
    assert not window.is_open(moment("01-02 05:00"))
    assert not window.is_open(moment("01-03 23:00"))
    assert window.opens_at(moment("01-02 22:00")) == moment("01-09 22:00")


def test_a_night_of_change_belongs_to_the_day_before() -> None:
    """Clocks change on a Sunday: the Saturday's night is the one of nine hours."""
    saturdays = only.window("22:00", "06:00", timezone="America/New_York", days=["sat"])
    assert opening_after(saturdays, "10-30 12:00") == ("11-01 02:00", "11-01 11:00")
    sundays = only.window("22:00", "06:00", timezone="America/New_York", days=["sun"])
    # 22:00 EST is 03:00 UTC of Monday.
    assert opening_after(sundays, "10-30 12:00") == ("11-02 03:00", "11-02 11:00")


def test_a_day_on_which_the_window_lies_in_the_gap_is_left_out() -> None:
    """Sundays between two and three: not on 8 March, but on 15 March, at 06:00 UTC."""
    window = only.window("02:00", "03:00", timezone="America/New_York", days="sun")
    assert opening_after(window, "03-02 00:00") == ("03-15 06:00", "03-15 07:00")


def test_the_leap_day_has_its_window() -> None:
    """29 February 2028 is a Tuesday; its night ends on 1 March."""
    window = only.window("22:00", "06:00", days="tue")
    assert window.opens_at(moment("2028-02-28 12:00")) == moment("2028-02-29 22:00")
    assert window.closes_at(moment("2028-03-01 01:00")) == moment("2028-03-01 06:00")
    daily = only.window("22:00", "06:00")
    assert daily.closes_at(moment("2028-02-28 23:00")) == moment("2028-02-29 06:00")


def test_a_night_may_end_in_the_next_month_or_year() -> None:
    """31 January and New Year's Eve."""
    window = only.window("22:00", "06:00")
    assert window.closes_at(moment("01-31 23:00")) == moment("02-01 06:00")
    assert window.closes_at(moment("12-31 23:00")) == moment("2027-01-01 06:00")


def test_whole_days_can_be_named() -> None:
    """Saturday and Sunday, each from midnight to midnight; Monday is closed."""
    weekend = only.window("00:00", "24:00", timezone="Europe/Berlin", days=["sat", "sun"])
    # Midnight of Saturday, 3 January, in Berlin (+1).
    assert opening_after(weekend, "01-01 00:00") == ("01-02 23:00", "01-03 23:00")
    assert opening_after(weekend, "01-02 23:00") == ("01-03 23:00", "01-04 23:00")
    assert weekend.is_open(moment("01-03 23:00"))
    assert not weekend.is_open(moment("01-04 23:00"))
    # 24 hours of wall time on the day of change are 23 in real time.
    assert opening_after(weekend, "03-28 12:00") == ("03-28 23:00", "03-29 22:00")


def test_an_end_at_midnight_may_be_written_both_ways() -> None:
    """``24:00`` is the midnight after the start, and so is ``00:00`` of an end."""
    for end in ("24:00", "00:00"):
        window = only.window("20:00", end)
        assert opening_after(window, "01-01 21:00") == ("01-02 20:00", "01-03 00:00")


def test_a_day_that_a_zone_left_out_has_no_opening() -> None:
    """Samoa went from Thursday 29 to Saturday 31 December 2011, at 10:00 UTC of the 30th."""
    fridays = only.window("08:00", "10:00", timezone="Pacific/Apia", days="fri")
    # Friday, 6 January 2012, at 08:00 (+14).
    assert fridays.opens_at(moment("2011-12-28 00:00")) == moment("2012-01-05 18:00")
    nights = only.window("22:00", "06:00", timezone="Pacific/Apia", days="thu")
    assert nights.closes_at(moment("2011-12-30 09:00")) == moment("2011-12-30 10:00")


# ── the verdict ───────────────────────────────────────────────────────────────────────────


def test_it_holds_until_the_window_opens_and_says_when() -> None:
    """In UTC, to the second."""
    window = only.window("22:00", "06:00", timezone="America/New_York")
    held = window.decide(Known(), moment("03-07 20:00"))
    assert held.decision is Decision.HOLD
    assert held.recheck_at == moment("03-08 03:00")
    assert held.reason == (
        "the window 22:00-06:00 (America/New_York) opens at 2026-03-08 03:00:00Z"
    )
    admitted = window.decide(Known(), moment("03-08 03:00"))
    assert (admitted.decision, admitted.reason) == (
        Decision.ADMIT,
        "the window 22:00-06:00 (America/New_York) is open until 2026-03-08 10:00:00Z",
    )
    assert window.decide(Known(), moment("03-08 10:00")).decision is Decision.HOLD


def test_otherwise_cancel_discards_outside_of_the_window() -> None:
    """With the same reason."""
    window = only.window("22:00", "06:00", otherwise="cancel")
    verdict = window.decide(Known(), moment("01-01 12:00"))
    assert (verdict.decision, verdict.recheck_at) == (Decision.CANCEL, None)
    assert verdict.reason == "the window 22:00-06:00 (UTC) opens at 2026-01-01 22:00:00Z"
    assert window.decide(Known(), moment("01-01 23:00")).decision is Decision.ADMIT


@pytest.mark.parametrize(
    ("fields", "field", "expected"),
    [
        ({"start": "22"}, "start", 'a time of day such as "22:00"'),
        # YAML without quotes.
        ({"start": 1320}, "start", "a time of day in quotes: YAML reads 22:00 without them as"),
        ({"start": "24:00"}, "start", 'a time from "00:00" to "23:59"'),
        ({"end": "24:01"}, "end", "a time of day"),
        ({"end": "6:00"}, "end", "a time of day"),
        ({"end": "06:00:30"}, "end", "a time of day"),
        ({"end": "06:60"}, "end", "a time of day"),
        ({"end": time(6)}, "end", "a time of day"),
        ({"end": "06:00\n"}, "end", "a time of day"),
        ({"days": []}, "days", "at least one day"),
        ({"days": "weekend"}, "days[0]", "'mon', 'tue'"),
        ({"days": ["mon", "Tue"]}, "days[1]", "'mon', 'tue'"),
        ({"days": [0]}, "days[0]", "'mon', 'tue'"),
        ({"timezone": "Mars"}, "timezone", "a time zone of the IANA database"),
        ({"timezone": "+02:00"}, "timezone", "a time zone of the IANA database"),
    ],
)
def test_what_cannot_be_a_window_is_refused(
    fields: dict[str, Any], field: str, expected: str
) -> None:
    """Each by its own field."""
    form = {"start": "22:00", "end": "06:00", **fields}
    with pytest.raises(InvalidDefinition) as refusal:
        only.window(form.pop("start"), form.pop("end"), **form)
    (problem,) = refusal.value.problems
    assert problem.field == f"window.{field}"
    assert expected in problem.expected


@pytest.mark.parametrize("both", ["22:00", "00:00"])
def test_a_window_without_a_length_is_refused(both: str) -> None:
    """It might mean never or always; always is from 00:00 to 24:00."""
    with pytest.raises(InvalidDefinition) as refusal:
        only.window(both, both)
    (problem,) = refusal.value.problems
    assert problem.expected == "an end that is not the start; a whole day is 00:00 to 24:00"


def test_days_are_a_set_in_the_order_of_the_week() -> None:
    """Written twice or in another order, it is the same window."""
    window = only.window("22:00", "06:00", days=["sun", "mon", "sun"])
    assert window == only.window("22:00", "06:00", days=["mon", "sun"])
    assert only.window("22:00", "06:00", days=list(reversed(DAYS))) == only.window("22:00", "06:00")


# ── against a search minute by minute ─────────────────────────────────────────────────────

ZONES = ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "UTC", "Asia/Kolkata",
         "America/St_Johns", "Africa/Cairo", "America/Havana", "Asia/Beirut", "Pacific/Apia",
         "America/Santiago", "Antarctica/Troll")  # fmt: skip
#: Around the changes of 2026; a day that was left out; a change one minute after midnight.
AROUND = ("03-07", "03-08", "03-28", "03-29", "04-04", "04-05", "04-23", "09-05", "09-06", "10-03",
          "10-04", "10-24", "10-25", "10-29", "11-01", "01-15", "2028-02-28", "2011-12-29",
          "2010-11-06")  # fmt: skip


def walk(window: Window, begin: datetime) -> Iterator[tuple[datetime, date | None]]:
    """Each minute from ``begin`` on, with the start day of the opening in which it lies.

    Nothing but conversions to wall time: it is open as long as the latest time that the clock
    has shown so far, before it was set back, lies between start and end.
    """
    zone = ZoneInfo(window.timezone)
    start = time.fromisoformat(window.start)
    end = time.max if window.end == "24:00" else time.fromisoformat(window.end)
    shown = datetime(1970, 1, 1)
    at = begin - timedelta(days=1)
    while True:
        shown = max(shown, at.astimezone(zone).replace(tzinfo=None))
        today, yesterday = shown.date(), shown.date() - timedelta(days=1)
        owner = None
        if start < end:
            if start <= shown.time() < end:
                owner = today
        elif shown.time() >= start:
            owner = today
        elif shown.time() < end:
            owner = yesterday
        if owner is not None and DAYS[owner.weekday()] not in window.days:
            owner = None
        if at >= begin:
            yield at, owner
        at += MINUTE


_TIMES = st.one_of(
    st.sampled_from(
        ["22:00", "06:00", "00:00", "01:00", "01:30", "01:45", "02:00", "02:15", "02:30", "03:00",
         "23:00", "23:30", "00:30", "12:00"]
    ),
    st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59)),
)  # fmt: skip
_DAYS = st.just(DAYS) | st.sets(st.sampled_from(DAYS), min_size=1).map(sorted)


@given(
    times=st.tuples(_TIMES, _TIMES | st.just("24:00")).filter(lambda pair: pair[0] != pair[1]),
    zone=st.sampled_from(ZONES),
    days=_DAYS,
    base=st.sampled_from(AROUND),
    offset=st.integers(0, 2 * 86_400),
    micros=st.sampled_from([0, 0, 1, 999_999]),
)
@example(("22:00", "06:00"), "America/New_York", DAYS, "03-07", 54_000, 0)
@example(("00:00", "24:00"), "Pacific/Apia", DAYS, "2011-12-29", 0, 1)
@example(("02:30", "02:00"), "America/New_York", DAYS, "03-07", 90_000, 0)
@example(("00:00", "12:00"), "America/St_Johns", ["sun"], "2010-11-06", 95_000, 0)
@example(("23:30", "00:00"), "Africa/Cairo", ["thu"], "10-29", 72_000, 0)
def test_a_window_agrees_with_a_search_minute_by_minute(
    times: tuple[str, str], zone: str, days: list[str], base: str, offset: int, micros: int
) -> None:
    """Open or not, when it closes, and that no opening is skipped or lies in the past."""
    window = only.window(*times, timezone=zone, days=days)
    now = moment(base) + timedelta(seconds=offset, microseconds=micros)
    minutes = walk(window, now.replace(second=0, microsecond=0))
    _, owner = next(minutes)
    assert window.is_open(now) == (owner is not None)
    opens_at, closes_at = window.opens_at(now), window.closes_at(now)
    assert opens_at > now
    assert opens_at.tzinfo is UTC
    assert (closes_at is None) == (owner is None)
    was, closed = owner, owner is None
    for at, current in minutes:
        if not closed and current != owner:
            assert closes_at == at
            closed = True
        if current is not None and current != was:
            assert opens_at == at
            break
        was = current
    assert closed
    assert window.is_open(opens_at)
    assert window.opens_at(opens_at - TICK) == opens_at


@given(
    times=st.tuples(_TIMES, _TIMES).filter(lambda pair: pair[0] != pair[1]),
    zone=st.sampled_from(ZONES),
    days=_DAYS,
    base=st.sampled_from(AROUND),
)
def test_openings_follow_each_other_and_what_holds_is_looked_at_when_one_begins(
    times: tuple[str, str], zone: str, days: list[str], base: str
) -> None:
    """Ten in a row: in order, none overlaps, and the verdict changes at their edges only."""
    window = only.window(*times, timezone=zone, days=days)
    at = moment(base)
    for _ in range(10):
        begin = window.opens_at(at)
        end = window.closes_at(begin)
        assert end is not None
        assert at < begin < end <= window.opens_at(begin)
        before = window.decide(Known(), begin - TICK)
        if before.decision is Decision.HOLD:
            assert before.recheck_at == begin
        assert window.decide(Known(), begin).decision is Decision.ADMIT
        assert window.decide(Known(), end - TICK).decision is Decision.ADMIT
        at = begin
