"""Durations and sizes as people write and read them: ``90s``, ``1h30m``, ``1.5 MB``.

Bare numbers are refused: it is unclear whether 5 means seconds or minutes.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Annotated, overload

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|d|h|m|s)")
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|d|h|m|s))+")
#: A longer duration could not be added to a present moment: the calendar ends with the year 9999.
_LONGEST = timedelta(days=36_500)

#: of moments, as errors name them
YEARS = "the years 1970 to 9000"

_BYTES = {
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(("", "K", "M", "G", "T", "P"))},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTP", start=1)},
}
#: Of two texts of the same length, the one with the larger unit is easier to read.
_UNITS = sorted(_BYTES.items(), key=lambda unit: -unit[1])
#: A size of 19 digits divided by 2**50 has at most this many decimals.
_EXACT = Context(prec=70)
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,15})?)([KMGTP]?B|[KMGTP]iB)")
_LARGEST = 1000 * 1000**5


def parse_duration(value: object) -> timedelta:
    """Parses a duration from ``timedelta`` or text such as ``5m`` or ``1h30m``.

    Errors:
        ValueError: other values, including bare numbers, and durations that are negative, above 100
            years, or finer than a millisecond.
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


def format_age(value: timedelta) -> str:
    """Returns the text of a duration to the second; below a second, exact."""
    second = timedelta(seconds=1)
    return format_duration(value - value % second if value >= second else value)


def format_duration(value: timedelta) -> str:
    """Returns the shortest text that :func:`parse_duration` parses as ``value``."""
    whole, text = value // timedelta(milliseconds=1), ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, whole = divmod(whole, size)
        if count:
            text += f"{count}{unit}"
    return text or "0s"


def parse_size(value: object) -> int:
    """Parses a size in bytes: ``500KB`` (decimal), ``64MiB`` (binary) or ``512B``.

    Errors:
        ValueError: other values, including bare numbers, and sizes above 1000 PB or not of a whole
            number of bytes.
    """
    parts = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if parts is None:
        raise ValueError("a size such as 512B, 500KB, 1.5GB or 64MiB")
    size = Fraction(parts[1]) * _BYTES[parts[2]]
    if size > _LARGEST:
        raise ValueError("a size of at most 1000PB")
    if size.denominator != 1:
        raise ValueError("a size in whole bytes")
    return int(size)


def format_size(value: int) -> str:
    """Returns the shortest text that :func:`parse_size` parses as ``value``."""
    texts = [
        f"{_EXACT.divide(Decimal(value), size).normalize(_EXACT):f}{unit}"
        for unit, size in _UNITS
        if value >= size
    ]
    return min(texts, key=len, default="0B")


def format_bytes(value: int) -> str:
    """Formats a size for people: ``0 B``, ``1.5 MB``."""
    number, units = float(value), ["B", "KB", "MB", "GB", "TB"]
    while number >= 1000 and len(units) > 1:
        number, units = number / 1000, units[1:]
    return f"{number:.0f} {units[0]}" if units[0] == "B" else f"{number:.1f} {units[0]}"


def in_calendar(at: datetime) -> bool:
    """Returns whether calendars can count from a moment; others are mistakes."""
    return 1970 <= at.year <= 9000


def format_moment(value: datetime) -> str:
    """Formats a moment for people, to the second: ``2026-01-01 04:00:00Z``."""
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: ``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seconds(value: float) -> str:
    """Formats seconds with a sensible precision: ``340ms``, ``2.5s``, ``1m12s``."""
    if value < 1:
        return f"{round(value * 1000)}ms"
    if value < 10:
        return f"{value:.1f}s"
    return format_duration(timedelta(seconds=round(value)))


def span(begin: datetime, end: datetime) -> str:
    """Returns the time from one moment to a later one, in whole seconds."""
    return format_duration(timedelta(seconds=max(0, round((end - begin).total_seconds()))))


def rounded_span(begin: datetime, end: datetime) -> str:
    """Returns a span for people; seconds of hours, and hours of days, say nothing."""
    days, hours = (end - begin) // timedelta(days=1), (end - begin) // timedelta(hours=1)
    if days >= 2:
        return f"{days}d"
    return f"{hours}h" if hours >= 2 else span(begin, end)


def _positive(value: timedelta) -> timedelta:
    if not value:
        raise ValueError("a duration longer than 0s")
    return value


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
]

PositiveDuration = Annotated[Duration, AfterValidator(_positive)]

Size = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size, return_type=str),
]


@overload
def iso(at: datetime) -> str: ...
@overload
def iso(at: None) -> None: ...
def iso(at: datetime | None) -> str | None:
    """Formats a moment in UTC for programs: ``2026-01-01T00:00:00Z``."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
