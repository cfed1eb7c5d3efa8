"""``minimum_interval``: some time between the end of one run and the start of the next."""

from datetime import timedelta

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.constraints import Decision, only
from arctic_orchestration_tests.schedules.constraints.known import NOW, TARGET, Known

FIVE = timedelta(minutes=5)


def test_the_first_run_need_not_wait() -> None:
    """Nothing has ended yet, or nothing in the status that counts."""
    interval = only.minimum_interval("5m")
    verdict = interval.decide(Known(), NOW)
    assert (verdict.decision, verdict.reason) == (
        Decision.ADMIT,
        "no run of this target has ended with success",
    )
    failed = Known(ended={TARGET: {"failure": NOW - timedelta(seconds=1)}})
    assert interval.decide(failed, NOW).decision is Decision.ADMIT


def test_it_admits_exactly_that_long_after_the_last_end() -> None:
    """Ended at 11:58: held until 12:03, and not a microsecond longer."""
    interval = only.minimum_interval(FIVE)
    ended = NOW - timedelta(minutes=2)
    facts = Known(ended={TARGET: {"success": ended}})
    early = interval.decide(facts, NOW)
    assert (early.decision, early.waits_for) == (Decision.HOLD, ())
    assert early.recheck_at == NOW + timedelta(minutes=3)
    assert early.reason == (
        "5m after the last run of this target that ended with success, at 2026-01-01 12:03:00Z"
    )
    almost = ended + FIVE - timedelta(microseconds=1)
    assert interval.decide(facts, almost).decision is Decision.HOLD
    assert interval.decide(facts, ended + FIVE).decision is Decision.ADMIT


def test_while_a_run_is_active_nothing_else_starts() -> None:
    """However long ago the last one ended; the end of the active one is waited for."""
    facts = Known(
        held={TARGET: {"a"}}, ended={TARGET: {"success": NOW - timedelta(days=9)}}
    )  # fmt: skip
    verdict = only.minimum_interval("5m").decide(facts, NOW)
    assert (verdict.decision, verdict.reason) == (Decision.HOLD, "a run of this target is active")
    assert verdict.waits_for == (TARGET,)
    assert verdict.recheck_at is None


def test_the_last_end_in_any_of_the_statuses_counts() -> None:
    """A failure at 11:59 after a success at 11:50: only who requests failures waits for it."""
    ends = {"success": NOW - timedelta(minutes=10), "failure": NOW - timedelta(minutes=1)}
    facts = Known(ended={TARGET: ends})
    assert only.minimum_interval("5m").decide(facts, NOW).decision is Decision.ADMIT
    both = only.minimum_interval("5m", statuses=["success", "failure"]).decide(facts, NOW)
    assert both.recheck_at == NOW + timedelta(minutes=4)
    assert "ended with success or failure" in both.reason
    canceled = only.minimum_interval("5m", statuses="canceled").decide(facts, NOW)
    assert canceled.decision is Decision.ADMIT


def test_any_of_the_targets_assets_counts() -> None:
    """A run that made one of them ended a minute ago."""
    facts = Known(
        targets=("asset:x", "asset:y"), ended={"asset:y": {"success": NOW - timedelta(minutes=1)}}
    )
    verdict = only.minimum_interval("5m").decide(facts, NOW)
    assert verdict.recheck_at == NOW + timedelta(minutes=4)


def test_it_says_what_must_be_known_to_decide() -> None:
    """Who holds its target, and when runs of it ended."""
    interval = only.minimum_interval("5m")
    assert interval.resources(("asset:x", "asset:y")) == ("asset:x", "asset:y")
    assert interval.needs_ends
    assert interval.lookback is None


def test_otherwise_cancel_discards_in_both_cases() -> None:
    """While one is active, and too soon after its end."""
    interval = only.minimum_interval("5m", otherwise="cancel")
    for facts in (Known(held={TARGET: {"a"}}), Known(ended={TARGET: {"success": NOW}})):
        verdict = interval.decide(facts, NOW)
        assert (verdict.decision, verdict.waits_for) == (Decision.CANCEL, ())


def test_statuses_are_those_in_which_a_run_can_end() -> None:
    """One or a list, in one order, each once; not none, and none that is no end."""
    interval = only.minimum_interval("5m", statuses=["canceled", "success", "canceled"])
    assert interval.statuses == ("success", "canceled")
    for wrong, field in (([], "statuses"), (["started"], "statuses[0]"), (5, "statuses")):
        with pytest.raises(InvalidDefinition) as refusal:
            only.minimum_interval("5m", statuses=wrong)  # type: ignore[arg-type]
        assert refusal.value.problems[0].field == f"minimum_interval.{field}"
