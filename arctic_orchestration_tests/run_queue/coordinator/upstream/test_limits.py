"""``tag_concurrency_limits``: how many runs with a tag are in progress at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from dagster import DagsterRunStatus as Status

from arctic_orchestration_tests.run_queue.coordinator.daemon_queue import (
    SUSPENDED,
    RunQueue,
    beyond_upstream,
)

EACH_VALUE = {"applyLimitPerUniqueValue": True}
ALL_VALUES = {"applyLimitPerUniqueValue": False}

Launched = Callable[..., list[int]]


@pytest.fixture
def launched_of(queue: Callable[..., RunQueue], either_walk: Mapping[str, Any]) -> Launched:
    """Submits a run for each of several mappings of tags, to a queue with these limits.

    Answers with the numbers of those that one pass has launched, from 1 on, sorted: with threads
    the order is anyone's.
    """

    def launched(
        limits: Sequence[Mapping[str, Any]], *runs: Mapping[str, str], slots: int = 10
    ) -> list[int]:
        here = queue(max_concurrent_runs=slots, tag_concurrency_limits=list(limits), **either_walk)
        numbers = {here.submit(tags=tags).run_id: at for at, tags in enumerate(runs, start=1)}
        return sorted(numbers[run_id] for run_id in here.iterate())

    return launched


def foo(value: str) -> dict[str, str]:
    """The tags of a run with ``foo``."""
    return {"foo": value}


def test_a_limit_of_a_value(launched_of: Launched) -> None:
    """``test_tag_limits``: one tiny database at a time; others do not count."""
    limits = [{"key": "database", "value": "tiny", "limit": 1}]
    tiny, large = {"database": "tiny"}, {"database": "large"}
    assert launched_of(limits, tiny, tiny, large) == [1, 3]


def test_a_limit_of_a_key(launched_of: Launched) -> None:
    """``test_tag_limits_just_key``: two databases at a time, whatever their values."""
    limits = [{"key": "database", "limit": 2, "value": ALL_VALUES}]
    tiny, large = {"database": "tiny"}, {"database": "large"}
    assert launched_of(limits, tiny, tiny, large) == [1, 2]


def test_limits_of_two_tags(launched_of: Launched) -> None:
    """``test_multiple_tag_limits``: a run with both tags counts for both."""
    limits = [
        {"key": "database", "value": "tiny", "limit": 1},
        {"key": "user", "value": "johann", "limit": 2},
    ]
    tiny, johann = {"database": "tiny"}, {"user": "johann"}
    assert launched_of(limits, {**tiny, **johann}, tiny, johann, johann) == [1, 3]


def test_a_limit_of_a_key_and_one_of_its_values(launched_of: Launched) -> None:
    """``test_overlapping_tag_limits``: two of the key, of which one with the value."""
    limits = [{"key": "foo", "limit": 2}, {"key": "foo", "value": "bar", "limit": 1}]
    assert launched_of(limits, foo("bar"), foo("bar"), foo("other"), foo("other")) == [1, 3]


def test_a_limit_of_each_value_and_one_of_the_key(launched_of: Launched) -> None:
    """``test_limits_per_unique_value_overlapping_limits_less_than``: one each, two in all."""
    limits = [{"key": "foo", "limit": 1, "value": EACH_VALUE}, {"key": "foo", "limit": 2}]
    assert launched_of(limits, foo("bar"), foo("bar"), foo("other"), foo("other-2")) == [1, 3]


def test_a_limit_of_each_value_and_one_of_a_value(launched_of: Launched) -> None:
    """``test_limits_per_unique_value_overlapping_limits_greater_than``: two each, one ``bar``."""
    limits = [
        {"key": "foo", "limit": 2, "value": EACH_VALUE},
        {"key": "foo", "limit": 1, "value": "bar"},
    ]
    runs = [foo("bar"), foo("baz"), foo("bar"), foo("baz"), foo("baz")]
    assert launched_of(limits, *runs) == [1, 2, 4]


def test_other_tags_do_not_matter(launched_of: Launched) -> None:
    """``test_key_limit_with_extra_tags``: a tag without a limit hides none that has one."""
    tags = {"other-tag": "value", "test": "value"}
    assert launched_of([{"key": "test", "limit": 1}], tags, tags, slots=2) == [1]


@beyond_upstream
def test_a_limit_of_zero_holds_everything(launched_of: Launched) -> None:
    """No test of upstream: closed, as ``test_multiple_blocks`` has it beside a pool."""
    assert launched_of([{"key": "foo", "limit": 0}], foo("bar"), foo("baz"), {}) == [3]


@beyond_upstream
def test_of_two_limits_of_the_same_the_last_counts(launched_of: Launched) -> None:
    """No test of upstream: neither the stricter one nor the first."""
    limits = [
        {"key": "foo", "value": "bar", "limit": 1},
        {"key": "foo", "value": "bar", "limit": 2},
    ]
    assert launched_of(limits, foo("bar"), foo("bar"), foo("bar")) == [1, 2]


@beyond_upstream
def test_runs_that_a_limit_holds_do_not_hold_up_others(launched_of: Launched) -> None:
    """No test of upstream: two slots go to those behind them in the queue."""
    limits = [{"key": "foo", "limit": 0}]
    assert launched_of(limits, foo("1"), foo("2"), {}, foo("3"), {}, {}, slots=2) == [3, 5]


def test_a_limit_of_each_value(queue: Callable[..., RunQueue], walk: Mapping[str, Any]) -> None:
    """``test_limits_per_unique_value``: one of each, over two passes."""
    limits = [{"key": "foo", "limit": 1, "value": EACH_VALUE}]
    here = queue(tag_concurrency_limits=limits, **walk)
    first, _ = (here.submit(tags=foo("bar")).run_id for _ in range(2))
    assert here.iterate() == [first]

    other, _ = (here.submit(tags=foo("other")).run_id for _ in range(2))
    assert here.iterate() == [other]


@beyond_upstream
@pytest.mark.parametrize("value", [{}, {"value": EACH_VALUE}])
def test_runs_in_progress_count(queue: Callable[..., RunQueue], value: Mapping[str, Any]) -> None:
    """No test of upstream: also those that something else launched, until they have ended."""
    here = queue(tag_concurrency_limits=[{"key": "foo", "limit": 3, **value}])
    for status in (Status.STARTING, Status.CANCELING, *SUSPENDED, Status.SUCCESS):
        here.submit(tags=foo("bar"), status=status)
    first, second, third = (here.submit(tags=foo("bar")).run_id for _ in range(3))

    assert here.iterate() == [first]
    here.report(first, Status.STARTED)
    assert here.iterate() == []
    here.report(first, Status.SUCCESS)
    assert here.iterate() == [second]
    assert here.status(third) is Status.QUEUED


@beyond_upstream
def test_tags_of_the_job_count(queue: Callable[..., RunQueue]) -> None:
    """No test of upstream: a run has the tags of its job."""
    here = queue(tag_concurrency_limits=[{"key": "team", "value": "finance", "limit": 1}])
    first, _ = (here.submit("refund").run_id for _ in range(2))
    assert here.iterate() == [first]
