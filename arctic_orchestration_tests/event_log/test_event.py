"""Events, their keys and their stored form."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.event_log.event import Event, EventKey, EventKind, RunStatus

AT = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)


def test_an_arrival_is_found_by_its_asset() -> None:
    """One key, with the asset as people write it."""
    event = Event(kind=EventKind.PARTITION, subject="raw/flights", at=AT, partition="2026-01-01")
    assert event.keys == ("partition:raw/flights",)
    assert event.keys == (EventKey.of_partition("raw/flights"),)


def test_a_run_is_found_by_its_job_and_by_each_of_its_assets() -> None:
    """Three keys for a job with two assets, each with location and status, and for any location."""
    event = Event(
        kind=EventKind.RUN,
        subject="rollup",
        at=AT,
        status=RunStatus.FAILURE,
        location="lake",
        assets=("a", "b/c"),
    )
    assert event.keys == (
        "run:lake:job:rollup:failure",
        "run:lake:asset:a:failure",
        "run:lake:asset:b/c:failure",
        "run:*:job:rollup:failure",
        "run:*:asset:a:failure",
        "run:*:asset:b/c:failure",
    )
    assert event.keys[0] == EventKey.of_job_run("lake", "rollup", RunStatus.FAILURE)
    assert event.keys[1] == EventKey.of_asset_run("lake", "a", RunStatus.FAILURE)


def test_a_tick_has_no_keys() -> None:
    """A tick is made for its schedule; nobody looks it up."""
    assert Event(kind=EventKind.TICK, subject="hourly", at=AT).keys == ()


def test_a_check_and_a_freshness_policy_have_keys_of_their_own() -> None:
    """Neither is found by a schedule that waits for arrivals of the asset."""
    check = Event(kind=EventKind.CHECK, subject="raw/orders", at=AT, check="no_nulls")
    assert check.keys == ("check:raw/orders",) == (EventKey.of_check("raw/orders"),)
    freshness = Event(kind=EventKind.FRESHNESS, subject="raw/orders", at=AT, state="fail")
    assert freshness.keys == ("freshness:raw/orders",) == (EventKey.of_freshness("raw/orders"),)


def test_only_three_statuses_are_ends() -> None:
    """Success, failure and canceled."""
    ended = {status for status in RunStatus if status.ended}
    assert ended == {RunStatus.SUCCESS, RunStatus.FAILURE, RunStatus.CANCELED}


words = st.text(max_size=8)
events = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
    subject=words,
    at=st.datetimes(timezones=st.just(UTC)),
    storage_id=st.integers(0, 2**62),
    run_id=st.none() | words,
    partition=st.none() | words,
    bytes=st.none() | st.integers(0, 2**62),
    rows=st.none() | st.integers(0, 2**62),
    status=st.none() | st.sampled_from(RunStatus),
    location=st.none() | words,
    assets=st.lists(words, max_size=2).map(tuple),
    tags=st.dictionaries(words, words, max_size=2),
    started=st.booleans(),
    metadata=st.dictionaries(words, st.none() | st.booleans() | st.integers() | words, max_size=2),
    data_version=st.none() | words,
    check=st.none() | words,
    passed=st.none() | st.booleans(),
    severity=st.none() | st.sampled_from(["error", "warn"]),
    blocking=st.none() | st.booleans(),
    target_id=st.none() | st.integers(1, 2**62),
    state=st.none() | words,
    previous_state=st.none() | words,
    problem=st.none() | words,
)


@given(events)
def test_the_stored_form_gives_the_event_back(event: Event) -> None:
    """Through JSON text and back, every field is the same."""
    assert Event.from_json(json.loads(json.dumps(event.to_json()))) == event
