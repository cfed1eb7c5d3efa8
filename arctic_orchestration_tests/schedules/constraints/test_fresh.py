"""``fresh``: when each parent is fresh enough for this schedule."""

from datetime import timedelta
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.constraints import Decision, only
from arctic_orchestration_tests.schedules.constraints.known import NOW, Known

DAY = timedelta(days=1)


def test_all_parents_fresh_is_admitted() -> None:
    """An asset of an hour ago and a job of yesterday noon, exactly a day ago."""
    fresh = only.fresh({"raw/flights": 24, "ingest": 24})
    facts = Known(made={"raw/flights": NOW - timedelta(hours=1), "ingest": NOW - DAY})
    verdict = fresh.decide(facts, NOW)
    assert (verdict.decision, verdict.reason) == (Decision.ADMIT, "fresh: raw/flights, ingest")


def test_at_the_boundary_is_fresh_and_a_microsecond_later_is_not() -> None:
    """Half an hour, written as 0.5."""
    fresh, facts = only.fresh({"a": 0.5}), Known(made={"a": NOW})
    edge = NOW + timedelta(minutes=30)
    assert fresh.decide(facts, edge).decision is Decision.ADMIT
    assert fresh.decide(facts, edge + timedelta(microseconds=1)).decision is Decision.HOLD


def test_each_stale_parent_is_named_with_its_age() -> None:
    """Two of three: one is 30 h, 5 min and 2 s old, one was never made."""
    fresh = only.fresh({"a": 1, "raw/b": 24, "c": 36})
    age = timedelta(hours=30, minutes=5, seconds=2, microseconds=7)
    verdict = fresh.decide(Known(made={"a": NOW, "raw/b": NOW - age}), NOW)
    assert verdict.decision is Decision.HOLD
    assert verdict.reason == "raw/b is 1d6h5m2s old, more than 1d; c was never made"


@pytest.mark.parametrize(
    ("recheck", "look_again"), [(None, 120), ("10s", 10), (timedelta(hours=1), 3600)]
)
def test_it_rechecks_after_the_time_to_recheck(recheck: Any, look_again: int) -> None:
    """Two minutes, unless it says otherwise."""
    fresh = only.fresh({"a": 1}, **({} if recheck is None else {"recheck": recheck}))
    assert fresh.decide(Known(), NOW).recheck_at == NOW + timedelta(seconds=look_again)


def test_what_was_made_in_the_future_is_fresh() -> None:
    """A clock was set back."""
    facts = Known(made={"a": NOW + DAY})
    assert only.fresh({"a": 1}).decide(facts, NOW).decision is Decision.ADMIT


def test_it_says_whose_freshness_must_be_known() -> None:
    """In the order in which they are written; nothing is locked for it."""
    fresh = only.fresh({"b": 1, "a": 2})
    assert fresh.parents_needed == ("b", "a")
    assert fresh.resources(("asset:x",)) == ()


def test_otherwise_cancel_discards() -> None:
    """With the same reason."""
    verdict = only.fresh({"a": 1}, otherwise="cancel").decide(Known(), NOW)
    assert (verdict.decision, verdict.reason) == (Decision.CANCEL, "a was never made")
    assert verdict.recheck_at is None


@pytest.mark.parametrize(
    ("parents", "field", "value", "expected"),
    [
        ({}, "fresh.parents", {}, "at least one asset or job"),
        ({"": 1}, "fresh.parents", {"": 1}, "at least one asset or job"),
        (["a"], "fresh.parents", ["a"], "a mapping"),
        ({"a": 0}, "fresh.parents.a", 0, "more than 0"),
        ({"a": -1.5}, "fresh.parents.a", -1.5, "more than 0"),
        ({"a": "24"}, "fresh.parents.a", "24", "a number"),
        ({"a": "24h"}, "fresh.parents.a", "24h", "a number"),
        ({"a": True}, "fresh.parents.a", True, "a number"),
        ({"a": 1e9}, "fresh.parents.a", 1e9, "at most 876000"),
        ({"a": float("inf")}, "fresh.parents.a", float("inf"), "a number that is not infinite"),
    ],
)
def test_parents_are_names_with_hours(
    parents: Any, field: str, value: object, expected: str
) -> None:
    """Each refused by its own path."""
    with pytest.raises(InvalidDefinition) as refusal:
        only.fresh(parents)
    (problem,) = refusal.value.problems
    assert (problem.field, problem.value) == (field, value)
    assert expected in problem.expected


def test_rechecking_without_a_pause_is_refused() -> None:
    """It would be looked at in every tick."""
    with pytest.raises(InvalidDefinition, match="recheck"):
        only.fresh({"a": 1}, recheck="0s")
