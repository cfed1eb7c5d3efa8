"""Cron: when its ticks are, and which of those that were missed are made up.

Moments are written in UTC. Those of days on which clocks change were computed manually from
the zone's rule, which stands beside them.
"""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.schedules.triggers.ticking import POLICIES, moment, shown, ticks

# Expression, zone, span of time, and the ticks by `dst` policy; `dagster` is as `second`.
CHANGES: list[tuple[str, str, str, str, dict[str, list[str]]]] = [
    # 2026-03-08 02:00 EST (-5) → 03:00 EDT (-4), at 07:00 UTC: 02:30 does not exist.
    ("30 2 * * *", "America/New_York", "03-08 00:00", "03-09 00:00",
     {"first": ["03-08 07:00"], "second": ["03-08 07:00"], "both": ["03-08 07:00"], "skip": []}),
    # 2026-11-01 02:00 EDT → 01:00 EST, at 06:00 UTC: 01:30 is 05:30 and 06:30 UTC.
    ("30 1 * * *", "America/New_York", "11-01 00:00", "11-02 00:00",
     {"first": ["11-01 05:30"], "second": ["11-01 06:30"],
      "both": ["11-01 05:30", "11-01 06:30"], "skip": []}),
    # 2026-03-29 02:00 CET (+1) → 03:00 CEST (+2), at 01:00 UTC.
    ("30 2 * * *", "Europe/Berlin", "03-28 12:00", "03-29 12:00",
     {"first": ["03-29 01:00"], "second": ["03-29 01:00"], "both": ["03-29 01:00"], "skip": []}),
    # 2026-10-25 03:00 CEST → 02:00 CET, at 01:00 UTC: 02:30 is 00:30 and 01:30 UTC.
    ("30 2 * * *", "Europe/Berlin", "10-24 12:00", "10-25 12:00",
     {"first": ["10-25 00:30"], "second": ["10-25 01:30"],
      "both": ["10-25 00:30", "10-25 01:30"], "skip": []}),
    # 2026-10-04 02:00 (+10:30) → 02:30 (+11), at 15:30 UTC of the day before.
    ("15 2 * * *", "Australia/Lord_Howe", "10-03 12:00", "10-04 12:00",
     {"first": ["10-03 15:30"], "second": ["10-03 15:30"], "both": ["10-03 15:30"], "skip": []}),
    # 2026-04-05 02:00 (+11) → 01:30 (+10:30), at 15:00 UTC: 01:45 is 14:45 and 15:15 UTC.
    ("45 1 * * *", "Australia/Lord_Howe", "04-04 12:00", "04-05 12:00",
     {"first": ["04-04 14:45"], "second": ["04-04 15:15"],
      "both": ["04-04 14:45", "04-04 15:15"], "skip": []}),
    # Several wall times of the hour that repeats: both halves stay in order.
    ("0,30 1 * * *", "America/New_York", "11-01 00:00", "11-02 00:00",
     {"first": ["11-01 05:00", "11-01 05:30"], "second": ["11-01 06:00", "11-01 06:30"],
      "both": ["11-01 05:00", "11-01 05:30", "11-01 06:00", "11-01 06:30"], "skip": []}),
    # Two wall times inside one gap are one moment, hence one tick.
    ("0,30 2 * * *", "America/New_York", "03-08 00:00", "03-09 00:00",
     {"first": ["03-08 07:00"], "second": ["03-08 07:00"], "both": ["03-08 07:00"], "skip": []}),
    # UTC has no such day.
    ("30 2 * * *", "UTC", "03-08 00:00", "03-09 00:00",
     {policy: ["03-08 02:30"] for policy in ("first", "second", "both", "skip")}),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("expression", "zone", "begin", "end", "expected"), CHANGES)
def test_a_wall_time_that_is_missing_or_repeats_follows_the_dst_policy(
    policy: str, expression: str, zone: str, begin: str, end: str, expected: dict[str, list[str]]
) -> None:
    """Missing: the end of the gap; repeated: the first, second or both; or neither."""
    cron = on.cron(expression, timezone=zone, dst=policy)
    wanted = expected["second" if policy == "dagster" else policy]
    assert shown(ticks(cron, moment(begin), moment(end))) == wanted


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("minute", "zone", "begin", "end", "expected"),
    [
        # 01:30 EDT, 01:30 EST, 02:30 EST: an hour apart in real time.
        ("30", "America/New_York", "11-01 05:00", "11-01 08:00",
         ["11-01 05:30", "11-01 06:30", "11-01 07:30"]),
        # 01:30 EST, 03:30 EDT: the same.
        ("30", "America/New_York", "03-08 06:00", "03-08 08:00", ["03-08 06:30", "03-08 07:30"]),
        # 01:45 (+11), then 01:45 (+10:30) half an hour later, 02:45.
        ("45", "Australia/Lord_Howe", "04-04 14:00", "04-04 16:30",
         ["04-04 14:45", "04-04 15:15", "04-04 16:15"]),
        # 01:15 (+10:30); 02:15 does not exist; 03:15 (+11).
        ("15", "Australia/Lord_Howe", "10-03 14:00", "10-03 16:30",
         ["10-03 14:45", "10-03 16:15"]),
        ("0", "Asia/Kolkata", "03-08 06:00", "03-08 08:00", ["03-08 06:30", "03-08 07:30"]),
    ],
)  # fmt: skip
def test_an_hourly_expression_follows_real_time(
    policy: str, minute: str, zone: str, begin: str, end: str, expected: list[str]
) -> None:
    """Each moment whose wall clock shows the minute is a tick, on days of change too."""
    cron = on.cron(f"{minute} * * * *", timezone=zone, dst=policy)
    assert shown(ticks(cron, moment(begin), moment(end))) == expected


def test_the_day_of_a_leap_year_comes_every_four_years() -> None:
    """29 February after 2026 is in 2028 and 2032."""
    cron = on.cron("0 12 29 2 *")
    first = cron.next_tick(moment("01-01"), "s")
    assert first == moment("2028-02-29 12:00")
    assert cron.next_tick(first, "s") == moment("2032-02-29 12:00")


def test_months_without_a_31st_are_left_out() -> None:
    """Seven months of 2026 have one."""
    found = ticks(on.cron("0 0 31 * *"), moment("01-01"), moment("2027-01-01"))
    days = ["01-31", "03-31", "05-31", "07-31", "08-31", "10-31", "12-31"]
    assert shown(found) == [f"{day} 00:00" for day in days]


def test_the_last_day_of_a_month_can_be_named() -> None:
    """``L`` is 28 February, 31 March, 30 April of 2026."""
    found = ticks(on.cron("0 0 L * *"), moment("02-01"), moment("05-01"))
    assert shown(found) == ["02-28 00:00", "03-31 00:00", "04-30 00:00"]


def test_a_day_of_month_and_a_day_of_week_are_either_or() -> None:
    """As in cron: the 13th and every Friday; the Fridays of February 2026 are 6, 13, 20, 27."""
    found = ticks(on.cron("0 0 15 * 5"), moment("02-01"), moment("03-01"))
    assert shown(found) == [f"02-{day} 00:00" for day in ("06", "13", "15", "20", "27")]


def test_named_expressions_are_understood() -> None:
    """``@daily`` in New York is midnight there: 05:00 UTC in winter."""
    cron = on.cron("@daily", timezone="America/New_York")
    assert cron.next_tick(moment("01-10 12:00"), "s") == moment("01-11 05:00")
    assert on.cron("@hourly").next_tick(moment("01-10 12:00"), "s") == moment("01-10 13:00")


# ── agreement with Dagster ────────────────────────────────────────────────────────────────

EXPRESSIONS = (
    "30 1 * * *", "30 2 * * *", "15 2 * * *", "0 2 * * *", "*/30 1-2 * * *", "0 1,2,3 * * *",
    "30 */2 * * *", "45 1 * * 0", "30 1 1 * *", "0 0 * * *", "0 12 29 2 *", "0 3 * * 1-5",
    "59 23 28-31 * *", "*/30 * * * *", "*/7 * * * *", "0 * * * *", "15 9-17 * * mon-fri",
)  # fmt: skip
ZONES = ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata",
         "America/Sao_Paulo", "Asia/Beirut", "Pacific/Apia", "UTC")  # fmt: skip
#: Dagster reads the minute of an hourly expression in UTC there, and which zones it takes for
#: such depends on the day on which it is asked.
HALF_HOURS = ("Australia/Lord_Howe", "Asia/Kolkata")
STARTS = ("01-14 03:17", "03-07 12:00", "03-08 06:30", "03-28 20:00", "04-04 14:30", "10-03 12:00",
          "10-24 21:00", "10-31 23:30", "11-01 05:30", "12-31 23:59")  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
def test_ticks_are_those_of_dagsters_own_schedules(zone: str) -> None:
    """With ``dst: dagster``; left out is where Dagster is wrong.

    Those are hourly expressions in zones of half hours, and wall times in Beirut, whose clocks
    go from midnight to one o'clock: Dagster fires ``30 */2`` half an hour after the gap.
    """
    from dagster._utils.schedules import cron_string_iterator

    for expression in EXPRESSIONS:
        if zone in HALF_HOURS and expression.split()[1] == "*":
            continue
        if zone == "Asia/Beirut" and expression == "30 */2 * * *":
            continue
        cron = on.cron(expression, timezone=zone)
        for start in STARTS:
            begin = moment(start)
            theirs = cron_string_iterator(begin.timestamp(), expression, zone)
            last = begin - timedelta(microseconds=1)
            for number in range(10):
                tick = cron.next_tick(last, "s")
                wanted = next(theirs).astimezone(UTC)
                assert tick == wanted, f"{expression} in {zone} from {begin}: tick {number}"
                last = wanted


# ── H ─────────────────────────────────────────────────────────────────────────────────────


def test_h_spreads_schedules_over_the_hour() -> None:
    """600 names over 60 minutes: with ten expected in each, hardly a minute stays empty."""
    cron = on.cron("H * * * *")
    begin = moment("01-01 00:00") - timedelta(microseconds=1)
    minutes = [cron.next_tick(begin, f"schedule_{n}").minute for n in range(600)]  # type: ignore[union-attr]
    used = {minute: minutes.count(minute) for minute in minutes}
    assert len(used) >= 57
    assert max(used.values()) <= 30


def test_h_of_a_schedule_is_always_the_same_moment() -> None:
    """Each day at one time, the same in a process with another hash seed."""
    cron = on.cron("H H * * *", timezone="Europe/Berlin")
    first, second = ticks(cron, moment("01-01"), moment("01-03"), name="rollup")
    assert second - first == timedelta(days=1)
    program = (
        "from datetime import *; from arctic_orchestration.schedules.triggers import on; "
        "print(on.cron('H H * * *', timezone='Europe/Berlin')"
        ".next_tick(datetime(2026, 1, 1, tzinfo=timezone.utc), 'rollup').isoformat())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == first.isoformat()


def test_h_is_a_day_that_each_month_has() -> None:
    """A tick in each of February to December for 300 names, and one where H gives the month."""
    for name in (f"schedule_{n}" for n in range(300)):
        found = ticks(on.cron("0 0 H * *"), moment("01-31"), moment("12-31"), name=name)
        assert [tick.month for tick in found] == list(range(2, 13))
        assert on.cron("H H H H *").next_tick(moment("01-01"), name)
        assert on.cron("0 0 h 2 *").next_tick(moment("01-01"), name)


def test_h_without_a_tick_under_the_name_is_refused() -> None:
    """30 February: its timer would stop each tick of the scheduler, with all other schedules."""
    trigger = on.cron("0 0 30 H *") | on.cron("0 4 * * *")
    refused = []
    for name in (f"s{n}" for n in range(100)):
        try:
            Schedule(name=name, target="j", trigger=trigger)
        except InvalidDefinition as error:
            refused.append((name, [problem.field for problem in error.problems]))
    assert refused
    assert refused[0][1] == [f"Schedule({refused[0][0]}).trigger.any_of[0].cron.expression"]


# ── refusals ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 4 * * *",
        "0 4 * *",
        "0 4 * * * 2026 1",
        "",
        "every day",
        "60 4 * * *",
        "0 24 * * *",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 4 * * blursday",
        "@sometimes",
        "@reboot",
        "-5 * * * *",
        "*/0 * * * *",
    ],
)
def test_an_expression_that_has_no_ticks_is_refused(expression: str) -> None:
    """Six fields, nonsense, values out of range, and days that never come."""
    with pytest.raises(InvalidDefinition) as refusal:
        on.cron(expression)
    problem = refusal.value.problems[0]
    assert problem.field == "cron.expression"
    assert problem.value == expression
    assert problem.expected.startswith("a cron expression")


# ── laws ──────────────────────────────────────────────────────────────────────────────────


@st.composite
def _field(draw: st.DrawFn, low: int, high: int, top: int = 0) -> tuple[str, frozenset[int]]:
    """A field of an expression, and the values it stands for by definition.

    ``*`` goes up to ``top``, all else up to ``high``: days that no month lacks.
    """
    everything = frozenset(range(low, (top or high) + 1))
    kind = draw(st.sampled_from(["any", "any", "one", "list", "range", "step"]))
    if kind == "any":
        return "*", everything
    if kind == "step":
        step = draw(st.integers(2, (high - low) // 2))
        return f"*/{step}", frozenset(range(low, (top or high) + 1, step))
    if kind == "range":
        first = draw(st.integers(low, high - 1))
        last = draw(st.integers(first + 1, high))
        return f"{first}-{last}", frozenset(range(first, last + 1))
    values = draw(st.sets(st.integers(low, high), min_size=1, max_size=1 if kind == "one" else 3))
    return ",".join(map(str, sorted(values))), frozenset(values)


_FIELDS = st.tuples(_field(0, 59), _field(0, 23), _field(1, 28, 31), _field(1, 12), _field(0, 6))
_MINUTES_OF_2026 = st.integers(0, 365 * 24 * 60 - 1)


@given(fields=_FIELDS, zone=st.sampled_from(ZONES), minute=_MINUTES_OF_2026)
def test_ticks_are_the_minutes_whose_wall_clock_matches(
    fields: tuple[tuple[str, frozenset[int]], ...], zone: str, minute: int
) -> None:
    """Against a search minute by minute through two hours without a change of clocks."""
    from zoneinfo import ZoneInfo

    begin = moment("01-01") + timedelta(minutes=minute)
    span, near = timedelta(hours=2), timedelta(hours=24)
    info = ZoneInfo(zone)
    offsets = {at.astimezone(info).utcoffset() for at in (begin - near, begin + near)}
    assume(len(offsets) == 1)
    minutes, hours, days, months, weekdays = (values for _, values in fields)
    either = fields[2][0] != "*" and fields[4][0] != "*"

    def matches(at: datetime) -> bool:
        wall = at.astimezone(info)
        day, weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
        return (
            wall.minute in minutes
            and wall.hour in hours
            and wall.month in months
            and (day or weekday if either else day and weekday)
        )

    count = int(span / timedelta(minutes=1))
    expected = [at for n in range(1, count + 1) if matches(at := begin + timedelta(minutes=n))]
    cron = on.cron(" ".join(text for text, _ in fields), timezone=zone)
    assert ticks(cron, begin, begin + span) == expected


@given(
    fields=st.tuples(_field(0, 59), _field(0, 23)),
    zone=st.sampled_from(ZONES),
    policy=st.sampled_from(POLICIES),
    change=st.sampled_from(STARTS),
    offsets=st.tuples(st.integers(-6 * 3600, 6 * 3600), st.integers(0, 4 * 3600)),
)
def test_no_tick_depends_on_where_one_starts_to_look(
    fields: tuple[tuple[str, frozenset[int]], ...],
    zone: str,
    policy: str,
    change: str,
    offsets: tuple[int, int],
) -> None:
    """The next tick is after the moment, and that of each moment before it: none is skipped."""
    minute, hour = fields
    cron = on.cron(f"{minute[0]} {hour[0]} * * *", timezone=zone, dst=policy)
    earlier = moment(change) + timedelta(seconds=offsets[0])
    later = earlier + timedelta(seconds=offsets[1])
    first, after_later = cron.next_tick(earlier, "s"), cron.next_tick(later, "s")
    assert first is not None
    assert after_later is not None
    assert first > earlier
    assert first.tzinfo is UTC
    while first <= later:
        following = cron.next_tick(first, "s")
        assert following is not None
        assert following > first
        first = following
    assert first == after_later
