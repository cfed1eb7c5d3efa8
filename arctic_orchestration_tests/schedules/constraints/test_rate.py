"""``rate``: so many launches in a sliding span of time, and no more."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.constraints import Decision, only
from arctic_orchestration_tests.schedules.constraints.known import NOW, TARGET, Known

HOUR = timedelta(hours=1)


def ago(*minutes: float) -> list[datetime]:
    return sorted(NOW - timedelta(minutes=each) for each in minutes)


def test_fewer_launches_than_the_limit_are_admitted() -> None:
    """Two of three within the hour; one before it does not count."""
    rate = only.rate(3, per="1h")
    verdict = rate.decide(Known(launched={TARGET: ago(70, 50, 10)}), NOW)
    assert (verdict.decision, verdict.reason) == (
        Decision.ADMIT,
        "2 of 3 launches of this target within 1h",
    )
    nothing = rate.decide(Known(), NOW)
    assert nothing.reason == "0 of 3 launches of this target within 1h"


def test_a_full_span_is_looked_at_again_when_its_oldest_launch_leaves_it() -> None:
    """Launched at 11:10, 11:30 and 11:50: there is room at 12:10."""
    rate, facts = only.rate(3, per=HOUR), Known(launched={TARGET: ago(50, 30, 10)})
    verdict = rate.decide(facts, NOW)
    assert verdict.decision is Decision.HOLD
    assert verdict.recheck_at == NOW + timedelta(minutes=10)
    assert verdict.waits_for == ()
    assert verdict.reason == (
        "3 of 3 launches of this target within 1h, the oldest at 2026-01-01 11:10:00Z"
    )


def test_the_span_is_open_at_its_beginning() -> None:
    """A launch exactly an hour ago has left ``(now - 1h, now]``; a microsecond less has not."""
    rate = only.rate(1, per=HOUR)
    assert rate.decide(Known(launched={TARGET: [NOW - HOUR]}), NOW).decision is Decision.ADMIT
    almost = NOW - HOUR + timedelta(microseconds=1)
    verdict = rate.decide(Known(launched={TARGET: [almost]}), NOW)
    assert verdict.decision is Decision.HOLD
    assert verdict.recheck_at == NOW + timedelta(microseconds=1)
    assert rate.decide(Known(launched={TARGET: [NOW]}), NOW).decision is Decision.HOLD


def test_a_limit_that_was_lowered_waits_until_enough_have_left() -> None:
    """Five launches under an older limit; of two allowed, the fourth must leave: 11:40 + 1h."""
    facts = Known(launched={TARGET: ago(50, 40, 30, 20, 10)})
    verdict = only.rate(2, per="1h").decide(facts, NOW)
    assert verdict.recheck_at == NOW + timedelta(minutes=40)
    assert verdict.reason.startswith("5 of 2 launches")


def test_a_group_counts_the_launches_of_all_its_members() -> None:
    """Under the name of the group, whatever the target."""
    rate = only.rate(1, per="1h", group="spark")
    assert rate.resources((TARGET,)) == ("group:spark",)
    assert rate.decide(Known(launched={TARGET: ago(5)}), NOW).decision is Decision.ADMIT
    verdict = rate.decide(Known(launched={"group:spark": ago(5)}), NOW)
    assert verdict.decision is Decision.HOLD
    assert verdict.reason.startswith("1 of 1 launches of group spark within 1h")


def test_launches_after_a_clock_was_set_back_still_count() -> None:
    """Launched at 12:20, and it is noon again: the next at 13:20."""
    later = NOW + timedelta(minutes=20)
    verdict = only.rate(1, per="1h").decide(Known(launched={TARGET: [later]}), NOW)
    assert (verdict.decision, verdict.recheck_at) == (Decision.HOLD, later + HOUR)


def test_it_says_what_must_be_known_to_decide() -> None:
    """The launches of its target, as far back as its span."""
    rate = only.rate(2, per="36h")
    assert rate.lookback == timedelta(hours=36)
    assert rate.resources(("asset:a", "asset:b")) == ("asset:a", "asset:b")
    assert not rate.needs_ends


def test_otherwise_cancel_discards() -> None:
    """With the same reason."""
    rate = only.rate(1, per="1h", otherwise="cancel")
    verdict = rate.decide(Known(launched={TARGET: ago(5)}), NOW)
    assert (verdict.decision, verdict.recheck_at) == (Decision.CANCEL, None)


@pytest.mark.parametrize(
    ("limit", "per", "field", "expected"),
    [
        (0, "1h", "rate.limit", "at least 1"),
        (True, "1h", "rate.limit", "a whole number"),
        (1, "0s", "rate.per", "a duration longer than 0s"),
        (1, 60, "rate.per", "a duration such as"),
        (1, timedelta(-1), "rate.per", "a duration that is not negative"),
        (1, timedelta(days=30, milliseconds=1), "rate.per", "a duration of at most 30d"),
    ],
)
def test_what_cannot_be_a_rate_is_refused(
    limit: int, per: timedelta | str, field: str, expected: str
) -> None:
    """Launches are kept for thirty days, and so a span of thirty days is the longest."""
    with pytest.raises(InvalidDefinition) as refusal:
        only.rate(limit, per=per)
    (problem,) = refusal.value.problems
    assert problem.field == field
    assert problem.value == (limit if field == "rate.limit" else per)
    assert expected in problem.expected
    assert only.rate(1, per=timedelta(days=30)).per == timedelta(days=30)


@given(
    launches=st.lists(st.integers(-7200, 0).map(lambda s: NOW + timedelta(seconds=s)), max_size=12),
    limit=st.integers(1, 5),
    per=st.integers(1, 7200).map(lambda seconds: timedelta(seconds=seconds)),
)
def test_the_moment_to_look_again_is_the_first_that_admits(
    launches: list[datetime], limit: int, per: timedelta
) -> None:
    """At that moment fewer than the limit lie in the span, and a microsecond before they do not."""
    rate, facts = only.rate(limit, per=per), Known(launched={TARGET: launches})

    def within(now: datetime) -> int:
        return sum(now - per < at <= now for at in launches)

    verdict = rate.decide(facts, NOW)
    assert (verdict.decision is Decision.ADMIT) == (within(NOW) < limit)
    if verdict.recheck_at is not None:
        assert verdict.recheck_at > NOW
        assert within(verdict.recheck_at) < limit
        assert within(verdict.recheck_at - timedelta(microseconds=1)) >= limit
        assert rate.decide(facts, verdict.recheck_at).decision is Decision.ADMIT
