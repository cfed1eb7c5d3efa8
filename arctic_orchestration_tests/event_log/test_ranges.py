"""Sets of ids as ranges behave as sets of ids."""

from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.event_log.ranges import IdRanges

ids = st.sets(st.integers(1, 40))


def ranges_of(numbers: set[int]) -> IdRanges:
    return IdRanges((number, number) for number in numbers)


def ids_of(ranges: IdRanges) -> set[int]:
    return {number for low, high in ranges for number in range(low, high + 1)}


@given(ids, ids, st.integers(0, 41), st.integers(0, 41))
def test_ranges_are_sets(left: set[int], right: set[int], after: int, upto: int) -> None:
    """Union, difference, part, membership and size are those of Python's sets."""
    a, b = ranges_of(left), ranges_of(right)
    assert ids_of(a.union(b)) == left | right
    assert ids_of(a.minus(b)) == left - right
    assert ids_of(a.within(after, upto)) == {n for n in left if after < n <= upto}
    assert a.last_up_to(upto) == max((n for n in left if n <= upto), default=None)
    assert {n for n in range(42) if n in a} == left
    assert a.count == len(left)


@given(ids)
def test_the_stored_form_gives_the_set_back(numbers: set[int]) -> None:
    """Distances and lengths, from any base below the set."""
    ranges = ranges_of(numbers)
    assert IdRanges.from_json(ranges.to_json(0), 0) == ranges


def test_a_million_ids_in_a_row_are_one_range() -> None:
    """The size is the number of gaps."""
    ranges = IdRanges([(5, 1_000_004), (1_000_006, 1_000_006)])
    assert len(ranges) == 2
    assert ranges.to_json(0) == [5, 999_999, 2, 0]
