"""Definitions and mappings as YAML says them, and back."""

from datetime import date, datetime
from typing import Any

import dagster as dg
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.partitioning.forms import (
    definition_of,
    dynamic_keys_of,
    form_of,
    form_of_mapping,
    mapping_of,
)

DAILY = dg.DailyPartitionsDefinition("2026-01-01")


@pytest.mark.parametrize(
    ("text", "definition"),
    [
        ("daily: {start: 2026-01-01}", DAILY),
        ("daily: {start: '2026-01-01'}", DAILY),
        (
            "daily: {start: 2026-01-01, timezone: Europe/Berlin, end_offset: 1, hour_offset: 6}",
            dg.DailyPartitionsDefinition(
                "2026-01-01", timezone="Europe/Berlin", end_offset=1, hour_offset=6
            ),
        ),
        (
            "hourly: {start: 2026-01-01-05:00, minute_offset: 15}",
            dg.HourlyPartitionsDefinition("2026-01-01-05:00", minute_offset=15),
        ),
        (
            "hourly: {start: 2026-01-01T05:00, end: 2026-02-01}",
            dg.HourlyPartitionsDefinition("2026-01-01-05:00", end_date="2026-02-01-00:00"),
        ),
        (
            "weekly: {start: 2026-01-01, day_offset: 1}",
            dg.WeeklyPartitionsDefinition("2026-01-01", day_offset=1),
        ),
        (
            "monthly: {start: 2026-01, format: '%Y-%m', day_offset: 3}",
            dg.MonthlyPartitionsDefinition("2026-01", fmt="%Y-%m", day_offset=3),
        ),
        (
            "cron: {expression: '0 */6 * * 1-5', start: 2026-01-01, format: '%Y-%m-%d-%H', "
            "exclusions: ['0 0 * * 3', 2026-01-05T06:00:00]}",
            dg.TimeWindowPartitionsDefinition(
                start=datetime(2026, 1, 1),
                fmt="%Y-%m-%d-%H",
                cron_schedule="0 */6 * * 1-5",
                exclusions=["0 0 * * 3", datetime(2026, 1, 5, 6)],
            ),
        ),
        ("static: [a, b]", dg.StaticPartitionsDefinition(["a", "b"])),
        ("dynamic: files", dg.DynamicPartitionsDefinition(name="files")),
        ("dynamic: {name: files, keys: [a]}", dg.DynamicPartitionsDefinition(name="files")),
        (
            "multi: {date: {daily: {start: 2026-01-01}}, region: {static: [emea, amer]}}",
            dg.MultiPartitionsDefinition(
                {"date": DAILY, "region": dg.StaticPartitionsDefinition(["emea", "amer"])}
            ),
        ),
    ],
)
def test_a_definition_is_what_its_form_says(text: str, definition: Any) -> None:
    assert definition_of(yaml.safe_load(text), field="partitions") == definition


def test_keys_of_dynamic_partitions_are_read_from_the_form() -> None:
    """They are those with which a simulation begins."""
    form = {
        "multi": {
            "file": {"dynamic": {"name": "files", "keys": ["a", "b"]}},
            "x": {"static": ["c"]},
        }
    }
    assert dynamic_keys_of(form, field="partitions") == {"files": ("a", "b")}
    assert dynamic_keys_of({"dynamic": "files"}, field="partitions") == {"files": ()}
    assert dynamic_keys_of({"daily": {"start": "2026-01-01"}}, field="partitions") == {}


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        (None, "p: got None, expected a mapping with one key, one of hourly, daily,"),
        ("daily", "p: got 'daily', expected a mapping with one key"),
        ({}, "p: got {}, expected a mapping with one key"),
        ({"daily": {}, "static": []}, "expected a mapping with one key"),
        ({"dayly": {}}, "p: got {'dayly': {}}, expected a mapping with one key"),
        ({"daily": {}}, "p.daily.start: got None, expected a value: the field is required"),
        ({"daily": "2026-01-01"}, "p.daily: got '2026-01-01', expected a mapping"),
        ({"daily": {"start": "soon"}}, "p.daily.start: got 'soon', expected a date, or a wall"),
        ({"daily": {"start": 2026}}, "p.daily.start: got 2026, expected a date"),
        ({"daily": {"start": "2026-01-01T00:00Z"}}, "p.daily.start: got datetime.datetime(2026"),
        ({"daily": {"start": "2026-01-01", "begin": 1}}, "p.daily.begin: got 1, expected one of"),
        ({"hourly": {"start": "2026-01-01", "hour_offset": 1}}, "p.hourly.hour_offset: got 1"),
        (
            {"daily": {"start": "2026-01-01", "timezone": "Berlin"}},
            "p.daily.timezone: got 'Berlin', expected a time zone of the IANA database",
        ),
        ({"daily": {"start": "2026-01-01", "end_offset": "1"}}, "p.daily.end_offset: got '1'"),
        ({"daily": {"start": "2026-01-01", "end_offset": True}}, "expected a whole number"),
        ({"daily": {"start": "2026-01-01", "hour_offset": 24}}, "what Dagster accepts"),
        ({"daily": {"start": "2026-01-01", "exclusions": "x"}}, "p.daily.exclusions: got 'x'"),
        ({"daily": {"start": "2026-01-01", "exclusions": ["x"]}}, "p.daily.exclusions[0]: got"),
        (
            {"daily": {"start": "2026-01-01", "exclusions": ["0 0 * * *"]}},
            "p.daily.exclusions: got ['0 0 * * *'], expected exclusions that leave windows",
        ),
        ({"daily": {"start": "2026", "format": "%Y"}}, "map to the same partition key"),
        ({"cron": {"start": "2026-01-01"}}, "p.cron.expression: got None, expected a value"),
        ({"cron": {"start": "2026-01-01", "expression": "x"}}, "Found invalid cron schedule 'x'"),
        ({"static": "abc"}, "p.static: got 'abc', expected a list of texts"),
        ({"static": [1]}, "p.static[0]: got 1, expected text"),
        ({"static": ["a", "a"]}, "p.static: got ['a', 'a'], expected what Dagster accepts"),
        ({"dynamic": 1}, "p.dynamic: got 1, expected text"),
        ({"dynamic": {"keys": []}}, "p.dynamic.name: got None, expected text"),
        ({"dynamic": {"name": "a", "x": 1}}, "p.dynamic.x: got 1, expected one of name, keys"),
        ({"multi": {"a": {"static": ["x"]}}}, "p.multi: got {'a': {'static': ['x']}}, expected a"),
        ({"multi": {"a": {"static": [1]}, "b": {"static": []}}}, "p.multi.a.static[0]: got 1"),
        (
            {"multi": {"a": {"static": ["x|y"]}, "b": {"static": ["z"]}}},
            "expected what Dagster accepts (Invalid character in partition key for dimension a.",
        ),
    ],
)
def test_a_bad_definition_is_refused(form: object, problem: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        definition_of(form, field="p")
    assert problem in str(refused.value)
    assert str(refused.value).startswith("p")


@pytest.mark.parametrize(
    ("form", "mapping"),
    [
        ("identity", dg.IdentityPartitionMapping()),
        ("all", dg.AllPartitionMapping()),
        ("last", dg.LastPartitionMapping()),
        ({"time_window": {}}, dg.TimeWindowPartitionMapping()),
        ({"time_window": {"start_offset": -1}}, dg.TimeWindowPartitionMapping(-1, 0)),
        ({"dimension": "date"}, dg.MultiToSingleDimensionPartitionMapping("date")),
        ({"dimension": None}, dg.MultiToSingleDimensionPartitionMapping()),
        (
            {"static": {"emea": "eu", "amer": ["ca", "us"]}},
            dg.StaticPartitionMapping({"emea": "eu", "amer": ["ca", "us"]}),
        ),
        ({"specific": ["a"]}, dg.SpecificPartitionsPartitionMapping(["a"])),
        (
            {
                "multi": {
                    "date": {"dimension": "day", "mapping": {"time_window": {"end_offset": 1}}}
                }
            },
            dg.MultiPartitionMapping(
                {"date": dg.DimensionPartitionMapping("day", dg.TimeWindowPartitionMapping(0, 1))}
            ),
        ),
    ],
)
def test_a_mapping_is_what_its_form_says(form: Any, mapping: dg.PartitionMapping) -> None:
    """And has that form."""
    made = mapping_of(form, field="mapping")
    assert (type(made), made) == (type(mapping), mapping)
    assert form_of_mapping(mapping) == form


def test_a_dimension_is_mapped_to_itself_where_no_mapping_is_given() -> None:
    made = mapping_of({"multi": {"date": {"dimension": "date"}}}, field="mapping")
    assert form_of_mapping(made) == {
        "multi": {"date": {"dimension": "date", "mapping": "identity"}}
    }


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        (None, "m: got None, expected a mapping with one key, one of time_window, dimension"),
        ("same", "m: got 'same', expected identity, all, last, or a mapping with one of"),
        ({"window": {}}, "m: got {'window': {}}, expected a mapping with one key"),
        ({"time_window": {"offset": 1}}, "m.time_window.offset: got 1, expected one of start_off"),
        ({"time_window": {"start_offset": "-1"}}, "m.time_window.start_offset: got '-1'"),
        ({"time_window": None}, "m.time_window: got None, expected a mapping"),
        ({"dimension": 1}, "m.dimension: got 1, expected text"),
        ({"static": ["a"]}, "m.static: got ['a'], expected a mapping"),
        ({"static": {"a": 1}}, "m.static.a: got 1, expected a list of texts"),
        ({"static": {1: "a"}}, "m.static: got 1, expected text"),
        ({"specific": "a"}, "m.specific: got 'a', expected a list of texts"),
        ({"multi": {"date": "day"}}, "m.multi.date: got 'day', expected a mapping"),
        ({"multi": {"date": {"mapping": "all"}}}, "m.multi.date.dimension: got None, expected"),
        (
            {"multi": {"date": {"dimension": "day", "mapping": "x"}}},
            "m.multi.date.mapping: got 'x', expected identity",
        ),
    ],
)
def test_a_bad_mapping_is_refused(form: object, problem: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        mapping_of(form, field="m")
    assert problem in str(refused.value)


class _Days(dg.DailyPartitionsDefinition):
    pass


class _Same(dg.IdentityPartitionMapping):
    pass


def test_a_custom_class_has_no_form() -> None:
    assert form_of(_Days("2026-01-01")) is None
    assert form_of(dg.MultiPartitionsDefinition({"a": _Days("2026-01-01"), "b": DAILY})) is None
    assert form_of_mapping(_Same()) is None
    inner = {"a": dg.DimensionPartitionMapping("a", _Same())}
    assert form_of_mapping(dg.MultiPartitionMapping(inner)) is None


@st.composite
def _windows(draw: st.DrawFn) -> dg.TimeWindowPartitionsDefinition:
    start = draw(st.datetimes(datetime(2020, 1, 1), datetime(2026, 12, 31))).replace(microsecond=0)
    end = draw(st.sampled_from([None, datetime(2027, 3, 1)]))
    common: dict[str, Any] = {
        "timezone": draw(st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"])),
        "end_offset": draw(st.integers(-2, 2)),
        "exclusions": draw(st.sampled_from([None, ["0 0 * * 3", datetime(2026, 1, 1, 6)]])),
    }
    kinds: list[type[dg.TimeWindowPartitionsDefinition]] = [
        dg.HourlyPartitionsDefinition,
        dg.DailyPartitionsDefinition,
        dg.WeeklyPartitionsDefinition,
        dg.MonthlyPartitionsDefinition,
    ]
    kind = draw(st.sampled_from([None, *kinds]))
    if kind is not None:
        offset = draw(st.integers(0, 59))
        dates: Any = {"start_date": start, "end_date": end, "minute_offset": offset}
        return kind(**dates, **common)
    cron = draw(st.sampled_from(["*/15 * * * *", "0 6 * * 1-5", "0 0 1 1 *"]))
    return dg.TimeWindowPartitionsDefinition(
        start=start, end=end, cron_schedule=cron, fmt="%Y-%m-%d-%H:%M", **common
    )


_single = st.one_of(
    _windows(),
    st.lists(st.sampled_from("abcde"), unique=True).map(dg.StaticPartitionsDefinition),
    st.sampled_from(["files", "tables"]).map(
        lambda name: dg.DynamicPartitionsDefinition(name=name)
    ),
)
_definitions = st.one_of(
    _single,
    st.tuples(_single, _single).map(
        lambda pair: dg.MultiPartitionsDefinition({"a": pair[0], "b": pair[1]})
    ),
)


@given(_definitions)
def test_a_definition_is_made_again_from_its_form(definition: Any) -> None:
    """Through YAML, too."""
    form = form_of(definition)
    assert form is not None
    assert definition_of(form, field="partitions") == definition
    assert definition_of(yaml.safe_load(yaml.safe_dump(form)), field="partitions") == definition


def test_a_form_has_only_what_differs_from_the_default() -> None:
    assert form_of(DAILY) == {"daily": {"start": "2026-01-01"}}
    assert form_of(definition_of({"monthly": {"start": date(2026, 1, 1)}}, field="")) == {
        "monthly": {"start": "2026-01-01"}
    }
