"""Windows that have ended, go on, exist for Dagster, and follow each other."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.partitioning.windows import (
    current,
    ends,
    exists_from,
    first_ends,
    last_ended,
    next_end,
    ranges,
)

BERLIN = "Europe/Berlin"
DAILY = dg.DailyPartitionsDefinition("2026-01-05")
BERLIN_DAYS = dg.DailyPartitionsDefinition("2026-01-05", timezone=BERLIN)
BERLIN_HOURS = dg.HourlyPartitionsDefinition("2026-01-05-00:00", timezone=BERLIN)
WEEKLY = dg.WeeklyPartitionsDefinition("2026-01-04")
WORKDAYS = dg.TimeWindowPartitionsDefinition(
    start=datetime(2026, 1, 5),
    fmt="%Y-%m-%d",
    cron_schedule="0 0 * * *",
    exclusions=["0 0 * * 6,0"],
)
ENDED = dg.DailyPartitionsDefinition("2026-01-05", end_date="2026-01-08")
STATIC = dg.StaticPartitionsDefinition(["a", "b", "c", "d"])
BY_LETTER = dg.MultiPartitionsDefinition({"letter": STATIC, "day": BERLIN_DAYS})
BY_HOUR = dg.MultiPartitionsDefinition({"day": DAILY, "hour": BERLIN_HOURS})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("definition", "moment", "offset", "ended", "going_on"),
    [
        (DAILY, "2026-01-07T00:00", 0, "2026-01-06", "2026-01-07"),
        (DAILY, "2026-01-06T23:59:59", 0, "2026-01-05", "2026-01-06"),
        (DAILY, "2026-01-07T12:00", -1, "2026-01-05", "2026-01-06"),
        (DAILY, "2026-01-07T12:00", -2, None, "2026-01-05"),
        (DAILY, "2026-01-07T12:00", 2, "2026-01-08", "2026-01-09"),
        (DAILY, "2026-01-05T12:00", 0, None, "2026-01-05"),
        (DAILY, "2026-01-04T12:00", 0, None, None),
        (DAILY, "2026-01-04T12:00", 1, None, "2026-01-05"),
        (ENDED, "2026-03-01T00:00", 0, "2026-01-07", None),
        (ENDED, "2026-03-01T00:00", 1, None, None),
        (WEEKLY, "2026-01-14T00:00", 0, "2026-01-04", "2026-01-11"),
        # 23:00 UTC is midnight in Berlin, and 22:00 in summer.
        (BERLIN_DAYS, "2026-01-06T22:59:59", 0, "2026-01-05", "2026-01-06"),
        (BERLIN_DAYS, "2026-01-06T23:00", 0, "2026-01-06", "2026-01-07"),
        (BERLIN_DAYS, "2026-03-29T21:59:59", 0, "2026-03-28", "2026-03-29"),
        (BERLIN_DAYS, "2026-03-29T22:00", 0, "2026-03-29", "2026-03-30"),
        # At 02:00 of that night clocks are at 02:00 again.
        (BERLIN_HOURS, "2026-10-25T00:30", 0, "2026-10-25-01:00", "2026-10-25-02:00"),
        (BERLIN_HOURS, "2026-10-25T01:00", 0, "2026-10-25-02:00", "2026-10-25-02:00+0100"),
        (BERLIN_HOURS, "2026-10-25T02:00", 0, "2026-10-25-02:00+0100", "2026-10-25-03:00"),
        (BERLIN_HOURS, "2026-03-29T01:00", 0, "2026-03-29-01:00", "2026-03-29-03:00"),
        # The 10th and 11th of January are a weekend.
        (WORKDAYS, "2026-01-10T12:00", 0, "2026-01-09", None),
        (WORKDAYS, "2026-01-10T12:00", 1, "2026-01-12", "2026-01-12"),
        (WORKDAYS, "2026-01-11T12:00", -1, "2026-01-08", "2026-01-09"),
        (WORKDAYS, "2026-01-12T12:00", -1, "2026-01-08", "2026-01-09"),
        (STATIC, "2026-01-12T12:00", 0, None, None),
    ],
)
def test_the_window_that_ended_and_the_one_that_goes_on(
    definition: Any, moment: str, offset: int, ended: str | None, going_on: str | None
) -> None:
    assert last_ended(definition, at(moment), offset) == ended
    assert current(definition, at(moment), offset) == going_on


def test_the_zone_of_the_moment_does_not_matter() -> None:
    # Both are 02:30 in Berlin, an hour apart.
    for hour, key in ((0, "2026-10-25-02:00"), (1, "2026-10-25-02:00+0100")):
        moment = datetime(2026, 10, 25, hour, 30, tzinfo=UTC).astimezone(ZoneInfo(BERLIN))
        assert current(BERLIN_HOURS, moment) == key
        assert next_end(BERLIN_HOURS, moment) == datetime(2026, 10, 25, hour + 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("definition", "key", "moment"),
    [
        (DAILY, "2026-01-05", "2026-01-06T00:00"),
        (BERLIN_DAYS, "2026-03-29", "2026-03-29T22:00"),
        (BERLIN_HOURS, "2026-10-25-02:00+0100", "2026-10-25T02:00"),
        (WORKDAYS, "2026-01-09", "2026-01-10T00:00"),
        (BY_LETTER, "2026-03-29|a", "2026-03-29T22:00"),
        (BY_HOUR, "2026-01-06|2026-01-06-03:00", "2026-01-07T00:00"),
        (BY_HOUR, "2026-01-06|2026-01-08-03:00", "2026-01-08T03:00"),
    ],
)
def test_a_partition_exists_from_the_end_of_its_window(
    definition: Any, key: str, moment: str
) -> None:
    assert exists_from(definition, key) == at(moment)


@pytest.mark.parametrize(
    ("definition", "key"),
    [
        (DAILY, "2026-01-04"),
        (DAILY, "x"),
        (ENDED, "2026-01-08"),
        (WORKDAYS, "2026-01-10"),
        (STATIC, "a"),
        (BY_LETTER, "2026-01-04|a"),
        (BY_LETTER, "2026-01-05"),
    ],
)
def test_what_is_no_key_of_a_window_never_exists(definition: Any, key: str) -> None:
    assert exists_from(definition, key) is None


@given(
    st.integers(-2, 3),
    st.integers(0, 6),
    st.sampled_from(["0 0 * * *", "0 0 * * 1", "0 */6 * * *"]),
    st.sampled_from([None, ["0 0 * * 3"]]),
    st.sampled_from(["UTC", BERLIN]),
)
def test_dagster_has_the_partition_from_that_moment_and_not_before(
    end_offset: int, place: int, cron: str, exclusions: Any, zone: str
) -> None:
    """With every offset of the definition's end, across the change of clocks."""
    definition = dg.TimeWindowPartitionsDefinition(
        start=datetime(2026, 3, 23),
        fmt="%Y-%m-%d-%H:%M",
        cron_schedule=cron,
        end_offset=end_offset,
        exclusions=exclusions,
        timezone=zone,
    )
    with partition_loading_context(at("2026-12-01")):
        key = definition.get_partition_keys()[place]
    moment = exists_from(definition, key)
    assert moment is not None
    with partition_loading_context(moment):
        assert definition.has_partition_key(key)
    with partition_loading_context(moment - timedelta(microseconds=1)):
        assert not definition.has_partition_key(key)


@pytest.mark.parametrize(
    ("definition", "after", "until", "limit", "expected"),
    [
        (
            DAILY,
            "2026-01-07T00:00",
            "2026-01-09T00:00",
            10,
            [("2026-01-08T00:00", "2026-01-07"), ("2026-01-09T00:00", "2026-01-08")],
        ),
        (DAILY, "2025-01-01", "2036-01-07T00:00", 1, [("2036-01-07T00:00", "2036-01-06")]),
        (DAILY, "2025-01-01", "2026-01-06T12:00", 9, [("2026-01-06T00:00", "2026-01-05")]),
        (DAILY, "2025-01-01", "2026-01-05T12:00", 9, []),
        (DAILY, "2026-02-01", "2026-02-01", 9, []),
        (ENDED, "2026-01-07T00:00", "2030-01-01", 9, [("2026-01-08T00:00", "2026-01-07")]),
        (
            BERLIN_HOURS,
            "2026-10-25T00:00",
            "2026-10-25T02:00",
            9,
            [
                ("2026-10-25T01:00", "2026-10-25-02:00"),
                ("2026-10-25T02:00", "2026-10-25-02:00+0100"),
            ],
        ),
        (WORKDAYS, "2026-01-10", "2026-01-13", 9, [("2026-01-13T00:00", "2026-01-12")]),
        (STATIC, "2026-01-10", "2026-01-13", 9, []),
    ],
)
def test_the_windows_that_ended_in_a_span(
    definition: Any, after: str, until: str, limit: int, expected: list[tuple[str, str]]
) -> None:
    found = ends(definition, at(after), at(until), limit)
    assert found == [(at(moment), key) for moment, key in expected]
    if limit > len(expected):
        first = first_ends(definition, at(after), at(until), limit)
        assert first == [moment for moment, _ in found]


def test_the_first_windows_that_ended_in_a_span() -> None:
    """Those after the change of clocks follow with the next look."""
    begin, end = at("2026-10-24T23:30"), at("2026-10-25T03:00")
    found = first_ends(BERLIN_HOURS, begin, end, 2)
    assert found == [at("2026-10-25T00:00"), at("2026-10-25T01:00")]
    assert first_ends(BERLIN_HOURS, found[-1], end, 2) == [at("2026-10-25T02:00"), end]


@pytest.mark.parametrize(
    ("definition", "after", "expected"),
    [
        (DAILY, "2026-01-07T00:00", "2026-01-08T00:00"),
        (DAILY, "2026-01-06T23:59:59", "2026-01-07T00:00"),
        (DAILY, "2020-01-01", "2026-01-06T00:00"),
        (ENDED, "2026-01-07T12:00", "2026-01-08T00:00"),
        (ENDED, "2026-01-08T00:00", None),
        (BERLIN_DAYS, "2026-03-28T23:00", "2026-03-29T22:00"),
        (BERLIN_HOURS, "2026-10-25T01:00", "2026-10-25T02:00"),
        (WORKDAYS, "2026-01-10T00:00", "2026-01-13T00:00"),
        (WORKDAYS, "2026-01-09T12:00", "2026-01-10T00:00"),
        (STATIC, "2026-01-09", None),
    ],
)
def test_the_next_end_of_a_window(definition: Any, after: str, expected: str | None) -> None:
    assert next_end(definition, at(after)) == (None if expected is None else at(expected))


@pytest.mark.parametrize(
    ("definition", "keys", "expected"),
    [
        (
            DAILY,
            ["2026-01-08", "2036-01-01", "2026-01-06", "x", "2026-01-05"],
            [["2026-01-05", "2026-01-06"], ["2026-01-08"], ["2036-01-01"], ["x"]],
        ),
        (WORKDAYS, ["2026-01-12", "2026-01-09"], [["2026-01-09", "2026-01-12"]]),
        (
            BERLIN_HOURS,
            ["2026-10-25-03:00", "2026-10-25-02:00+0100", "2026-10-25-01:00", "2026-10-25-02:00"],
            [
                [
                    "2026-10-25-01:00",
                    "2026-10-25-02:00",
                    "2026-10-25-02:00+0100",
                    "2026-10-25-03:00",
                ]
            ],
        ),
        (STATIC, ["d", "b", "a", "x", "a"], [["a", "b"], ["d"], ["x"]]),
        (dg.DynamicPartitionsDefinition(name="f"), ["a", "b", "z"], [["b", "a"], ["z"]]),
        (DAILY, [], []),
    ],
)
def test_keys_that_follow_each_other_are_one_range(
    definition: Any, keys: list[str], expected: list[list[str]]
) -> None:
    assert ranges(definition, keys, lambda name: ["b", "a", "c"]) == expected


_MULTI = dg.MultiPartitionsDefinition({"date": DAILY, "letter": STATIC})


def test_a_range_of_two_dimensions_is_a_range_of_each() -> None:
    keys = ["2026-01-05|a", "2026-01-05|b", "2026-01-06|a", "2026-01-06|b", "2026-01-06|d"]
    assert ranges(_MULTI, keys) == [
        ["2026-01-05|a", "2026-01-05|b", "2026-01-06|a", "2026-01-06|b"],
        ["2026-01-06|d"],
    ]


def test_dynamic_keys_are_listed_once_for_all_ranges() -> None:
    """Not once for each row: there may be a hundred thousand, and they are read from a storage."""
    definition = dg.MultiPartitionsDefinition(
        {"date": DAILY, "file": dg.DynamicPartitionsDefinition(name="files")}
    )
    asked: list[str] = []

    def listed(name: str) -> list[str]:
        asked.append(name)
        return ["a", "b", "c"]

    keys = ["2026-01-05|a", "2026-01-06|b", "2026-01-07|c", "2026-01-07|b"]
    assert ranges(definition, keys, listed) == [*([key] for key in keys[:2]), [keys[3], keys[2]]]
    assert asked == ["files"]


@given(st.data(), st.sampled_from([DAILY, WORKDAYS, STATIC, _MULTI]))
def test_a_range_is_exactly_what_dagster_runs_from_its_first_key_to_its_last(
    data: st.DataObject, definition: Any
) -> None:
    with partition_loading_context(at("2026-01-16")):
        everything = [str(key) for key in definition.get_partition_keys()]
        keys = data.draw(st.sets(st.sampled_from(everything)))
        found = ranges(definition, keys)
        assert sorted(key for group in found for key in group) == sorted(keys)
        for group in found:
            span = dg.PartitionKeyRange(group[0], group[-1])
            assert list(map(str, definition.get_partition_keys_in_range(span))) == group
