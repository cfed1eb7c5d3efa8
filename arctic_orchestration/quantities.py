"""Durations and sizes as people write and read them: ``90s``, ``1h30m``, ``1.5 MB``.

Bare numbers are refused: nobody remembers whether 5 meant seconds or minutes.
"""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|d|h|m|s)")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|d|h|m|s))+")
#: What is longer could not be added to a moment of today: the calendar ends with the year 9999.
_LONGEST = timedelta(days=36_500)


def parse_duration(value: object) -> timedelta:
    """A duration from ``timedelta`` or text such as ``5m`` or ``1h30m``.

    Errors:
        ValueError: anything else, a bare number too, and what is negative, above 100 years,
            or finer than a millisecond.
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise ValueError("a duration that is not negative")
        duration = value
    elif isinstance(value, str) and _DURATION.fullmatch(value):
        parts = _DURATION_PART.findall(value)
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
        duration = timedelta(seconds=min(seconds, 2 * _LONGEST.total_seconds()))
    else:
        raise ValueError("a duration such as 90s, 5m, 4h, 1d or 1h30m")
    if duration > _LONGEST:
        raise ValueError("a duration of at most 100 years")
    if duration % timedelta(milliseconds=1):
        raise ValueError("a duration in whole milliseconds")
    return duration


def format_duration(value: timedelta) -> str:
    """The shortest text that :func:`parse_duration` reads back as ``value``."""
    whole, text = value // timedelta(milliseconds=1), ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, whole = divmod(whole, size)
        if count:
            text += f"{count}{unit}"
    return text or "0s"


def format_bytes(value: int) -> str:
    """A size for people: ``0 B``, ``1.5 MB``."""
    number, units = float(value), ["B", "KB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.0f} {units[0]}" if units[0] == "B" else f"{number:.1f} {units[0]}"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
]
