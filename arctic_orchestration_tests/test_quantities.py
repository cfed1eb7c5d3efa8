"""Durations and sizes as people write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.quantities import (
    format_bytes,
    format_duration,
    format_moment,
    format_size,
    parse_duration,
    parse_size,
)


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
    """What cannot be added to a moment is refused before it is added."""
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


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("512B", 512),
        ("500KB", 500_000),
        ("100MB", 100_000_000),
        ("2GB", 2_000_000_000),
        ("1.5GB", 1_500_000_000),
        ("3TB", 3_000_000_000_000),
        ("1000PB", 1_000_000_000_000_000_000),
        ("0.001KB", 1),
        ("1KiB", 1_024),
        ("1.5KiB", 1_536),
        ("64MiB", 67_108_864),
        ("2GiB", 2_147_483_648),
        ("1TiB", 1_099_511_627_776),
        ("1PiB", 1_125_899_906_842_624),
    ],
)
def test_a_size_has_a_unit(text: str, size: int) -> None:
    """Decimal ones, and binary ones with an i."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "value",
    [5, 5.0, True, None, "", "5", "MB", "5 MB", "-5MB", "5MB ", "5mb", "5M", "5Mb", "5kB", "5K",
     "5EB", "1GB500MB", ".5MB", "5.MB", "5iB", "5MIB", "1e3MB", "5MB\n", "１MB", ["5MB"],
     "1.5B", "1.0005KB", "0.3KiB", "100000000000000000.000000000000001B", "1001PB",
     "999999999999999999PB", "1" * 400 + "B"],
)  # fmt: skip
def test_what_is_no_size_is_refused(value: object) -> None:
    """A bare number most of all; and what is no whole number of bytes, or too large."""
    with pytest.raises(ValueError, match="a size"):
        parse_size(value)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1, "1B"),
        (999, "999B"),
        (1_000, "1KB"),
        # As long as 1500B, and easier to read.
        (1_500, "1.5KB"),
        (1_536, "1536B"),
        (1_024, "1KiB"),
        (500_000, "500KB"),
        (1_500_000_000, "1.5GB"),
        (67_108_864, "64MiB"),
        (1_610_612_736, "1.5GiB"),
        (1_000_000_001, "1000000001B"),
        (10**18, "1000PB"),
    ],
)
def test_a_size_is_written_as_shortly_as_it_can_be(size: int, text: str) -> None:
    """In the unit in which it is shortest, and never below one of that unit."""
    assert format_size(size) == text


@given(
    st.integers(0, 10**18)
    | st.builds(lambda n, k, base: min(n * base**k, 10**18), st.integers(0, 2000),
                st.integers(0, 5), st.sampled_from([1000, 1024]))
)  # fmt: skip
def test_a_size_that_is_written_is_read_back(size: int) -> None:
    """To the byte, and the text is no longer than that of the bytes."""
    text = format_size(size)
    assert parse_size(text) == size
    assert len(text) <= len(f"{size}B")


def test_a_moment_is_shown_in_utc() -> None:
    """Two in the morning two hours east of Greenwich is midnight."""
    assert format_moment(datetime(2026, 1, 1, 4, tzinfo=UTC)) == "2026-01-01 04:00:00Z"
    east = timezone(timedelta(hours=2))
    assert format_moment(datetime(2026, 1, 1, 2, 0, 5, 9, tzinfo=east)) == "2026-01-01 00:00:05Z"
