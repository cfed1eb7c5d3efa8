"""What the proofs conclude from the history of runs, computed manually."""

from arctic_orchestration_tests.proofs.coordinator.run_history import (
    Held,
    most_begun_within,
    most_together,
)


def held(begun_at: float, ended_at: float | None = None) -> Held:
    """A place of one run."""
    return Held(run_id="", job="", begun_at=begun_at, ended_at=ended_at)


def test_a_place_that_is_given_back_is_free_in_the_same_moment() -> None:
    """0-10, 5-15 and 10-20: two at once, never three; a run that has not ended goes on."""
    assert most_together([held(0, 10), held(5, 15), held(10, 20)]) == 2
    assert most_together([held(0, 10), held(5, 15), held(9.9, 20)]) == 3
    assert most_together([held(0), held(100), held(200)]) == 3


def test_a_span_has_its_end_and_not_its_beginning() -> None:
    """Starts at 0, 1, 2 and 3: three in any (t - 3, t], since 0 lies outside of (0, 3]."""
    starts = [held(3), held(0), held(2), held(1)]
    assert most_begun_within(starts, 3) == 3
    assert most_begun_within(starts, 3.1) == 4
    assert most_begun_within(starts, 0.5) == 1
