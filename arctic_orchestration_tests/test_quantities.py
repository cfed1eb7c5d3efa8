"""Durations and sizes as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.quantities import format_bytes, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("4h", 14_400),
        ("1d", 86_400),
        ("1h30m", 5_400),
        ("1d2h3m4s", 93_784),
        ("1.5h", 5_400),
        ("250ms", 0.25),
        ("0s", 0),
    ],
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    """Days, hours, minutes, seconds, and combinations."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [5, 5.0, True, None, "", "5", "m", "5 m", "-5m", "5m ", "1h-30m", "5w", "5M", "1h30", "h5",
     "5m\n", "１５m", ["5m"], timedelta(seconds=-1), "0.5ms", timedelta(microseconds=1)],
)  # fmt: skip
def test_what_is_no_duration_is_refused(value: object) -> None:
    """A bare number most of all: nobody remembers whether 5 meant seconds or minutes."""
    with pytest.raises(ValueError, match="a duration"):
        parse_duration(value)


def test_a_duration_has_an_end() -> None:
    """What cannot be added to a moment is refused before somebody does."""
    assert parse_duration("36500d") == timedelta(days=36_500)
    for value in ("36501d", "9999999999999d", "1" * 400 + "d", timedelta(days=36_501)):
        with pytest.raises(ValueError, match="a duration of at most 100 years"):
            parse_duration(value)


def test_a_timedelta_is_a_duration() -> None:
    """As Python code writes it."""
    assert parse_duration(timedelta(minutes=5)) == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=1), "1d"),
        (timedelta(0), "0s"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(days=2, seconds=1), "2d1s"),
    ],
)
def test_a_duration_is_shown_with_its_units(duration: timedelta, text: str) -> None:
    """The shortest text that is read back."""
    assert format_duration(duration) == text


@given(st.integers(0, 10**11))
def test_what_is_shown_is_read_back(milliseconds: int) -> None:
    """To the millisecond."""
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 KB"),
        (1_500_000, "1.5 MB"),
        (2_000_000_000, "2.0 GB"),
        (3 * 10**12, "3.0 TB"),
        (5 * 10**15, "5000.0 TB"),
    ],
)
def test_a_size_is_shown_in_decimal_units(size: int, text: str) -> None:
    """As the design writes sizes: 500KB is 500,000 bytes."""
    assert format_bytes(size) == text
