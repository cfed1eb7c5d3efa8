"""``any_of``: one of several triggers."""

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.triggers import AnyOf, Arrivals, Firing, on
from arctic_orchestration.triggers.base import Leaf

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOME, NONE = Arrivals(events=1, partitions=1), Arrivals()


class Looking(Leaf):
    """Never fires, and wants to be asked again after so many hours."""

    kind: Literal["looking"] = "looking"
    hours: int

    def evaluate(self, arrivals: object, now: datetime) -> Firing:
        at = now + timedelta(hours=self.hours)
        return Firing(satisfied=False, reason=f"{self.hours} h", look_again_at=at)


def test_a_bar_joins_triggers_without_nesting() -> None:
    """``a | b | c`` is one any_of of three, however it is bracketed."""
    a, b, c = on.partitions("a"), on.partitions("b"), on.cron("0 4 * * *")
    flat = on.any_of(a, b, c)
    assert a | b | c == flat
    assert a | (b | c) == flat
    assert (a | b) | (a | c) == on.any_of(a, b, a, c)


def test_leaves_are_numbered_from_left_to_right() -> None:
    """Each child is given the arrivals of its own leaves, however deep they are."""
    trees = [on.partitions(name) for name in "abcd"]
    nested = on.any_of(trees[0], on.any_of(trees[1], trees[2]), trees[3])
    assert nested.leaves == tuple(trees)
    for number, name in enumerate("abcd"):
        arrivals = [SOME if leaf == number else NONE for leaf in range(4)]
        firing = nested.evaluate(arrivals, NOW)
        assert firing.satisfied
        assert firing.reason == f"1 of 1 partitions of {name} have arrived"


def test_it_waits_while_none_has_fired_and_says_for_what() -> None:
    """Both reasons, and each child's answer."""
    firing = (on.partitions("a", count=2) | on.run("rollup")).evaluate([SOME, NONE], NOW)
    assert not firing.satisfied
    assert firing.reason == (
        "1 of 2 partitions of a have arrived or 0 of 1 runs of job rollup reached success"
    )
    assert [child.satisfied for child in firing.children] == [False, False]


def test_it_is_asked_again_at_the_earliest_moment_a_child_names() -> None:
    """Two hours before five; none when no child names one."""
    firing = AnyOf.model_construct(of=(Looking(hours=5), Looking(hours=2))).evaluate(
        [NONE, NONE], NOW
    )
    assert firing.look_again_at == NOW + timedelta(hours=2)
    firing = (on.partitions("a") | on.partitions("b")).evaluate([NONE, NONE], NOW)
    assert firing.look_again_at is None


def test_one_of_nothing_is_refused() -> None:
    """It would never fire."""
    with pytest.raises(InvalidDefinition) as refusal:
        on.any_of()
    assert refusal.value.problems[0].expected == "at least one trigger"
