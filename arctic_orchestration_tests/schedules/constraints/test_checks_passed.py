"""``checks_passed``: while the latest evaluations of asset checks passed."""

from datetime import timedelta
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.constraints import Decision, only
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.triggers import on
from arctic_orchestration_tests.schedules.constraints.known import NOW, Known


def evaluation(check: str, *, passed: bool, **fields: Any) -> Event:
    form = {"severity": "error", **fields}
    return Event(kind=EventKind.CHECK, subject="a", at=NOW, check=check, passed=passed, **form)


GOOD = evaluation("good", passed=True)
BAD = evaluation("bad", passed=False)


def test_it_admits_when_all_checks_passed() -> None:
    """Of each asset."""
    facts = Known(evaluated={"a": {"good": GOOD}, "b": {"good": GOOD}})
    verdict = only.checks_passed(["a", "b"]).decide(facts, NOW)
    assert (verdict.decision, verdict.reason) == (Decision.ADMIT, "checks passed: a, b")


def test_a_failed_check_is_named_with_its_asset_and_when() -> None:
    """With the partition that was checked; it is checked again after two minutes."""
    bad = evaluation("bad", passed=False, partition="mon")
    facts = Known(evaluated={"a": {"good": GOOD, "bad": bad}})
    verdict = only.checks_passed("a").decide(facts, NOW)
    assert verdict.decision is Decision.HOLD
    assert verdict.reason == ("check bad of a failed for partition mon at 2026-01-01T12:00:00Z")
    assert verdict.recheck_at == NOW + timedelta(minutes=2)
    soon = only.checks_passed("a", recheck="10s").decide(facts, NOW)
    assert soon.recheck_at == NOW + timedelta(seconds=10)


def test_a_failure_that_only_warns_passes() -> None:
    """Severity WARN."""
    warned = evaluation("bad", passed=False, severity="warn")
    facts = Known(evaluated={"a": {"bad": warned}})
    assert only.checks_passed("a").decide(facts, NOW).decision is Decision.ADMIT


def test_only_the_named_checks_count() -> None:
    """A name that one asset has need not be one of the other."""
    facts = Known(evaluated={"a": {"good": GOOD, "bad": BAD}, "b": {"bad": BAD}})
    assert only.checks_passed(["a", "b"], "good").decide(facts, NOW).decision is Decision.ADMIT
    both = only.checks_passed(["a", "b"], ["good", "bad"]).decide(facts, NOW)
    assert both.reason == (
        "check bad of a failed at 2026-01-01T12:00:00Z; "
        "check bad of b failed at 2026-01-01T12:00:00Z"
    )


def test_what_was_never_evaluated_has_not_passed() -> None:
    """An asset without checks, a check that no asset has, and one of another partition."""
    facts = Known(evaluated={"a": {"good": None}}, partition="mon")
    for constraint, reason in (
        (only.checks_passed("b"), "no check of b was ever evaluated"),
        (only.checks_passed(["a", "b"], "x"), "check x of a or b was never evaluated"),
        (only.checks_passed("a"), "check good of a was never evaluated for partition mon"),
    ):
        verdict = constraint.decide(facts, NOW)
        assert (verdict.decision, verdict.reason) == (Decision.HOLD, reason)


def test_the_assets_are_those_of_the_trigger_unless_it_names_some() -> None:
    """Each asset of the trigger is checked once."""
    trigger = on.partitions("a") | on.data("b", "1GB") | on.quiet("a", "5m") | on.run(job="x")
    schedule = Schedule(
        name="s", target="j", trigger=trigger, constraints=[only.checks_passed(checks="good")]
    )
    assert schedule.trigger_assets == ("a", "b")
    facts = Known(evaluated={"a": {"good": GOOD}}, trigger_assets=schedule.trigger_assets)
    verdict = only.checks_passed().decide(facts, NOW)
    assert verdict.reason == "no check of b was ever evaluated"


def test_without_assets_it_needs_a_trigger_that_names_some() -> None:
    """A cron expression names none."""
    with pytest.raises(InvalidDefinition, match="the trigger names none") as refused:
        Schedule(
            name="s", target="j", trigger=on.cron("@daily"), constraints=[only.checks_passed()]
        )
    assert refused.value.field == "Schedule(s).constraints[0].checks_passed.assets"


def test_otherwise_cancel_discards() -> None:
    """With the same reason."""
    facts = Known(evaluated={"a": {"bad": BAD}})
    verdict = only.checks_passed("a", otherwise="cancel").decide(facts, NOW)
    assert verdict.decision is Decision.CANCEL
    assert verdict.reason == "check bad of a failed at 2026-01-01T12:00:00Z"
