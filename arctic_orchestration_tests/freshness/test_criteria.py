"""What a task is, and when a success is fresh; moments are counted manually."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.freshness.criteria import (
    Parent,
    TaskSpec,
    age_in_words,
    fresh_until,
    is_fresh,
    need_in_words,
    next_start_of_day,
    required_since,
    strictness,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_exactly_as_old_as_allowed_is_fresh_and_a_microsecond_older_is_not() -> None:
    """24 hours before noon is noon of the day before."""
    since = required_since(24, "UTC", NOON)
    assert since == moment("2026-03-01 12:00")
    assert is_fresh(moment("2026-03-01 12:00"), since)
    assert not is_fresh(moment("2026-03-01 12:00") - TICK, since)


def test_parts_of_hours_count() -> None:
    """A quarter of an hour is fifteen minutes."""
    assert required_since(0.25, "UTC", NOON) == moment("2026-03-02 11:45")


def test_what_never_was_is_not_fresh() -> None:
    """However generous the need is."""
    assert not is_fresh(None, required_since(876_000, "UTC", NOON))


def test_without_hours_it_is_made_since_the_start_of_today() -> None:
    """Midnight itself is of today, the last microsecond before it is not."""
    since = required_since(None, "UTC", NOON)
    assert is_fresh(moment("2026-03-02 00:00"), since)
    assert not is_fresh(moment("2026-03-02 00:00") - TICK, since)


@pytest.mark.parametrize(
    ("zone", "now", "start"),
    [
        # five hours behind UTC: at four in the morning it is still yesterday there
        ("America/New_York", "2026-03-02 04:00", "2026-03-01 05:00"),
        ("America/New_York", "2026-03-02 05:00", "2026-03-02 05:00"),
        # the day on which the clock goes on starts before it does
        ("America/New_York", "2026-03-08 12:00", "2026-03-08 05:00"),
        ("America/New_York", "2026-03-09 12:00", "2026-03-09 04:00"),
        ("Asia/Kathmandu", "2026-03-02 12:00", "2026-03-01 18:15"),
        # midnight does not exist there on that day: the clock goes from 24:00 to 1:00
        ("Africa/Cairo", "2026-04-24 12:00", "2026-04-23 22:00"),
        # midnight comes twice there: the first one starts the day
        ("America/Havana", "2026-11-01 12:00", "2026-11-01 04:00"),
        # no 30th of December 2011 was there
        ("Pacific/Apia", "2011-12-30 12:00", "2011-12-30 10:00"),
    ],
)
def test_today_starts_at_midnight_of_the_zone(zone: str, now: str, start: str) -> None:
    """On days with a change of clocks too."""
    assert required_since(None, zone, moment(now)) == moment(start)


def test_a_forced_run_needs_what_ends_now_or_later() -> None:
    """Zero hours: no success of the past is enough."""
    since = required_since(0, "UTC", NOON)
    assert not is_fresh(NOON - TICK, since)
    assert is_fresh(NOON, since)


@pytest.mark.parametrize(
    ("now", "next_start"),
    [
        ("2026-03-02 04:59", "2026-03-02 05:00"),
        ("2026-03-02 05:00", "2026-03-03 05:00"),
        # 23 hours on the day on which the clock goes on
        ("2026-03-08 05:00", "2026-03-09 04:00"),
    ],
)
def test_the_next_day_starts_later(now: str, next_start: str) -> None:
    """In New York, five hours behind and then four."""
    assert next_start_of_day("America/New_York", moment(now)) == moment(next_start)


_ZONES = st.sampled_from(["UTC", "America/New_York", "Asia/Kathmandu", "Africa/Cairo"])
_MOMENTS = st.datetimes(
    min_value=datetime(2020, 1, 1), max_value=datetime(2030, 1, 1), timezones=st.just(UTC)
)


@given(made=_MOMENTS, zone=_ZONES, hours=st.none() | st.floats(0.01, 100), after=st.floats(0, 400))
def test_it_is_fresh_until_the_reported_moment(
    made: datetime, zone: str, hours: float | None, after: float
) -> None:
    """``fresh_until`` and ``required_since`` are one rule, seen from both ends."""
    now = made + timedelta(hours=after)
    fresh = is_fresh(made, required_since(hours, zone, now))
    end = fresh_until(made, hours, zone)
    assert fresh == (now <= end if hours is not None else now < end)


def test_words() -> None:
    """As they stand in reasons."""
    assert need_in_words(24, "UTC") == "at most 24 hours old"
    assert need_in_words(1, "UTC") == "at most 1 hour old"
    assert need_in_words(0.5, "UTC") == "at most 0.5 hours old"
    assert need_in_words(None, "Europe/Berlin") == ("made since the start of today (Europe/Berlin)")
    assert age_in_words(None, NOON) == "never made"
    assert age_in_words(NOON - timedelta(hours=1, minutes=30, milliseconds=7), NOON) == (
        "made 1h30m ago"
    )
    assert age_in_words(NOON + timedelta(seconds=3), NOON) == "made 0s ago"


def test_of_today_is_never_older_than_a_day() -> None:
    """That is what it comes to where needs are compared without a moment."""
    assert strictness(None) == timedelta(days=1)
    assert strictness(1.5) == timedelta(minutes=90)


def test_a_spec_is_read_back_from_its_form() -> None:
    """Without what is as it is by default."""
    spec = TaskSpec(
        name="a/b",
        target="a/b",
        freshness_hours=2,
        parents=(Parent(name="c"), Parent(name="d", hours=24)),
        patience=timedelta(hours=1),
    )
    assert spec.to_form() == {
        "name": "a/b",
        "target": "a/b",
        "freshness_hours": 2.0,
        "parents": [{"name": "c"}, {"name": "d", "hours": 24.0}],
        "patience": "1h",
    }
    assert TaskSpec.parse(spec.to_form()) == spec


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"name": ""}, "name", "text that is not empty"),
        ({"name": "n" * 201}, "name", "String should have at most 200 characters"),
        ({"kind": "table"}, "kind", "'asset' or 'job'"),
        ({"freshness_hours": 0}, "freshness_hours", "more than 0"),
        ({"freshness_hours": "24"}, "freshness_hours", "a number"),
        ({"freshness_hours": float("nan")}, "freshness_hours", "not infinite"),
        ({"freshness_hours": 900_000}, "freshness_hours", "at most 876000"),
        ({"timezone": "Mars/Base"}, "timezone", "a time zone of the IANA database"),
        ({"parents": [{"name": "b", "hours": -1}]}, "parents[0].hours", "more than 0"),
        ({"parents": [{"hours": 1}]}, "parents[0].name", "a value: the field is required"),
        ({"parents": [{"name": "b"}, {"name": "b", "hours": 1}]}, "parents", "stands there twice"),
        ({"concurrency": 0}, "concurrency", "at least 1"),
        ({"retries": -1}, "retries", "at least 0"),
        ({"patience": "0s"}, "patience", "longer than 0s"),
        ({"recheck": 120}, "recheck", "a duration such as"),
        ({"owner": "me"}, "owner", "no such field"),
    ],
)
def test_what_no_task_can_be_is_refused(
    change: dict[str, object], field: str, expected: str
) -> None:
    """The field, its value and what was expected."""
    with pytest.raises(InvalidDefinition) as refused:
        TaskSpec.parse({"name": "a", "target": "a", **change})
    assert refused.value.field == field
    assert expected in refused.value.expected
