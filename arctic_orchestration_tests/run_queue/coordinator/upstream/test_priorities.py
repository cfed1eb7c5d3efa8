"""Which run is launched first."""

from collections.abc import Callable, Mapping
from typing import Any

from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import RunQueue, beyond_upstream

PRIORITY = "dagster/priority"


def test_runs_are_launched_by_priority(queue: Callable[..., RunQueue]) -> None:
    """``test_priority``: the highest number first; without one it is 0."""
    here = queue(page_size=1)
    usual = here.submit().run_id
    low = here.submit(tags={PRIORITY: "-1"}).run_id
    high = here.submit(tags={PRIORITY: "3"}).run_id

    assert here.iterate() == [high, usual, low]


def test_a_priority_that_is_no_number_is_none(queue: Callable[..., RunQueue]) -> None:
    """``test_priority_on_malformed_tag``: the run is launched, as one of priority 0."""
    here = queue()
    odd = here.submit(tags={PRIORITY: "foobar"}).run_id
    usual = here.submit().run_id
    high = here.submit(tags={PRIORITY: "1"}).run_id

    assert here.iterate() == [high, odd, usual]


@beyond_upstream
def test_among_equals_the_first_is_launched_first(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: first come, first served, in each priority."""
    here = queue(page_size=2)
    runs = [here.submit(tags={PRIORITY: str(number % 2)}).run_id for number in range(6)]

    assert here.iterate() == [runs[1], runs[3], runs[5], runs[0], runs[2], runs[4]]


@beyond_upstream
def test_the_last_page_may_have_the_first_run(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: with two slots, the whole queue is read for the two highest."""
    here = queue(max_concurrent_runs=2, page_size=2)
    runs = [here.submit(tags={PRIORITY: number}).run_id for number in ("1", "0", "4", "2", "9")]

    assert here.iterate() == [runs[4], runs[2]]


@beyond_upstream
def test_numbers_of_any_size_are_priorities(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: far beyond the numbers of databases."""
    here = queue()
    low = here.submit(tags={PRIORITY: "-99999999999999999999"}).run_id
    usual = here.submit(tags={PRIORITY: " 0 "}).run_id
    high = here.submit(tags={PRIORITY: "99999999999999999999"}).run_id

    assert here.iterate() == [high, usual, low]


def test_a_limit_is_for_the_run_of_the_highest_priority(
    queue: Callable[..., RunQueue], either_walk: Mapping[str, Any]
) -> None:
    """``test_key_limit_with_priority``: not for the one that came first."""
    limits = [{"key": "test", "limit": 1}]
    here = queue(max_concurrent_runs=2, tag_concurrency_limits=limits, **either_walk)
    here.submit(tags={"test": "value", PRIORITY: "-100"})
    high = here.submit(tags={"test": "value", PRIORITY: "100"})

    assert here.iterate() == [high.run_id]
