"""``load``: while a measured load is below a share."""

from datetime import timedelta
from typing import Any

import pytest

from arctic_orchestration.errors import InvalidDefinition
from arctic_orchestration.schedules.constraints import Decision, only
from arctic_orchestration_tests.schedules.constraints.known import NOW, Known


@pytest.mark.parametrize(
    ("load", "decision", "reason"),
    [
        (0.0, Decision.ADMIT, "the load of runs (runs in progress) is 0, below 0.8"),
        (0.7999, Decision.ADMIT, "the load of runs (runs in progress) is 0.7999, below 0.8"),
        (0.8, Decision.HOLD, "the load of runs (runs in progress) is 0.8, not below 0.8"),
        (1.3, Decision.HOLD, "the load of runs (runs in progress) is 1.3, not below 0.8"),
        (None, Decision.HOLD, "the load of runs (runs in progress) could not be measured"),
    ],
)
def test_only_what_is_below_the_share_admits(
    load: float | None, decision: Decision, reason: str
) -> None:
    """The share itself is too much, and what nobody knows does not admit; asked again in 30 s."""
    verdict = only.load(below=0.8).decide(Known(loads={"runs": load}), NOW)
    assert (verdict.decision, verdict.reason) == (decision, reason)
    held = decision is Decision.HOLD
    assert verdict.recheck_at == (NOW + timedelta(seconds=30) if held else None)


@pytest.mark.parametrize("probe", ["runs", "cpu", "memory", "spark"])
def test_each_probe_is_requested_by_its_name(probe: str) -> None:
    """And no other is measured."""
    facts = Known(loads={probe: 0.5})
    assert only.load(below=0.6, probe=probe).decide(facts, NOW).decision is Decision.ADMIT
    assert only.load(below=0.5, probe=probe).decide(facts, NOW).decision is Decision.HOLD


def test_the_whole_capacity_may_be_used() -> None:
    """Below 1: as long as something is left."""
    everything = only.load(below=1)
    assert everything.decide(Known(loads={"runs": 0.99}), NOW).decision is Decision.ADMIT
    assert everything.decide(Known(loads={"runs": 1.0}), NOW).decision is Decision.HOLD


def test_otherwise_cancel_discards_what_is_not_below() -> None:
    """Unknown, too."""
    load = only.load(below=0.5, otherwise="cancel")
    for measured in (0.9, None):
        verdict = load.decide(Known(loads={"runs": measured}), NOW)
        assert (verdict.decision, verdict.recheck_at) == (Decision.CANCEL, None)


@pytest.mark.parametrize("below", [0, -0.1, 1.01, 80, "0.8", "80%", True, None, float("nan")])
def test_a_share_is_a_number_above_zero_and_up_to_one(below: Any) -> None:
    """Not a percentage, and nothing that never admits."""
    with pytest.raises(InvalidDefinition) as refusal:
        only.load(below=below)
    (problem,) = refusal.value.problems
    assert problem.field == "load.below"
    assert problem.value is below


def test_a_probe_that_does_not_exist_is_refused() -> None:
    """With those that do."""
    with pytest.raises(InvalidDefinition) as refusal:
        only.load(below=0.5, probe="disk")
    (problem,) = refusal.value.problems
    assert (problem.field, problem.value) == ("load.probe", "disk")
    assert problem.expected == "'runs', 'cpu', 'memory' or 'spark'"
