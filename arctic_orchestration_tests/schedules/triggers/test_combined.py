"""``any_of`` and ``all_of``: one of several triggers, or each of them."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import AllOf, AnyOf, Arrivals, Firing, Trigger, on
from arctic_orchestration.schedules.triggers.base import Leaf

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOME, NONE = Arrivals(events=1, partitions=1), Arrivals()


class Looking(Leaf):
    """Never fires, and wants to be asked again after so many hours."""

    kind: Literal["looking"] = "looking"
    hours: int

    def evaluate(self, arrivals: object, now: datetime) -> Firing:
        at = now + timedelta(hours=self.hours)
        return Firing(satisfied=False, reason=f"{self.hours} h", recheck_at=at)


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


def test_it_is_checked_again_at_the_earliest_moment_a_child_names() -> None:
    """Two hours before five; none when no child names one."""
    children: Any = (Looking(hours=5), Looking(hours=2))
    firing = AnyOf.model_construct(of=children).evaluate([NONE, NONE], NOW)
    assert firing.recheck_at == NOW + timedelta(hours=2)
    firing = (on.partitions("a") | on.partitions("b")).evaluate([NONE, NONE], NOW)
    assert firing.recheck_at is None


def test_one_of_nothing_is_refused() -> None:
    """It would never fire."""
    with pytest.raises(InvalidDefinition) as refusal:
        on.any_of()
    assert refusal.value.problems[0].expected == "at least one trigger"


# What follows counts hours: each leaf is asked with the hour of its first and last firing.

A, B, C = on.partitions("a"), on.partitions("b"), on.partitions("c")


def hour(count: float) -> datetime:
    return NOW + timedelta(hours=count)


def fired(first: float, last: float | None = None) -> Arrivals:
    """One partition at ``first``, and again at ``last``."""
    at = hour(first if last is None else last)
    return Arrivals(events=1, partitions=1, first_at=hour(first), last_at=at)


def test_an_any_of_fires_first_and_last_with_its_children() -> None:
    """The earliest first and the latest last of those that have fired."""
    firing = on.any_of(A, B, C).evaluate([fired(2, 3), fired(1, 2), NONE], hour(4))
    assert (firing.first_at, firing.last_at) == (hour(1), hour(3))
    firing = on.any_of(A, B).evaluate([NONE, NONE], hour(4))
    assert (firing.first_at, firing.last_at) == (None, None)


def test_an_ampersand_joins_triggers_without_nesting() -> None:
    """Unless what is joined has times of its own; and ``&`` binds before ``|``."""
    assert A & B & C == A & (B & C) == on.all_of(A, B, C)
    assert on.all_of(A, B, B, C) == (A & B) & (B & C)
    timed = on.all_of(A, B, within="1h")
    assert timed & C == on.all_of(timed, C)
    assert C & on.all_of(A, B, wait="1h") == on.all_of(C, on.all_of(A, B, wait="1h"))
    assert on.any_of(on.all_of(A, B), C) == A & B | C


def test_an_all_of_waits_for_each_and_says_for_which() -> None:
    """Those that have fired are not named."""
    firing = (A & B & C).evaluate([NONE, fired(1), NONE], hour(2))
    assert not firing.satisfied
    assert firing.reason == (
        "waits for: 0 of 1 partitions of a have arrived; 0 of 1 partitions of c have arrived"
    )
    assert [child.satisfied for child in firing.children] == [False, True, False]
    assert firing.recheck_at is None


def test_an_all_of_fires_with_the_last_of_its_children() -> None:
    """However far apart; the first time when the last one fired first."""
    firing = (A & B).evaluate([fired(1, 9), fired(5)], hour(10))
    assert firing.satisfied
    assert firing.reason == (
        "1 of 1 partitions of a have arrived and 1 of 1 partitions of b have arrived"
    )
    assert (firing.first_at, firing.last_at) == (hour(5), hour(9))


@pytest.mark.parametrize(
    ("arrivals", "satisfied"),
    [
        ([fired(0), fired(1)], True),
        ([fired(1), fired(0)], True),
        ([fired(0), fired(1.01)], False),
        # It fired again, and so is no longer too old.
        ([fired(0, 0.5), fired(1.5)], True),
        ([fired(3), fired(0, 2)], True),
        ([fired(0, 0.4), fired(1.5)], False),
        ([fired(0), NONE], False),
    ],
)
def test_within_looks_at_the_latest_firings(arrivals: list[Arrivals], satisfied: bool) -> None:
    """All inside one hour, its ends included."""
    trigger = on.all_of(A, B, within="1h")
    assert trigger.evaluate(arrivals, hour(4)).satisfied is satisfied


def test_within_says_which_is_too_old() -> None:
    """The reason names it, with the moment of its latest firing."""
    trigger = on.all_of(A, B, within="1h")
    firing = trigger.evaluate([fired(0, 1), fired(2.5)], hour(2.5))
    assert firing.reason == (
        "waits for: another firing of what last fired at 2026-01-01 01:00:00Z, more than 1h ago "
        "(1 of 1 partitions of a have arrived)"
    )
    # Hours later nothing that has fired can be in one span with what fires next.
    firing = trigger.evaluate([fired(0, 1), fired(2.5)], hour(9))
    assert firing.reason.count("another firing") == 2


def test_within_knows_when_it_fired() -> None:
    """When the first firings lay in one span, at the later; else at the latest of all."""
    trigger = on.all_of(A, B, within="1h")
    firing = trigger.evaluate([fired(0, 1), fired(0.5)], hour(2))
    assert (firing.first_at, firing.last_at) == (hour(0.5), hour(1))
    firing = trigger.evaluate([fired(0, 5), fired(4.5)], hour(6))
    assert (firing.first_at, firing.last_at) == (hour(5), hour(5))


def test_wait_goes_with_what_there_is() -> None:
    """Two hours after the first of three, at three; and not without any."""
    trigger, arrivals = on.all_of(A, B, C, wait="2h"), [NONE, fired(1, 2.5), NONE]
    waiting = trigger.evaluate(arrivals, hour(2.9))
    assert not waiting.satisfied
    assert waiting.recheck_at == hour(3)
    assert waiting.reason == (
        "waits for: 0 of 1 partitions of a have arrived; 0 of 1 partitions of c have arrived; "
        "at 2026-01-01 03:00:00Z it goes with what there is"
    )
    ended = trigger.evaluate(arrivals, hour(3))
    assert ended.satisfied
    assert ended.reason == (
        "2h after the first has fired, without: "
        "0 of 1 partitions of a have arrived; 0 of 1 partitions of c have arrived"
    )
    assert (ended.first_at, ended.last_at) == (hour(3), hour(3))
    nothing = trigger.evaluate([NONE, NONE, NONE], hour(99))
    assert not nothing.satisfied
    assert nothing.recheck_at is None


def test_wait_does_not_hold_what_is_complete() -> None:
    """All have fired after an hour: nobody waits for the second."""
    trigger = on.all_of(A, B, wait="2h")
    firing = trigger.evaluate([fired(0), fired(1)], hour(1))
    assert firing.satisfied
    assert (firing.first_at, firing.last_at) == (hour(1), hour(1))
    # Complete only after the wait was over: it had fired at its end.
    firing = trigger.evaluate([fired(0), fired(3)], hour(3))
    assert (firing.first_at, firing.last_at) == (hour(2), hour(3))


def test_wait_ends_what_within_holds() -> None:
    """One is too old for the other; three hours after the first both go."""
    trigger = on.all_of(A, B, within="1h", wait="3h")
    waiting = trigger.evaluate([fired(0), fired(2)], hour(2))
    assert not waiting.satisfied
    assert waiting.recheck_at == hour(3)
    assert trigger.evaluate([fired(0), fired(2)], hour(3)).satisfied


def test_the_engine_says_when_a_leaf_of_several_was_satisfied() -> None:
    """The wait counts from the second partition of two, not from the first or the last."""
    trigger = on.all_of(on.partitions("a", count=2), B, wait="2h")
    three = Arrivals(
        events=3, partitions=3, first_at=hour(0), last_at=hour(5), fired_at=hour(4)
    )  # fmt: skip
    firing = trigger.evaluate([three, NONE], hour(5))
    assert not firing.satisfied
    assert firing.recheck_at == hour(6)


def test_only_an_all_of_needs_to_know_when_leaves_fired() -> None:
    """However deep it stands."""
    assert not A.notes_firings
    assert not (A | B).notes_firings
    assert (A & B).notes_firings
    assert (C | on.any_of(A & B)).notes_firings


def test_it_rechecks_when_a_child_or_its_own_wait_ends() -> None:
    """Whichever is earlier: quiet at one, or the wait at two or at half past twelve."""
    quiet = on.quiet("a", "1h")
    arrived = Arrivals(events=1, partitions=1, first_at=hour(0), last_at=hour(0))
    trigger = on.all_of(quiet, B, wait="2h")
    assert trigger.evaluate([arrived, fired(0)], hour(0)).recheck_at == hour(1)
    trigger = on.all_of(quiet, B, wait="30m")
    assert trigger.evaluate([arrived, fired(0)], hour(0)).recheck_at == hour(0.5)


def test_children_that_time_satisfies_count_by_their_own_moment() -> None:
    """Quiet since one o'clock, asked at four: not within an hour of what fires at three."""
    trigger = on.all_of(on.quiet("a", "1h"), B, within="1h")
    arrived = Arrivals(events=1, partitions=1, first_at=hour(0), last_at=hour(0))
    assert not trigger.evaluate([arrived, fired(3)], hour(4)).satisfied
    assert trigger.evaluate([arrived, fired(2)], hour(4)).satisfied


@pytest.mark.parametrize(
    ("triggers", "times", "field", "expected"),
    [
        ([], {}, "all_of", "at least two triggers"),
        ([A], {"wait": "1h"}, "all_of", "at least two triggers"),
        ([A, B], {"within": "0s"}, "all_of.within", "a duration longer than 0s"),
        ([A, B], {"wait": timedelta(0)}, "all_of.wait", "a duration longer than 0s"),
        ([A, B], {"wait": 5}, "all_of.wait", "a duration such as 90s, 5m, 4h, 1d or 1h30m"),
    ],
)
def test_what_is_no_all_of_is_refused(
    triggers: list[Trigger], times: dict[str, Any], field: str, expected: str
) -> None:
    """All of one is that one."""
    with pytest.raises(InvalidDefinition) as refusal:
        on.all_of(*triggers, **times)
    (problem,) = refusal.value.problems
    assert (problem.field, problem.expected) == (field, expected)


def test_an_all_of_has_a_short_form_and_a_long_one() -> None:
    """The list when there is nothing else to say."""
    a, b = {"partitions": {"asset": "a"}}, {"partitions": {"asset": "b"}}
    assert (A & B).to_form() == {"all_of": [a, b]}
    timed = on.all_of(A, B, within="1h30m", wait="4h")
    assert timed.to_form() == {"all_of": {"of": [a, b], "within": "1h30m", "wait": "4h"}}
    for form, trigger in (
        ({"all_of": [a, b]}, A & B),
        ({"all_of": {"of": [a, b]}}, A & B),
        (timed.to_form(), timed),
    ):
        assert Schedule(name="s", target="j", trigger=form).trigger == trigger


_TREES = st.recursive(
    st.just(A),
    lambda inner: st.builds(
        lambda kind, children: kind(*children),
        st.sampled_from([on.any_of, on.all_of]),
        st.lists(inner, min_size=2, max_size=3),
    ),
    max_leaves=8,
)


def truth(trigger: Trigger, leaves: list[bool]) -> bool:
    """What a tree says when its leaves, from left to right, say this; eats the list."""
    if isinstance(trigger, AnyOf | AllOf):
        answers = [truth(child, leaves) for child in trigger.of]
        return any(answers) if isinstance(trigger, AnyOf) else all(answers)
    return leaves.pop(0)


@given(trigger=_TREES, data=st.data())
def test_a_tree_is_true_as_its_words_are(trigger: Trigger, data: st.DataObject) -> None:
    """``any_of`` is or, ``all_of`` is and; and what has fired knows when."""
    count = len(trigger.leaves)
    leaves = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    firing = trigger.evaluate([fired(1, 2) if leaf else NONE for leaf in leaves], hour(3))
    assert firing.satisfied is truth(trigger, list(leaves))
    expected = (hour(1), hour(2)) if firing.satisfied else (None, None)
    assert (firing.first_at, firing.last_at) == expected


@given(
    at=st.lists(st.none() | st.integers(0, 50), min_size=2, max_size=4),
    within=st.none() | st.integers(1, 20),
    wait=st.none() | st.integers(1, 20),
    later=st.integers(0, 60),
)
def test_an_all_of_misses_no_moment(
    at: list[int | None], within: int | None, wait: int | None, later: int
) -> None:
    """Each child fires once or never: it fires as the words say, or says when."""
    trigger = on.all_of(
        *[A] * len(at),
        within=None if within is None else timedelta(hours=within),
        wait=None if wait is None else timedelta(hours=wait),
    )
    known = [count for count in at if count is not None]
    later_at = max(known, default=0) + later
    firing = trigger.evaluate([NONE if c is None else fired(c) for c in at], hour(later_at))
    together = len(known) == len(at) and (within is None or max(known) - min(known) <= within)
    ended = wait is not None and bool(known) and later_at >= min(known) + wait
    assert firing.satisfied is (together or ended)
    if not firing.satisfied:
        waits = wait is not None and bool(known)
        assert firing.recheck_at == (hour(min(known) + wait) if waits and wait else None)
