"""``partitions``: so many different partitions of an asset."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.triggers import Arrivals, on

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def arrival(partition: str | None, asset: str = "raw/flights", size: int | None = None) -> Event:
    return Event(kind=EventKind.PARTITION, subject=asset, at=NOW, partition=partition, bytes=size)


def test_it_fires_at_its_count_and_says_how_far_it_is() -> None:
    """Two of three is not enough; more than three is."""
    trigger = on.partitions("raw/flights", count=3)
    two = trigger.evaluate([Arrivals(events=5, partitions=2)], NOW)
    assert not two.satisfied
    assert two.reason == "2 of 3 partitions of raw/flights have arrived"
    assert two.recheck_at is None
    assert trigger.evaluate([Arrivals(events=3, partitions=3)], NOW).satisfied
    assert trigger.evaluate([Arrivals(events=9, partitions=7)], NOW).satisfied


def test_the_reason_names_the_glob() -> None:
    """A person sees which partitions are waited for."""
    firing = on.partitions("raw/flights", where="2026-*").evaluate([Arrivals()], NOW)
    assert firing.reason == "0 of 1 partitions of raw/flights like 2026-* have arrived"


def test_it_is_found_by_its_asset_wherever_the_schedule_stands() -> None:
    """The key of the leaf is the key of the arrival."""
    (leaf,) = on.partitions("raw/flights").leaves
    for location in ("here", "there"):
        assert leaf.keys(location) == arrival("1").keys
    assert leaf.asset_fields() == {"asset": "raw/flights"}
    assert leaf.job_name_fields() == {}
    assert leaf.next_tick(NOW, "s") is None


@pytest.mark.parametrize(
    ("where", "partition", "taken"),
    [
        (None, "2026-01-01", True),
        (None, None, True),
        ("2026-*", "2026-01-01", True),
        ("2026-*", "2025-12-31", False),
        ("*|EWR", "2026-01-01|EWR", True),
        ("*|EWR", "2026-01-01|JFK", False),
        ("?", "a", True),
        ("?", "ab", False),
        ("[ab]*", "b1", True),
        ("[ab]*", "c1", False),
        # The case counts on every system.
        ("A", "a", False),
        ("*", None, True),
        ("x", None, False),
    ],
)
def test_a_glob_says_which_partitions_count(
    where: str | None, partition: str | None, taken: bool
) -> None:
    """``*`` is anything, ``?`` one character, ``[…]`` one of a set."""
    assert on.partitions("raw/flights", where=where).takes(arrival(partition)) is taken


def test_arrivals_add_up() -> None:
    """Events, different partitions and bytes; the first and the last moment."""
    later = NOW.replace(hour=1)
    one = Arrivals().with_event(arrival("1", size=100), new_partition=True, at=NOW)
    two = one.with_event(arrival("1"), new_partition=False, at=later)
    assert two == Arrivals(events=2, partitions=1, bytes=100, first_at=NOW, last_at=later)
    assert Arrivals.from_json(two.to_json()) == two
    assert Arrivals.from_json(Arrivals().to_json()) == Arrivals()


def test_it_knows_when_it_fired() -> None:
    """Of one partition at the first arrival; of several when the engine noted it."""
    later, last = NOW.replace(hour=1), NOW.replace(hour=2)
    three = Arrivals(events=3, partitions=3, first_at=NOW, last_at=last)
    firing = on.partitions("a").evaluate([three], last)
    assert (firing.first_at, firing.last_at) == (NOW, last)
    firing = on.partitions("a", count=3).evaluate([three], last)
    assert (firing.first_at, firing.last_at) == (last, last)
    noted = Arrivals(events=3, partitions=3, first_at=NOW, last_at=last, fired_at=later)
    firing = on.partitions("a", count=2).evaluate([noted], last)
    assert (firing.first_at, firing.last_at) == (later, last)


def test_a_moment_of_time_is_no_partition() -> None:
    """It is an event that says nothing about data."""
    tick = Event(kind=EventKind.TICK, subject="s", at=NOW)
    here = Arrivals().with_event(tick, new_partition=True, at=NOW)
    assert here == Arrivals(events=1, ticks=1, first_at=NOW, last_at=NOW, ticked_at=NOW)


_MOMENTS = st.none() | st.timedeltas(timedelta(0), timedelta(days=9)).map(lambda span: NOW + span)


@given(
    st.builds(
        Arrivals,
        events=st.integers(0, 10**6),
        partitions=st.integers(0, 10**6),
        bytes=st.integers(0, 10**18),
        first_at=_MOMENTS,
        last_at=_MOMENTS,
        ticks=st.integers(0, 9),
        fired_at=_MOMENTS,
    )
)
def test_arrivals_are_read_back(here: Arrivals) -> None:
    """As the database holds them, to the microsecond."""
    assert Arrivals.from_json(json.loads(json.dumps(here.to_json()))) == here


def test_arrivals_can_be_filtered_by_their_metadata() -> None:
    """A text is a glob, anything else must be equal; true is not 1, and 5 is 5.0."""
    trigger = on.partitions("a", metadata={"source": "api-*", "rows": 5, "final": True})

    def takes(**metadata: object) -> bool:
        return trigger.takes(
            Event(kind=EventKind.PARTITION, subject="a", at=NOW, metadata=metadata)
        )

    assert takes(source="api-2", rows=5.0, final=True, more="x")
    assert not takes(source="file", rows=5, final=True)
    assert not takes(source="api-2", rows="5", final=True)
    assert not takes(source="api-2", rows=5, final=1)
    assert not takes()
    reason = "0 of 1 partitions of a with source=api-*, rows=5, final=True have arrived"
    assert trigger.evaluate([Arrivals()], NOW).reason == reason
