"""``concurrency`` and ``delay``: what they answer, and why."""

from datetime import timedelta

from arctic_orchestration.schedules.constraints import Decision, only
from arctic_orchestration_tests.schedules.constraints.known import NOW, Known


def test_fewer_than_the_limit_are_admitted() -> None:
    """One of two leaves room for one; two of two do not."""
    limit, target = only.concurrency(2), "job:default/here/rollup"
    one = limit.decide(Known(held={target: {"a"}}), NOW)
    assert (one.decision, one.reason) == (
        Decision.ADMIT,
        "1 of 2 runs of this target are active",
    )
    two = limit.decide(Known(held={target: {"a", "b"}}), NOW)
    assert (two.decision, two.reason) == (Decision.HOLD, "2 of 2 runs of this target are active")
    assert two.waits_for == (target,)
    assert two.recheck_at is None


def test_runs_of_several_assets_count_once_each() -> None:
    """A run that makes two of the target's assets is one run."""
    facts = Known(targets=("asset:x", "asset:y"), held={"asset:x": {"a"}, "asset:y": {"a", "b"}})
    verdict = only.concurrency(3).decide(facts, NOW)
    assert verdict.reason == "2 of 3 runs of this target are active"
    assert only.concurrency(2).decide(facts, NOW).waits_for == ("asset:x", "asset:y")


def test_a_group_is_counted_under_its_own_name() -> None:
    """Whatever the target; the reason names the group."""
    limit = only.concurrency(1, group="spark")
    assert limit.resources(("job:default/here/rollup",)) == ("group:spark",)
    held = limit.decide(Known(held={"group:spark": {"a"}}), NOW)
    assert (held.decision, held.waits_for) == (Decision.HOLD, ("group:spark",))
    assert held.reason == "1 of 1 runs of group spark are active"
    free = limit.decide(Known(held={"job:default/here/rollup": {"a"}}), NOW)
    assert free.decision is Decision.ADMIT


def test_a_delay_ends_exactly_after_its_duration() -> None:
    """Held until ninety minutes past noon, with the time of the next check."""
    delay = only.delay("1h30m")
    early = delay.decide(Known(), NOW + timedelta(minutes=90, microseconds=-1))
    assert early.decision is Decision.HOLD
    assert early.recheck_at == NOW + timedelta(minutes=90)
    assert early.reason == "1h30m after the trigger, at 2026-01-01 13:30:00Z"
    assert delay.decide(Known(), NOW + timedelta(minutes=90)).decision is Decision.ADMIT
    assert only.delay(timedelta(0)).decide(Known(), NOW).decision is Decision.ADMIT
    assert delay.resources(("job:x",)) == ()


def test_otherwise_cancel_discards_instead_of_holding() -> None:
    """The reason stays, and nothing is waited for."""
    full = Known(held={"job:default/here/rollup": {"a"}})
    limit = only.concurrency(1, otherwise="cancel").decide(full, NOW)
    assert (limit.decision, limit.waits_for) == (Decision.CANCEL, ())
    assert limit.reason == "1 of 1 runs of this target are active"
    delay = only.delay("1h", otherwise="cancel").decide(Known(), NOW)
    assert (delay.decision, delay.recheck_at) == (Decision.CANCEL, None)
    assert only.concurrency(1, otherwise="cancel").decide(Known(), NOW).decision is Decision.ADMIT
