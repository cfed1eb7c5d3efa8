"""``quiet``: something has arrived, and then nothing more for a while."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.triggers import Arrivals, on

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EVENT = Event(kind=EventKind.PARTITION, subject="raw/x", at=NOON)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def arrived(*at: float) -> Arrivals:
    """Arrivals so many minutes after noon."""
    here = Arrivals()
    for count in at:
        here = here.with_event(EVENT, new_partition=False, at=NOON + minutes(count))
    return here


def test_quiet_begins_with_an_arrival() -> None:
    """Where nothing has arrived nothing is awaited."""
    firing = on.quiet("raw/x", "5m").evaluate([Arrivals()], NOON)
    assert not firing.satisfied
    assert firing.recheck_at is None
    assert firing.reason == "nothing of raw/x has arrived"


def test_it_fires_when_nothing_more_has_arrived_for_the_duration() -> None:
    """Five minutes after the last of two, which was at 12:03."""
    trigger, here = on.quiet("raw/x", "5m"), arrived(0, 3)
    waiting = trigger.evaluate([here], NOON + minutes(7.99))
    assert not waiting.satisfied
    assert waiting.recheck_at == NOON + minutes(8)
    assert waiting.reason == (
        "2 arrivals of raw/x, the last at 2026-01-01 12:03:00Z; "
        "without another it fires at 2026-01-01 12:08:00Z"
    )
    fired = trigger.evaluate([here], NOON + minutes(8))
    assert fired.satisfied
    assert fired.reason == "2 arrivals of raw/x, and nothing more for 5m"
    assert (fired.first_at, fired.last_at) == (NOON + minutes(8), NOON + minutes(8))


def test_a_busy_asset_waits_no_longer_than_its_longest_wait() -> None:
    """An arrival a minute for ten minutes; at the tenth it goes although there is no quiet."""
    trigger, here = on.quiet("raw/x", "5m", max_wait="10m"), arrived(*range(10))
    waiting = trigger.evaluate([here], NOON + minutes(9))
    assert not waiting.satisfied
    assert waiting.recheck_at == NOON + minutes(10)
    ended = trigger.evaluate([here], NOON + minutes(10))
    assert ended.satisfied
    assert ended.reason == "10 arrivals of raw/x, and 10m have passed since the first"
    assert (ended.first_at, ended.last_at) == (NOON + minutes(10), NOON + minutes(10))


@pytest.mark.parametrize(
    ("at", "later_at", "first", "last"),
    [
        # Quiet came first; asked late, it is still known when that was.
        ((0, 2), 60, 7, 7),
        # The longest wait came first; a later arrival is another firing.
        ((0, 4, 8, 9), 11, 10, 10),
        ((0, 4, 8, 12), 13, 10, 12),
        ((0, 4, 8, 12), 60, 10, 12),
    ],
)
def test_it_knows_when_it_fired(at: tuple[int, ...], later_at: int, first: int, last: int) -> None:
    """In minutes after noon, with five minutes of quiet and a longest wait of ten."""
    firing = on.quiet("raw/x", "5m", max_wait="10m").evaluate(
        [arrived(*at)], NOON + minutes(later_at)
    )
    assert firing.satisfied
    assert (firing.first_at, firing.last_at) == (NOON + minutes(first), NOON + minutes(last))


@given(
    at=st.lists(st.integers(0, 600), min_size=1).map(sorted),
    duration=st.integers(1, 60),
    max_wait=st.none() | st.integers(1, 300),
    later=st.integers(0, 400),
)
def test_it_fires_exactly_at_the_announced_moment(
    at: list[int], duration: int, max_wait: int | None, later: int
) -> None:
    """Whoever rechecks at the moment named, and no earlier, misses nothing."""
    trigger = on.quiet(
        "raw/x", minutes(duration), max_wait=None if max_wait is None else minutes(max_wait)
    )
    here, now = arrived(*at), NOON + minutes(at[-1] + later)
    firing = trigger.evaluate([here], now)
    if firing.satisfied:
        assert firing.first_at is not None
        assert firing.last_at is not None
        assert firing.first_at <= firing.last_at <= now
    else:
        look_at = firing.recheck_at
        assert look_at is not None
        assert look_at > now
        assert not trigger.evaluate([here], look_at - timedelta(microseconds=1)).satisfied
        again = trigger.evaluate([here], look_at)
        assert again.satisfied
        assert again.first_at == look_at


def test_it_is_found_by_its_asset() -> None:
    """The key of the leaf is the key of the arrival."""
    (leaf,) = on.quiet("raw/x", "1s").leaves
    assert leaf.keys("here") == EVENT.keys
    assert leaf.asset_fields() == {"asset": "raw/x"}
    assert leaf.job_name_fields() == {}


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"duration": "0s"}, "quiet.duration"), ({"max_wait": timedelta(0)}, "quiet.max_wait")],
)
def test_no_time_at_all_is_refused(fields: dict[str, object], field: str) -> None:
    """It would fire at each arrival, which is what ``partitions`` is for."""
    with pytest.raises(InvalidDefinition) as refusal:
        on.quiet("a", **{"duration": "5m", **fields})  # type: ignore[arg-type]
    (problem,) = refusal.value.problems
    assert (problem.field, problem.expected) == (field, "a duration longer than 0s")
