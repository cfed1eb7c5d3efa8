"""Crontabs: the ticks of Vixie's cron, and everything else that stands in such a file."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from arctic_orchestration.schedules.imports.draft import Draft, Outcome
from arctic_orchestration.schedules.imports.importer import Source
from arctic_orchestration.schedules.triggers import Cron
from arctic_orchestration_tests.schedules.imports.reading import drafts, form, only, sample

WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def line(text: str, *, timezone: str | None = "UTC") -> Draft:
    return only(Source.CRONTAB, text + "\n", timezone=timezone)


def cron(draft: Draft) -> Cron:
    return Cron.parse(form(draft)["trigger"]["cron"])


def has(field: str, value: int, first: int, last: int) -> bool:
    """Whether a field has a value, as crontab(5) defines lists, ranges and steps."""
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        begin, end = (first, last) if span == "*" else (int(low), int(high or low))
        if begin <= value <= end and (value - begin) % int(step or 1) == 0:
            return True
    return False


def vixie(expression: str) -> Iterator[datetime]:
    """The moments of an expression in UTC, as cron's find_jobs() finds them, each minute."""
    for number, name in enumerate(WEEKDAYS):
        expression = expression.replace(name, str(number))
    for number, name in enumerate(MONTHS, start=1):
        expression = expression.replace(name, str(number))
    minute, hour, day, month, weekday = expression.split()
    date = BEGIN
    while date.year < 2100:
        dow = (date.weekday() + 1) % 7
        by_day = has(day, date.day, 1, 31)
        by_weekday = has(weekday, dow, 0, 7) or (dow == 0 and has(weekday, 7, 0, 7))
        star = day[0] == "*" or weekday[0] == "*"
        both = (by_day and by_weekday) if star else (by_day or by_weekday)
        if both and has(month, date.month, 1, 12):
            for hours in range(24):
                for minutes in range(60):
                    if has(hour, hours, 0, 23) and has(minute, minutes, 0, 59):
                        yield date + timedelta(hours=hours, minutes=minutes)
        date += timedelta(days=1)


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\f"])
def test_only_the_end_of_a_line_ends_a_command(character: str) -> None:
    """As cron reads it; Python takes more characters for ends of lines."""
    assert f"a{character}# b" in line(f"0 1 * * * echo a{character}# b").source


@pytest.mark.parametrize(
    "expression",
    [
        "0 5 * * 1",
        "*/15 * * * *",
        "5-55/10 9-17 * * 1-5",
        "0 12 1,15 * fri",
        "0 0 13 * 5",
        "0 0 1-31 * mon",
        "0 0 1 * 0-7",
        "0 0 */2 * *",
        "0 0 * * */2",
        "0 0 * * 5-7",
        "0 0 * * 7",
        "30 4 1,15 jan-mar *",
        "0 0 29 2 *",
        "*/7 */5 * * *",
        "0 22 * dec sat,sun",
        "0 0 */1 * tue",
        "59 23 31 12 *",
    ],
)
def test_the_next_200_moments_are_those_of_cron(expression: str) -> None:
    """As far as the evaluator's calendar goes."""
    draft = line(f"{expression} run")
    expected = list(islice(vixie(expression), 200))
    assert len(expected) > 15
    assert (draft.outcome, draft.reasons) == (Outcome.EXACT, [])
    trigger, at = cron(draft), BEGIN - timedelta(minutes=1)
    for moment in expected:
        tick = trigger.next_tick(at, "run")
        assert tick == moment
        at = tick


def test_the_evaluator_joins_days_as_the_manual_says() -> None:
    """crontab(5): 30 4 1,15 * 5 runs on the 1st and 15th of each month, plus every Friday."""
    january = [moment.day for moment in islice(vixie("30 4 1,15 * 5"), 7)]
    assert january == [1, 2, 9, 15, 16, 23, 30]
    # Odd days that are Mondays: the field begins with a star.
    assert [moment.day for moment in islice(vixie("0 0 */2 * 1"), 2)] == [5, 19]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 0 */2 * mon run", "*/2 and mon: cron needs both days where a field begins with *"),
        ("@reboot run", "@reboot: it has no time"),
        ("@every_minute run", "@every_minute: is not understood"),
        ("5/10 * * * * run", "5/10: cron refuses a step without a range"),
        ("0 0 * * fri-sun run", "fri-sun: cron refuses it"),
        ("*/0 * * * * run", "*/0: cron refuses it"),
        ("*/00 * * * * run", "*/00: cron refuses it"),
        (f"*/{'9' * 5_000} * * * * run", "*/999"),
        (f"{'1' * 5_000} * * * * run", "111"),
        ("61 * * * * run", "61: expected 0 to 59"),
        ("0~30 * * * * run", "0~30: is not understood"),
        ("0 0 L * * run", "L: expected 1 to 31"),
        ("* * * * *", "expected a time, and a command"),
    ],
)
def test_what_cannot_be_said_is_named(text: str, reason: str) -> None:
    draft = line(text)
    assert draft.outcome is Outcome.NOT_POSSIBLE
    assert draft.reasons[0].startswith(reason)


def test_the_sample() -> None:
    """Variables, zones, percent signs and comments, each where it belongs."""
    lines = {name.split(":")[0]: draft for name, draft in sample(Source.CRONTAB).items()}
    assert {name: draft.outcome.value for name, draft in lines.items()} == {
        "line 4": "approximate",
        "line 6": "exact",
        "line 7": "exact",
        "line 8": "exact",
        "line 9": "exact",
        "line 10": "not possible",
        "line 11": "not possible",
        "line 12": "not possible",
        "line 13": "not possible",
    }
    assert lines["line 4"].reasons == [
        "timezone: the file does not have the zone of the machine (CRON_TZ): UTC is assumed "
        "(--timezone)"
    ]
    mail = form(lines["line 8"])
    assert mail["properties"] == {
        "command": '/opt/etl/report.sh | mail -s "50% done" boss',
        "stdin": "Dear boss,\nall is well",
        "environment": {"SHELL": "/bin/bash", "MAILTO": "ops@example.com"},
    }
    # CRON_TZ is cron's own: a command does not see it.
    assert mail["trigger"]["cron"]["timezone"] == "America/New_York"
    daily = form(lines["line 9"])
    assert (daily["name"], daily["target"]) == (
        "opt_etl_cleanup_sh_line_9",
        {"job": "opt_etl_cleanup_sh"},
    )
    assert daily["trigger"]["cron"]["expression"] == "0 0 * * *"


def test_a_line_of_the_system_has_a_user() -> None:
    text = "17 * * * * root cd / && run-parts /etc/cron.hourly\n@daily bob x\n0 0 * * * carol\n"
    first, second, third = drafts(Source.CRONTAB, text, timezone="UTC", user_column=True)
    assert form(first)["properties"] == {
        "command": "cd / && run-parts /etc/cron.hourly",
        "user": "root",
    }
    assert form(second)["properties"] == {"command": "x", "user": "bob"}
    assert third.reasons == ["expected a time, a user and a command"]


@pytest.mark.parametrize(
    ("expression", "dst", "outcome"),
    [
        ("30 4 * * *", None, "exact"),
        # In the gap: right after it. In the fold: at the first.
        ("30 2 * * *", "first", "exact"),
        ("30 1 * * *", "first", "exact"),
        # Two skipped times, and one with the end of the gap: cron runs each.
        ("0,30 2 * * *", "first", "approximate"),
        ("0 2,3 * * *", "first", "approximate"),
        # A star follows the new clock: both in the fold, none in the gap.
        ("*/20 1 * * *", "both", "exact"),
        ("*/20 2 * * *", "both", "approximate"),
        ("0 * * * *", None, "exact"),
        # All hours, but no star: each once, also in the gap.
        ("30 0-23 * * *", None, "approximate"),
        ("*/20 0-23 * * *", None, "exact"),
    ],
)
def test_clock_changes_of_new_york(expression: str, dst: str | None, outcome: str) -> None:
    draft = line(f"{expression} run", timezone="America/New_York")
    assert (form(draft)["trigger"]["cron"].get("dst"), draft.outcome.value) == (dst, outcome)


def test_a_zone_that_is_not_known_is_named() -> None:
    draft = line("CRON_TZ=Mars/Base\n0 0 * * * run")
    assert draft.reasons == [
        "CRON_TZ: got 'Mars/Base', expected a time zone of the IANA database, such as Europe/Berlin"
    ]
