"""Quartz expressions have the same ticks as cron expressions, or say that they do not.

Two judges: the moments in ``quartz_moments.json`` are those of Quartz 2.3.2 itself
(``org.quartz.CronExpression.getTimeAfter``, with Java 21); for more moments than a file should
hold there is a small evaluator, which is compared with the file first.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.imports.draft import Draft, Names, NotPossible, Options
from arctic_orchestration.schedules.imports.quartz import quartz_trigger
from arctic_orchestration.schedules.triggers import Cron
from arctic_orchestration_tests.schedules.imports.reading import HERE, NOW

RECORDED: list[dict[str, Any]] = json.loads((HERE / "quartz_moments.json").read_text())
REFUSED = [row["expression"] for row in RECORDED if "refused" in row]
TAKEN = [row for row in RECORDED if "refused" not in row]
#: Quartz takes them, and cron cannot say them.
IMPOSSIBLE = {
    "0 15 10 L-2 * ?": "L-2 has no counterpart in cron",
    "0 0 0 L-30 * ?": "L-30 has no counterpart in cron",
    "0 0 0 LW * ?": "LW has no counterpart in cron",
    "0 0 0 31W * ?": "31W is not in every month",
    "0 0 0 30W 2,3,4 ?": "30W is not in every month",
    "0 0 0 15W,20 * ?": "15W,20 has no counterpart in cron",
    "0 0 0 1-15W * ?": "1-15W has no counterpart in cron",
    "0 5/0 * * * ?": "the step in 5/0 is not understood",
    "0 */0 * * * ?": "the step in */0 is not understood",
    "0 0-10/70 * * * ?": "the step in 0-10/70 is not understood",
    "0 0 0 ? * MON/2": "the step in MON/2 is not understood",
    "0 0 0 ? * MON,": "day of the week MON, is not understood",
    "0/20 * * * * ?": "several ticks in a minute (0/20)",
    "0 0 0 1 1 ? 2027": "years (2027) have no place in cron",
    "0 0 0 1 1 ? 2026-2099": "years (2026-2099) have no place in cron",
}
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def translated(expression: str, zone: str = "UTC") -> tuple[Cron, list[str]]:
    """The trigger, and what differs."""
    draft = Draft(source="q", names=Names(), options=Options(now=NOW))
    form = quartz_trigger(expression, zone, draft)["cron"]
    return Cron.parse(form), draft.reasons


def ticks(cron: Cron, after: datetime, count: int) -> list[datetime]:
    made: list[datetime] = []
    while len(made) < count:
        tick = cron.next_tick(after, "q")
        assert tick is not None
        made.append(after := tick)
    return made


def matches(field: str, value: int, low: int, high: int, names: tuple[str, ...] = ()) -> bool:
    """Whether a field of lists, ranges and steps has a value; ranges wrap around."""

    def number(text: str) -> int:
        return names.index(text) + 1 if text in names else int(text)

    for part in field.upper().split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        begin = low if first in ("*", "?", "") else number(first)
        single = not dash and not step and first not in ("*", "?")
        end = begin if single else number(last) if dash else high
        distance = (value - begin) % (high - low + 1)
        if distance <= (end - begin) % (high - low + 1) and distance % int(step or 1) == 0:
            return True
    return False


def is_day(day: datetime, of_month: str, of_week: str) -> bool:
    """Whether the two day fields have a day."""
    month_later = (day.replace(day=28) + timedelta(days=4)).replace(day=1)
    last = (month_later - timedelta(days=1)).day
    weekday = (day.weekday() + 1) % 7 + 1
    if of_week == "?":
        if of_month == "L":
            return day.day == last
        if of_month.endswith("W"):
            wanted = day.replace(day=int(of_month[:-1]))
            shift = {5: -1 if wanted.day > 1 else 2, 6: 1 if wanted.day < last else -2}
            return day == wanted + timedelta(days=shift.get(wanted.weekday(), 0))
        return matches(of_month, day.day, 1, 31)
    name, sharp, nth = of_week.upper().partition("#")
    if sharp:
        return matches(name, weekday, 1, 7, DAYS) and (day.day - 1) // 7 + 1 == int(nth)
    if of_week == "L":
        return weekday == 7
    if name.endswith("L"):
        return matches(name[:-1], weekday, 1, 7, DAYS) and day.day + 7 > last
    return matches(name, weekday, 1, 7, DAYS)


def evaluated(expression: str, after: datetime) -> Iterator[datetime]:
    """The moments of an expression in UTC, its second left out, until 2150."""
    _, minute, hour, of_month, month, of_week, *_ = expression.split()
    times = [
        timedelta(hours=h, minutes=m)
        for h in range(24)
        for m in range(60)
        if matches(hour, h, 0, 23) and matches(minute, m, 0, 59)
    ]
    day = after.replace(hour=0, minute=0, second=0)
    while day.year < 2150:
        if matches(month, day.month, 1, 12, MONTHS) and is_day(day, of_month, of_week):
            yield from (at for time in times if (at := day + time) > after)
        day += timedelta(days=1)


def test_the_record_has_many_expressions() -> None:
    """Of all kinds; so the tests below are about something."""
    assert len(REFUSED) >= 15
    assert len([row for row in TAKEN if row["zone"] == "UTC"]) >= 50
    assert IMPOSSIBLE.keys() <= {row["expression"] for row in TAKEN}


@pytest.mark.parametrize("expression", REFUSED)
def test_what_quartz_refuses_is_not_possible(expression: str) -> None:
    with pytest.raises(NotPossible):
        translated(expression)


@pytest.mark.parametrize(("expression", "reason"), IMPOSSIBLE.items())
def test_what_cron_cannot_say_is_not_possible(expression: str, reason: str) -> None:
    """With the part that it cannot say."""
    with pytest.raises(NotPossible) as refusal:
        translated(expression)
    assert str(refusal.value) == f"Quartz {expression!r}: {reason}"


@pytest.mark.parametrize("row", TAKEN, ids=lambda row: f"{row['expression']} {row['after']}")
def test_ticks_are_those_of_quartz_or_a_reason_says_why_not(row: dict[str, Any]) -> None:
    """The record has both clock changes of some zones."""
    if row["expression"] in IMPOSSIBLE:
        return
    cron, reasons = translated(row["expression"], row["zone"])
    moments = [moment(text) for text in row["moments"]]
    same = ticks(cron, moment(row["after"]), len(moments)) == moments
    assert same or reasons


@pytest.mark.parametrize(
    "expression",
    sorted({row["expression"] for row in TAKEN if row["zone"] == "UTC"} - IMPOSSIBLE.keys()),
)
def test_the_next_200_moments_are_the_same(expression: str) -> None:
    """As the small evaluator has them, which agrees with Quartz where Quartz was asked."""
    row = next(row for row in TAKEN if row["expression"] == expression)
    after = moment(row["after"])
    expected = list(islice(evaluated(expression, after), 200))
    recorded = [moment(text).replace(second=0) for text in row["moments"]]
    assert expected[0] > after
    cron, reasons = translated(expression)
    # A second of 30 is the only difference without a zone.
    assert reasons == (["second 30: ticks are at second 0"] if expression[0] == "3" else [])
    if not reasons:
        assert expected[: len(recorded)] == recorded
    # Quartz' calendar ends in 2099, and 29 February is rare.
    assert ticks(cron, after, len(expected)) == expected


def test_a_gap_and_a_fold_are_reasons_where_they_matter() -> None:
    """02:30 is skipped in New York, 01:30 occurs twice, and at the second one both agree."""
    zone = "America/New_York"
    assert translated("0 30 1 * * ?", zone)[1] == []
    assert translated("0 30 4 * * ?", zone)[1] == []
    assert translated("0 0 * * * ?", "Asia/Kolkata")[1] == []
    (gap,) = translated("0 30 2 * * ?", zone)[1]
    assert gap.startswith("when clocks in America/New_York go forward, Quartz leaves out the tick")
    (fold,) = translated("0 0 * * * ?", zone)[1]
    assert fold.startswith("when clocks in America/New_York go back, Quartz leaves out the first")


def test_an_expression_without_a_tick_is_no_cron_expression() -> None:
    """30 February; clock changes are looked at before."""
    with pytest.raises(InvalidDefinition, match="a cron expression with ticks"):
        translated("0 0 0 30 2 ?", "America/New_York")


@pytest.mark.parametrize(
    "expression",
    [
        *("", "0 0 * * *", "0 0 0 * * ? * *", "x 0 0 * * ?", "0 0/٥ 0 * * ?", "0 0 0 ١٥W * ?"),
        *(f"0 0/{'9' * 5_000} 0 * * ?", f"0 {'9' * 5_000} 0 * * ?", f"0 0 0 ? * {'9' * 5_000}L"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_expression_is_not_possible(expression: str) -> None:
    with pytest.raises(NotPossible):
        translated(expression)


def test_a_missed_tick_is_left_out() -> None:
    assert translated("0 0 4 * * ?")[0].catch_up == "none"
    assert translated("0 0 4 * * ?")[0].expression == "0 4 * * *"
