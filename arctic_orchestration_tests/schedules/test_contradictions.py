"""What a schedule could never do is found when it is defined."""

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arctic_orchestration.schedules.constraints import only
from arctic_orchestration.schedules.contradictions import contradictions
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on

A, B = on.partitions("a"), on.partitions("b")
NEW_YORK, BERLIN = "America/New_York", "Europe/Berlin"


def found(trigger: Any, *constraints: Any, **fields: Any) -> list[tuple[str, object]]:
    """Field and value of each contradiction of a schedule named ``s``."""
    schedule = stored(trigger=trigger, constraints=constraints, **fields)
    return [(problem.field, problem.value) for problem in contradictions(schedule)]


def stored(**fields: Any) -> Schedule:
    """A schedule as the database holds it: contradictions are reported to its author."""
    written = {"name": "s", "target": {"job": "j"}, **fields}
    written["trigger"] = written["trigger"].to_form()
    written["constraints"] = [c.to_form() for c in written.get("constraints", ())]
    return Schedule.stored(written)


def expectation(trigger: Any, *constraints: Any, **fields: Any) -> str:
    """What was expected, of a schedule with exactly one contradiction."""
    schedule = stored(trigger=trigger, constraints=constraints, **fields)
    (problem,) = contradictions(schedule)
    return problem.expected


@pytest.mark.parametrize(
    ("trigger", "where"),
    [
        (on.data("a", "1GB", max_wait="2h"), "data.max_wait"),
        (on.quiet("a", "2h"), "quiet.duration"),
        (on.quiet("a", "5m", max_wait="2h"), "quiet.max_wait"),
        (on.elapsed("2h", since=A), "elapsed.duration"),
        (on.partitions("a", late="collect:2h", count="all", per="x"), "partitions.late"),
        (on.all_of(A, B, wait="2h"), "all_of.wait"),
        (on.any_of(A, on.all_of(B, on.quiet("a", "2h"))), "any_of[1].all_of[1].quiet.duration"),
    ],
)
def test_a_timeout_lets_the_trigger_come_to_its_end(trigger: Any, where: str) -> None:
    """Two hours of waiting need more than two hours, whatever happens at the end."""
    for timeout in ("2h", "30m"):
        for on_timeout in ("discard", "launch"):
            problems = found(trigger, timeout=timeout, on_timeout=on_timeout)
            assert problems == [("Schedule(s).timeout", timeout)]
    assert expectation(trigger, timeout="1h") == (
        f"a duration longer than trigger.{where}, 2h: the job is always discarded first"
    )
    assert found(trigger, timeout="2h1s") == []
    # A job of a week waits until the week has ended, and its timeout begins there.
    of_weeks = found(trigger, timeout="30m", partitions="each")
    assert "Schedule(s).timeout" not in dict(of_weeks)


def test_a_timeout_is_longer_than_a_delay() -> None:
    """Unless the job is launched at its end, or the delay is none at all."""
    assert found(A, only.delay("1h"), timeout="1h") == [("Schedule(s).timeout", "1h")]
    assert expectation(A, only.concurrency(1), only.delay("1h"), timeout="5m") == (
        "a duration longer than constraints[1].delay.duration, 1h: "
        "the job is always discarded first"
    )
    assert found(A, only.delay("1h"), timeout="1h", on_timeout="launch") == []
    assert found(A, only.delay("1h"), timeout="61m") == []
    assert found(A, only.delay("0s"), timeout="1s") == []


@pytest.mark.parametrize(
    ("trigger", "is_found"),
    [
        (on.quiet("a", "40m"), True),
        (on.quiet("a", "10m"), False),
        (on.quiet("a", "40m", max_wait="50m"), True),
        # The partition alone may fire it at once.
        (on.quiet("a", "40m") | A, False),
        (on.quiet("a", "40m") & A, True),
        # Ten minutes after the partition.
        (on.all_of(on.quiet("a", "40m"), A, wait="10m"), False),
    ],
)
def test_a_timeout_is_longer_than_quiet_and_delay_together(trigger: Any, is_found: bool) -> None:
    """Forty minutes of quiet and forty of delay do not fit into an hour."""
    problems = found(trigger, only.delay("40m"), timeout="1h")
    assert problems == ([("Schedule(s).timeout", "1h")] if is_found else [])
    assert found(trigger, only.delay("40m"), timeout="90m") == []


def test_time_since_the_last_launch_needs_no_timeout() -> None:
    """Its job begins when it fires."""
    assert found(on.elapsed("7d"), timeout="1h") == []


def test_a_job_of_a_partition_needs_an_event_with_one() -> None:
    """Time, and a state of freshness, have none: such a schedule would never make a job."""
    fresh = on.freshness("a", state="fail")
    for trigger in (on.elapsed("1h"), fresh, fresh & on.elapsed("1h")):
        assert found(trigger, partitions="each") == [("Schedule(s).partitions", "each")]
        assert found(trigger | A, partitions="range") == []
        assert found(trigger) == []


def test_time_since_an_event_is_that_of_the_schedule() -> None:
    """Neither of each partition, nor of partitions that belong together."""
    place = "Schedule(s).trigger.elapsed.since"
    for since in (A, on.run("work"), on.data("a", "1GB")):
        trigger = on.elapsed("1h", since=since)
        assert found(trigger, partitions="each") == [(place, since.kind)]
        assert found(trigger) == []
    with_all = on.partitions("a", count="all", per="date", late="ignore")
    assert found(on.elapsed("1h", since=with_all)) == [
        (f"{place}.partitions.count", "all"),
        (f"{place}.partitions.late", "ignore"),
        (f"{place}.partitions.per", "date"),
    ]
    fine = on.partitions("a", count=2, checks="passed", changed=True, backfill="ignore")
    assert found(on.elapsed("1h", since=fine)) == []


def test_a_longest_wait_leaves_room_for_quiet() -> None:
    """Five minutes of quiet cannot be had in five."""
    for max_wait in ("5m", "1m"):
        problems = found(on.quiet("a", "5m", max_wait=max_wait))
        assert problems == [("Schedule(s).trigger.quiet.max_wait", max_wait)]
    assert found(on.quiet("a", "5m", max_wait="6m")) == []


def test_a_span_is_not_longer_than_the_timeout() -> None:
    """What fired earlier was discarded with its job."""
    trigger = on.all_of(A, B, within="2d")
    assert found(trigger) == [("Schedule(s).trigger.all_of.within", "2d")]
    assert expectation(trigger) == (
        "at most the timeout, 1d: a job that waits for longer is discarded"
    )
    assert found(trigger, timeout="2d") == []


@pytest.mark.parametrize(
    ("crons", "within", "is_found"),
    [
        (["0 4 * * *", "0 16 * * *"], "1h", True),
        (["0 4 * * *", "0 16 * * *"], "12h", False),
        (["0 4 * * *", "30 4 * * *", "15 4 * * *"], "30m", False),
        (["0 4 * * *", "30 4 * * *", "15 4 * * *"], "29m", True),
        # Around midnight.
        (["50 23 * * *", "5 0 * * *"], "15m", False),
        (["0 * * * *", "30 * * * *"], "29m", True),
        (["*/2 * * * *", "1-59/2 * * * *"], "30s", True),
        (["0 9 * * 1", "0 9 * * 2"], "23h", True),
        # New Year's Day is a Sunday in some years.
        (["0 0 1 1 *", "0 0 * * 0"], "1h", False),
        # The first of a month and the fifteenth are never a week apart.
        (["0 0 1 * *", "0 0 15 * *"], "7d", True),
        (["0 0 29 2 *", "0 0 1 3 *"], "1d", False),
    ],
)
def test_ticks_that_never_come_together_are_found(
    crons: list[str], within: str, is_found: bool
) -> None:
    """All of them, in one span of that length."""
    trigger = on.all_of(*[on.cron(expression) for expression in crons], within=within)
    problems = found(trigger, timeout="30d")
    assert problems == ([("Schedule(s).trigger.all_of.within", within)] if is_found else [])


def test_a_few_days_a_year_are_enough() -> None:
    """Noon in New York is 17:00 in Berlin while only one of them has changed its clocks."""
    noon = on.cron("0 12 * * *", timezone=NEW_YORK)
    for hour, is_found in ((16, True), (17, False), (18, False), (19, True)):
        trigger = on.all_of(noon, on.cron(f"0 {hour} * * *", timezone=BERLIN), within="10m")
        assert bool(found(trigger)) is is_found


def test_ticks_that_never_come_together_within_the_timeout_are_found() -> None:
    """Without a span the timeout is one; a wait makes do with one of them."""
    crons = on.cron("0 4 * * *"), on.cron("0 16 * * *") | on.cron("0 17 * * *")
    assert found(on.all_of(*crons), timeout="1h") == [("Schedule(s).timeout", "1h")]
    assert found(on.all_of(*crons), timeout="12h") == []
    assert found(on.all_of(*crons, wait="30m"), timeout="1h") == []
    # What is not a tick may come at any time.
    assert found(on.all_of(crons[0], crons[1] | A), timeout="1h") == []


def test_windows_that_are_never_open_together_are_found() -> None:
    """Whatever the trigger; the value is what was written."""
    late, early = only.window("22:00", "23:00"), only.window("01:00", "02:00")
    assert found(A, late, only.concurrency(1), early) == [
        (
            "Schedule(s).constraints",
            [
                {"window": {"start": "22:00", "end": "23:00"}},
                {"window": {"start": "01:00", "end": "02:00"}},
            ],
        )
    ]
    assert found(A, late, only.window("22:30", "06:00")) == []
    assert found(A, late, only.window("23:00", "06:00")) != []
    days = [only.window("00:00", "24:00", days=day) for day in ("mon", "tue")]
    assert found(A, *days) != []
    # Monday 23:00 in New York is Tuesday in Berlin.
    assert found(A, only.window("23:00", "24:00", days="mon", timezone=NEW_YORK),
                 only.window("00:00", "24:00", days="tue", timezone=BERLIN)) == []  # fmt: skip


@pytest.mark.parametrize(
    ("window", "fields", "is_found"),
    [
        (("22:00", "06:00"), {"timeout": "1h"}, True),
        (("22:00", "06:00"), {"timeout": "10h"}, False),
        (("22:00", "06:00"), {"timeout": "1h", "on_timeout": "launch"}, False),
        (("11:00", "12:01"), {"timeout": "1h"}, False),
        (("11:00", "12:00"), {"timeout": "1h"}, True),
    ],
)
def test_ticks_that_no_window_admits_in_time_are_found(
    window: tuple[str, str], fields: dict[str, str], is_found: bool
) -> None:
    """A cron at noon, and jobs that do not live until the evening."""
    cron = on.cron("0 12 * * *")
    problems = found(cron, only.concurrency(1), only.window(*window), **fields)
    body = {"start": window[0], "end": window[1]}
    assert problems == ([("Schedule(s).constraints[1].window", body)] if is_found else [])
    # One tick of several is enough; and what is not a tick may come at any time.
    assert found(cron | on.cron("0 23 * * *"), only.window("22:00", "06:00"), **fields) == []
    assert found(cron | A, only.window(*window), **fields) == []


@pytest.mark.parametrize("weekday", ["5#4", "5#1", "L5"])
def test_ticks_of_some_weeks_are_followed_for_longer_than_a_week(weekday: str) -> None:
    """The fourth Friday of a month lies in the window as each other one does."""
    cron = on.cron(f"0 12 * * {weekday}")
    assert found(cron, only.window("10:00", "14:00")) == []
    outside = found(cron, only.window("13:00", "14:00"), timeout="30m")
    assert [field for field, _ in outside] == ["Schedule(s).constraints[0].window"]


def test_a_window_is_waited_for_after_the_end_of_a_partition() -> None:
    """A tick on Monday is for the week that ends on Sunday, and the job may wait for Friday."""
    monday, friday = "0 6 * * 1", only.window("08:00", "12:00", days="fri")
    assert found(on.cron(monday), friday) != []
    week = on.cron(monday, partition="current")
    assert found(week, friday, partitions="each") == []


def test_a_window_that_cancels_is_checked_at_the_tick() -> None:
    """However long the job could wait, and even if it were launched at the end."""
    cron, night = on.cron("0 12 * * *"), only.window("22:00", "06:00", otherwise="cancel")
    for on_timeout in ("discard", "launch"):
        assert len(found(cron, night, timeout="12h", on_timeout=on_timeout)) == 1
    assert expectation(cron, night) == (
        "a window that is open at any tick of cron 0 12 * * * (UTC): else no job is ever admitted"
    )
    assert found(on.cron("0 23 * * *"), night) == []


def test_a_delay_may_carry_a_job_out_of_its_window() -> None:
    """At noon, one hour later, and the window closed at one."""
    cron, delay = on.cron("0 12 * * *"), only.delay("1h")
    assert found(cron, delay, only.window("11:00", "13:00"), timeout="2h") != []
    assert found(cron, delay, only.window("11:00", "13:01"), timeout="2h") == []


def test_some_ticks_a_year_are_enough_for_a_window() -> None:
    """A leap day is a Sunday every 28 years."""
    sundays = only.window("00:00", "24:00", days="sun")
    assert found(on.cron("0 12 29 2 *"), sundays, timeout="1h") == []
    assert found(on.cron("0 12 * * 1-6"), sundays, timeout="1h") != []


def test_the_path_is_where_the_schedule_stands() -> None:
    """In a file of schedules."""
    schedule = stored(trigger=on.quiet("a", "5m"), timeout="1m")
    (problem,) = contradictions(schedule, field="schedules[3]")
    assert problem.field == "schedules[3].timeout"
    assert problem.expected.startswith("a duration longer than trigger.quiet.duration, 5m")


_MINUTES = st.integers(0, 1439)


@settings(max_examples=25, deadline=None)
@given(first=_MINUTES, second=_MINUTES, within=st.integers(1, 720))
def test_daily_ticks_come_together_as_the_clock_face_says(
    first: int, second: int, within: int
) -> None:
    """Two times of day are as far apart as the shorter way around the clock."""
    apart = min((first - second) % 1440, (second - first) % 1440)
    crons = [on.cron(f"{at % 60} {at // 60} * * *") for at in (first, second)]
    problems = found(on.all_of(*crons, within=f"{within}m"))
    assert bool(problems) is (apart > within)


@settings(max_examples=25, deadline=None)
@given(tick=_MINUTES, start=_MINUTES, length=st.integers(1, 1439), timeout=st.integers(1, 1439))
def test_a_daily_tick_is_admitted_as_the_clock_face_says(
    tick: int, start: int, length: int, timeout: int
) -> None:
    """Inside the window, or so long before its start that the job still lives."""
    end = (start + length) % 1440
    times = [f"{at // 60:02}:{at % 60:02}" for at in (start, end)]
    inside, until_start = (tick - start) % 1440 < length, (start - tick) % 1440
    problems = found(
        on.cron(f"{tick % 60} {tick // 60} * * *"), only.window(*times), timeout=f"{timeout}m"
    )
    assert bool(problems) is not (inside or until_start <= timeout)


def test_the_common_schedule_costs_few_calls() -> None:
    """No search through a calendar: it is asked for each of hundreds of definitions."""
    schedule = stored(trigger=A | B, constraints=[only.concurrency(1)])
    contradictions(schedule)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(event) if event == "call" else None)
    try:
        contradictions(schedule)
    finally:
        sys.setprofile(None)
    assert len(calls) < 200
