"""``data``: so many bytes of an asset, or the first of them has waited long enough."""

from datetime import UTC, datetime, timedelta

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.triggers import Arrivals, on

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def hours(count: float) -> timedelta:
    return timedelta(hours=count)


def arrived(size: int, first: datetime = NOON, last: datetime = NOON, **more: object) -> Arrivals:
    return Arrivals(events=3, partitions=3, bytes=size, first_at=first, last_at=last, **more)  # type: ignore[arg-type]


def test_it_fires_at_its_size_and_says_how_far_it_is() -> None:
    """One byte less than a hundred megabytes is not enough."""
    trigger = on.data("raw/x", "100MB")
    early = trigger.evaluate([arrived(1_500_000)], NOON)
    assert not early.satisfied
    assert early.reason == "1.5 MB of 100.0 MB of raw/x have arrived"
    assert early.recheck_at is None
    assert not trigger.evaluate([arrived(99_999_999)], NOON).satisfied
    for size in (100_000_000, 100_000_001):
        assert trigger.evaluate([arrived(size)], NOON).satisfied


def test_nothing_is_no_reason_to_look_again() -> None:
    """The longest wait begins with the first arrival."""
    firing = on.data("raw/x", "1GB", max_wait="4h").evaluate([Arrivals()], NOON)
    assert not firing.satisfied
    assert firing.recheck_at is None
    assert firing.reason == "0 B of 1.0 GB of raw/x have arrived"


def test_the_longest_wait_counts_from_the_first_arrival() -> None:
    """Four hours after noon it goes with what there is, not a moment earlier."""
    trigger, here = on.data("raw/x", "1GB", max_wait="4h"), arrived(5, last=NOON + hours(3))
    waiting = trigger.evaluate([here], NOON + hours(4) - timedelta(microseconds=1))
    assert not waiting.satisfied
    assert waiting.recheck_at == NOON + hours(4)
    assert waiting.reason == (
        "5 B of 1.0 GB of raw/x have arrived; it goes with that at 2026-01-01 16:00:00Z"
    )
    ended = trigger.evaluate([here], NOON + hours(4))
    assert ended.satisfied
    assert ended.recheck_at is None
    assert ended.reason == (
        "5 B of 1.0 GB of raw/x have arrived, and 4h have passed since the first"
    )


def test_arrivals_without_a_size_are_reported() -> None:
    """Else a person would wonder why it waits."""
    firing = on.data("raw/x", "1GB").evaluate([arrived(0)], NOON)
    assert firing.reason == ("0 B of 1.0 GB of raw/x have arrived (no arrival has a size)")


@pytest.mark.parametrize(
    ("here", "first", "last"),
    [
        # Enough at the last arrival; noted by the engine, or derived.
        (arrived(10, last=NOON + hours(1)), 1, 1),
        (arrived(10, last=NOON + hours(3), fired_at=NOON + hours(1)), 1, 3),
        # Not enough: at the end of the wait; an arrival after it is another firing.
        (arrived(9, last=NOON + hours(1)), 4, 4),
        (arrived(9, last=NOON + hours(5)), 4, 5),
        # Enough, but by an arrival after the end of the wait.
        (arrived(10, last=NOON + hours(5), fired_at=NOON + hours(5)), 4, 5),
        (arrived(10, last=NOON + hours(5)), 4, 5),
    ],
)  # fmt: skip
def test_it_knows_when_it_fired(here: Arrivals, first: int, last: int) -> None:
    """For the first time and the last, in hours after the first arrival; asked at six."""
    firing = on.data("a", "10B", max_wait="4h").evaluate([here], NOON + hours(6))
    assert firing.satisfied
    assert firing.first_at == NOON + hours(first)
    assert firing.last_at == NOON + hours(last)


def test_it_is_found_by_its_asset() -> None:
    """The key of the leaf is the key of the arrival."""
    (leaf,) = on.data("raw/x", "1KB").leaves
    assert leaf.keys("here") == Event(kind=EventKind.PARTITION, subject="raw/x", at=NOON).keys
    assert leaf.asset_fields() == {"asset": "raw/x"}
    assert leaf.job_name_fields() == {}


@pytest.mark.parametrize(
    ("size", "max_wait", "field", "expected"),
    [
        (100, None, "data.size", "a size such as 512B, 500KB, 1.5GB or 64MiB"),
        ("0B", None, "data.size", "a size above 0B"),
        ("1B", "0s", "data.max_wait", "a duration longer than 0s"),
        ("1B", 4, "data.max_wait", "a duration such as 90s, 5m, 4h, 1d or 1h30m"),
    ],
)
def test_what_is_no_size_or_wait_is_refused(
    size: object, max_wait: object, field: str, expected: str
) -> None:
    """An int most of all: nobody knows whether it meant bytes or megabytes."""
    with pytest.raises(InvalidDefinition) as refusal:
        on.data("a", size, max_wait=max_wait)  # type: ignore[arg-type]
    (problem,) = refusal.value.problems
    assert (problem.field, problem.expected) == (field, expected)
