"""Levels that age: one number a run, by which the order of two runs is decided for good."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.run_queue.aging import overtaken_until, priority
from arctic_orchestration.run_queue.rules import HIGHEST_LEVEL

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LEVELS = st.integers(-HIGHEST_LEVEL, HIGHEST_LEVEL)
NEAR = st.integers(-50, 50)
SECONDS = st.integers(1, 86_400)
#: whole seconds: a run's number and its tag know no more
TIMES = st.integers(-(10**8), 10**9).map(lambda n: NOON + n * SECOND)


def test_ten_minutes_of_waiting_count_as_one_level() -> None:
    """Computed manually: noon is second 1772452800 of the clock of computers."""
    assert priority(0, NOON, 600) == -1_772_452_800
    assert priority(2, NOON, 600) == -1_772_451_600
    assert priority(1, NOON + 600 * SECOND, 600) == priority(0, NOON, 600)


@given(level=NEAR, difference=st.integers(0, 100), at=TIMES, seconds=SECONDS)
def test_a_difference_of_levels_outweighs_exactly_its_seconds(
    level: int, difference: int, at: datetime, seconds: int
) -> None:
    """One second earlier the higher level is first, one later the lower one, and then equal."""
    low = priority(level, at, seconds)
    meeting = at + timedelta(seconds=difference * seconds)
    high = level + difference
    assert priority(high, meeting, seconds) == low
    assert priority(high, meeting - SECOND, seconds) == low + 1
    assert priority(high, meeting + SECOND, seconds) == low - 1


@given(levels=st.tuples(LEVELS, LEVELS), at=st.tuples(TIMES, TIMES), seconds=SECONDS,
       later=st.timedeltas(timedelta(0), timedelta(days=3650)))  # fmt: skip
def test_the_order_of_two_runs_never_changes_with_time(
    levels: tuple[int, int], at: tuple[datetime, datetime], seconds: int, later: timedelta
) -> None:
    """At any time, by level * S + (now - queued), it is that of the numbers."""
    numbers = [priority(*run, seconds) for run in zip(levels, at, strict=True)]
    for now in (max(at), max(at) + later):
        aged = [
            level * timedelta(seconds=seconds) + (now - queued)
            for level, queued in zip(levels, at, strict=True)
        ]
        assert (numbers[0] < numbers[1]) is (aged[0] < aged[1])
        assert (numbers[0] == numbers[1]) is (aged[0] == aged[1])


@given(level=NEAR, highest=NEAR, at=TIMES, seconds=SECONDS)
def test_the_moment_of_the_last_overtaking_is_tight(
    level: int, highest: int, at: datetime, seconds: int
) -> None:
    """A run of the highest level just before it goes first; at it and later, none does.

    Of two with the same number the one that was queued first is first.
    """
    until = overtaken_until(level, at, highest, seconds)
    here = priority(level, at, seconds)
    if highest <= level:
        assert until == at
    else:
        assert priority(highest, until - SECOND, seconds) > here
    for waited in (timedelta(0), SECOND, timedelta(days=400)):
        for rival in range(max(level, highest) - 3, max(level, highest) + 1):
            assert priority(rival, until + waited, seconds) <= here


@given(at=st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
       level=LEVELS, seconds=SECONDS)  # fmt: skip
def test_a_part_of_a_second_does_not_count(at: datetime, level: int, seconds: int) -> None:
    """So that the number is that of the moment in the run's tag, and fits eight bytes."""
    found = priority(level, at, seconds)
    assert found == priority(level, at.replace(microsecond=0), seconds)
    assert abs(found) < 2**53
