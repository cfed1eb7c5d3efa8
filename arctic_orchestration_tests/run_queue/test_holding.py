"""The limits while a pass cannot be made: nothing starts that might not."""

from datetime import UTC, datetime
from typing import Any

import pytest
from dagster._utils.tags import TagConcurrencyLimitsCounter
from hypothesis import given
from hypothesis import strategies as st

from arctic_orchestration.run_queue.hold_limits import closed_windows, hold_limits
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.windows import OpenWindows
from arctic_orchestration_tests.run_queue.queues import NOON, Run, submitted

MIDNIGHT = datetime(2026, 3, 3, tzinfo=UTC)
STOCK = [{"key": "database", "value": "tiny", "limit": 2}]
ALL = {"match": {"job": "*"}}
RULES = Rules.parse(
    {
        "groups": {"few": {"limit": 2, "match": {"job": "load"}}},
        "windows": {
            "night": {"start": "22:00", "end": "06:00", "match": {"job": "bill"}},
            "day": {"start": "06:00", "end": "22:00", "match": {"job": "refund"}},
        },
        "rates": {"api": {"limit": 2, "per": "1m", "match": {"job": "fetch"}}},
        "intervals": {"calm": {"duration": "1h", "match": {"job": "rollup"}}},
    }
)
QUEUES = Rules.parse({"queues": {"low": {"match": {"job": "low"}}}})


def start(limits: list[dict[str, Any]], run: Run) -> bool:
    """Whether Dagster's daemon would start the run with nothing in progress."""
    return not TagConcurrencyLimitsCounter(limits, []).is_blocked(run)  # type: ignore[arg-type]


def looked_at(at: datetime) -> OpenWindows:
    windows = OpenWindows()
    for name, rule in RULES.windows.items():
        windows.is_open(name, rule, at)
    return windows


@pytest.mark.parametrize("job", ["load", "bill", "refund", "fetch", "rollup"])
@pytest.mark.parametrize("turn", ["waiting", "granted"])
def test_before_the_first_good_pass_nothing_starts_that_stands_under_a_rule(
    job: str, turn: str
) -> None:
    """Also what an earlier daemon gave its turn; a run under no rule starts."""
    limits = hold_limits(None, RULES, STOCK, OpenWindows(), NOON)
    run = submitted(RULES, "r", job=job)
    run.tags.update({key: turn for key in run.tags if key.startswith("arctic/rate.")})
    assert not start(limits, run)
    assert start(limits, submitted(RULES, "r", job="adhoc"))


def test_before_the_first_good_pass_nothing_starts_that_stands_in_a_queue() -> None:
    """Each run does, where there are queues: any of them may be paused."""
    limits = hold_limits(None, QUEUES, (), OpenWindows(), NOON)
    assert not start(limits, submitted(QUEUES, "r", job="low"))
    assert not start(limits, submitted(QUEUES, "r", job="adhoc"))
    assert start(limits, Run(run_id="not tagged"))


def test_dagsters_own_limits_hold_in_any_case() -> None:
    """As they are configured, when there was no good pass."""
    assert STOCK[0] in hold_limits(None, RULES, STOCK, OpenWindows(), NOON)
    last = [{"key": "database", "value": "tiny", "limit": 2}, {"key": "x", "limit": 1}]
    assert hold_limits(last, Rules(), STOCK, OpenWindows(), NOON) == last


def test_the_limits_of_the_last_good_pass_hold_and_what_depends_on_time_is_shut() -> None:
    """A group goes on with its limit; rates and intervals start nothing."""
    last = [{"key": "arctic/group.few", "limit": 2}]
    limits = hold_limits(last, RULES, STOCK, looked_at(NOON), NOON)
    assert start(limits, submitted(RULES, "r", job="load"))
    assert not start(limits, submitted(RULES, "r", job="fetch"))
    assert not start(limits, submitted(RULES, "r", job="rollup"))


def test_a_run_whose_turn_was_given_has_started_or_may() -> None:
    """Its rate counted it in the last good pass."""
    limits = hold_limits([], RULES, STOCK, looked_at(NOON), NOON)
    run = submitted(RULES, "r", job="fetch")
    run.tags["arctic/rate.api"] = "granted"
    assert start(limits, run)


def test_a_window_that_was_closed_stays_closed_and_one_that_closes_is_closed() -> None:
    """Looked at at noon, then at midnight: the night's time has come, and the day's is over."""
    windows = looked_at(NOON)
    at_noon = hold_limits([], RULES, (), windows, NOON)
    assert not start(at_noon, submitted(RULES, "r", job="bill"))
    assert start(at_noon, submitted(RULES, "r", job="refund"))
    at_midnight = hold_limits([], RULES, (), windows, MIDNIGHT)
    assert not start(at_midnight, submitted(RULES, "r", job="bill"))
    assert not start(at_midnight, submitted(RULES, "r", job="refund"))


def test_what_was_given_is_not_changed() -> None:
    """The last good limits may be needed many times."""
    last: list[dict[str, Any]] = [{"key": "arctic/interval.calm", "limit": 5}]
    found = hold_limits(last, RULES, STOCK, looked_at(NOON), NOON)
    assert {"key": "arctic/interval.calm", "limit": 0} in found
    assert last == [{"key": "arctic/interval.calm", "limit": 5}]
    assert hold_limits(found, RULES, STOCK, looked_at(NOON), NOON) == found


def test_closed_windows_are_those_that_were_or_are() -> None:
    """One that was never looked at is, whatever its time."""
    assert closed_windows(RULES, looked_at(NOON), NOON) == {"night"}
    assert closed_windows(RULES, looked_at(NOON), MIDNIGHT) == {"night", "day"}
    assert closed_windows(RULES, looked_at(MIDNIGHT), MIDNIGHT) == {"day"}
    assert closed_windows(RULES, OpenWindows(), NOON) == {"night", "day"}


LIMITS = st.lists(
    st.builds(
        lambda key, value, limit: {"key": key, "value": value, "limit": limit},
        st.sampled_from(["arctic/group.few", "arctic/window.day", "arctic/interval.calm", "a"]),
        st.sampled_from([None, "x", {"applyLimitPerUniqueValue": True}]),
        st.integers(0, 3),
    ),
    max_size=8,
)  # fmt: skip
TAGS = st.dictionaries(
    st.sampled_from(["arctic/group.few", "arctic/window.day", "arctic/interval.calm", "a", "b"]),
    st.sampled_from(["x", "y"]),
)


@given(last=LIMITS, tags=TAGS, hours=st.integers(0, 48))
def test_holding_never_starts_what_the_last_good_pass_would_not(
    last: list[dict[str, Any]], tags: dict[str, str], hours: int
) -> None:
    """By Dagster's own counter, where of two limits for the same the smaller one counts."""
    now = NOON.replace(hour=hours % 24, day=2 + hours // 24)
    run = Run(run_id="r", tags=tags)
    found = hold_limits(last, RULES, (), looked_at(NOON), now)
    if start(found, run):
        assert all(start([limit], run) for limit in last)
