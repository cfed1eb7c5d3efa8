"""``partitions``: so many different partitions of an asset."""

from datetime import UTC, datetime

import pytest

from arctic_orchestration.events.event import Event, EventKind
from arctic_orchestration.triggers import Arrivals, on

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def arrival(partition: str | None, asset: str = "raw/flights", size: int | None = None) -> Event:
    return Event(kind=EventKind.PARTITION, subject=asset, at=NOW, partition=partition, bytes=size)


def test_it_fires_at_its_count_and_says_how_far_it_is() -> None:
    """Two of three is not enough; more than three is."""
    trigger = on.partitions("raw/flights", count=3)
    two = trigger.evaluate([Arrivals(events=5, partitions=2)], NOW)
    assert not two.satisfied
    assert two.reason == "2 of 3 partitions of raw/flights have arrived"
    assert two.look_again_at is None
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
    assert leaf.named_assets() == ("raw/flights",)
    assert leaf.named_jobs() == ()
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
    one = Arrivals().with_event(arrival("1", size=100), new_partition=True, now=NOW)
    two = one.with_event(arrival("1"), new_partition=False, now=later)
    assert two == Arrivals(events=2, partitions=1, bytes=100, first_at=NOW, last_at=later)
    assert Arrivals.from_json(two.to_json()) == two
    assert Arrivals.from_json(Arrivals().to_json()) == Arrivals()
