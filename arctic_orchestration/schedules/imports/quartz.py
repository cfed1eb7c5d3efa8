"""Quartz cron expressions, as the cron expressions of triggers.

Quartz (org.quartz.CronExpression, 2.3) has seconds before the minute, a day of the week that begins
with 1 for Sunday, ranges that wrap around, one day field that is ``?``, and years. Its ticks at
clock changes differ from those of other schedulers: a wall time that is skipped has no tick, one
that occurs twice has its second; with ``*`` as the hour, the first of two equal hours has no tick.
"""

import re
from typing import Any, NamedTuple

from arctic_orchestration.schedules.imports.cron_fields import (
    DAYS,
    MONTHS,
    as_text,
    every_hour,
    meetings,
)
from arctic_orchestration.schedules.imports.draft import Draft, NotPossible

#: No number of a field has more digits.
_PART = re.compile(r"(?:(\*)|(\w{1,4})(?:-(\w{1,4}))?)?(?:/(\d{1,4}))?", re.ASCII)
_NEAREST = re.compile(r"(\d{1,2})W", re.ASCII)
_NTH = re.compile(r"(\w+)#([1-5])")
_LAST = re.compile(r"(\w+)L")


class _Field(NamedTuple):
    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()


_SECOND = _Field("second", 0, 59)
_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY = _Field("day of the month", 1, 31)
_MONTH = _Field("month", 1, 12, MONTHS)
_WEEKDAY = _Field("day of the week", 1, 7, DAYS)


def quartz_trigger(expression: str, zone: str, draft: Draft) -> dict[str, Any]:
    """Returns the ``cron`` trigger of a Quartz expression; a draft takes what differs.

    Errors:
        NotPossible: no cron expression says this, or Quartz refuses it.
    """
    cron = _translated(expression, draft)
    touched = meetings(cron, zone)
    if every_hour(cron):
        if touched.in_a_fold:
            draft.differs(
                f"when clocks in {zone} go back, Quartz leaves out the first of two equal hours; "
                "here both have their ticks"
            )
    elif touched.in_a_gap:
        draft.differs(
            f"when clocks in {zone} go forward, Quartz leaves out the tick that they skip; "
            "here it is the first moment after the gap"
        )
    # dst: the default is the second of two equal wall times, as in Quartz.
    return {"cron": {"expression": cron, "timezone": zone, "catch_up": "none"}}


def _translated(expression: str, draft: Draft) -> str:
    fields = expression.upper().split()
    if not 6 <= len(fields) <= 7:
        raise NotPossible(f"Quartz {expression!r}: {len(fields)} fields in place of 6 or 7")
    second, minute, hour, day, month, weekday, *year = fields
    if year and year != ["*"]:
        raise NotPossible(f"Quartz {expression!r}: years ({year[0]}) have no place in cron")
    seconds = _numbers(second, _SECOND, expression)
    if len(seconds) > 1:
        raise NotPossible(f"Quartz {expression!r}: several ticks in a minute ({second})")
    if seconds != {0}:
        draft.differs(f"second {second}: ticks are at second 0")
    if (day == "?") == (weekday == "?"):
        raise NotPossible(f"Quartz {expression!r}: exactly one day field must be ?")
    if weekday == "?":
        days, weekdays = _day_of_month(day, expression), "*"
    else:
        days, weekdays = "*", _day_of_week(weekday, expression)
    parts = (
        as_text(_numbers(minute, _MINUTE, expression), 0, 59),
        as_text(_numbers(hour, _HOUR, expression), 0, 23),
        days,
        as_text(_numbers(month, _MONTH, expression), 1, 12),
        weekdays,
    )
    return " ".join(parts)


def _day_of_month(text: str, expression: str) -> str:
    if text == "L":
        return text
    if nearest := _NEAREST.fullmatch(text):
        if not 1 <= int(nearest[1]) <= 28:
            # croniter takes the last day of a shorter month; Quartz does so in some of them.
            raise NotPossible(f"Quartz {expression!r}: {text} is not in every month")
        return text
    if re.search("[LW]", text):
        raise NotPossible(f"Quartz {expression!r}: {text} has no counterpart in cron")
    return as_text(_numbers(text, _DAY, expression), 1, 31)


def _day_of_week(text: str, expression: str) -> str:
    if text == "L":
        return "6"
    if nth := _NTH.fullmatch(text):
        return f"{_number(nth[1], _WEEKDAY, expression) - 1}#{nth[2]}"
    if (last := _LAST.fullmatch(text)) and text.lower() not in DAYS:
        return f"L{_number(last[1], _WEEKDAY, expression) - 1}"
    if "#" in text:
        raise NotPossible(f"Quartz {expression!r}: {text} has no counterpart in cron")
    days = _numbers(text, _WEEKDAY, expression)
    return as_text((day - 1 for day in days), 0, 6)


def _numbers(text: str, field: _Field, expression: str) -> set[int]:
    """Returns the numbers that a field of lists, ranges and steps matches."""
    numbers: set[int] = set()
    for part in text.split(","):
        read = _PART.fullmatch(part)
        if not part or read is None:
            raise NotPossible(f"Quartz {expression!r}: {field.name} {text} is not understood")
        star, first, last, step_text = read.groups()
        step = 1 if step_text is None else int(step_text)
        named = first is not None and not first.isdigit()
        # Quartz takes other steps, and gives them a surprising meaning: MON/2 is MON.
        if not 1 <= step <= field.highest or (step_text is not None and named and last is None):
            raise NotPossible(f"Quartz {expression!r}: the step in {part} is not understood")
        if star or first is None:
            begin, end = field.lowest, field.highest
        else:
            begin = _number(first, field, expression)
            end = begin if step_text is None else field.highest
            end = end if last is None else _number(last, field, expression)
        span = field.highest - field.lowest + 1
        for number in range(begin, end + 1 if begin <= end else end + span + 1, step):
            numbers.add((number - field.lowest) % span + field.lowest)
    return numbers


def _number(text: str, field: _Field, expression: str) -> int:
    if text.lower() in field.names:
        return field.lowest + field.names.index(text.lower())
    known = text.isascii() and text.isdecimal() and len(text) <= 4
    if not known or not field.lowest <= int(text) <= field.highest:
        expected = f"{field.lowest} to {field.highest}"
        raise NotPossible(f"Quartz {expression!r}: {field.name} {text} is not {expected}")
    return int(text)
