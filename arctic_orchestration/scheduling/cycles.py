"""Finds schedules that their own runs set off.

A schedule whose trigger is satisfied by the success, or the start, of one of its own runs never
stops, and without a constraint that spaces its runs out nothing else is run. Own failures are
another matter: a run that is repeated until it succeeds may be meant, and goes on for ever if it
never does. An event that adds to a trigger without satisfying it sustains nothing.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from arctic_orchestration.constraints import Delay, MinimumInterval, Rate, Window
from arctic_orchestration.triggers import AllOf, AnyOf, Check, Data, Partitions, Quiet, Run, Trigger

if TYPE_CHECKING:
    from arctic_orchestration.scheduling.schedule import Schedule, Target

_GOES_ON = frozenset({"success", "started"})


def is_sustained(schedule: "Schedule") -> bool:
    """Whether a run of the schedule that succeeds satisfies its trigger again."""
    return _sustains(schedule.trigger, schedule.target)


def is_spaced_out(schedule: "Schedule") -> bool:
    """Whether a constraint keeps time between two runs."""
    return any(
        isinstance(constraint, (Rate, Window))
        or (isinstance(constraint, (Delay, MinimumInterval)) and bool(constraint.duration))
        for constraint in schedule.constraints
    )


def repeats_failures(schedule: "Schedule") -> bool:
    """Whether a run of the schedule that fails satisfies its trigger again."""
    target = schedule.target
    return any(
        _is_own(leaf, target) and not _GOES_ON & set(leaf.status)
        if isinstance(leaf, Run)
        else isinstance(leaf, Check) and leaf.status == "failed" and leaf.asset in target.assets
        for leaf in schedule.trigger.leaves
    )


def _sustains(trigger: Trigger, target: "Target") -> bool:
    if isinstance(trigger, AnyOf):
        return any(_each(trigger.of, target))
    if isinstance(trigger, AllOf):
        # With a wait, one of them is enough.
        return (all if trigger.wait is None else any)(_each(trigger.of, target))
    if isinstance(trigger, Run):
        goes_on = bool(_GOES_ON & set(trigger.status))
        return goes_on and trigger.count == 1 and _is_own(trigger, target)
    if isinstance(trigger, Partitions):
        # What a run makes may be no partition that is waited for.
        return trigger.count == 1 and trigger.where is None and trigger.asset in target.assets
    if isinstance(trigger, Check):
        # A run of an asset evaluates its checks.
        own = trigger.asset in target.assets
        return own and trigger.count == 1 and trigger.status == "passed"
    return isinstance(trigger, (Data, Quiet)) and trigger.asset in target.assets


def _each(children: Sequence[Trigger], target: "Target") -> list[bool]:
    return [_sustains(child, target) for child in children]


def _is_own(leaf: Run, target: "Target") -> bool:
    if leaf.location is not None:
        return False
    if leaf.job is not None:
        return leaf.job == target.job
    return bool(set(leaf.assets) & set(target.assets))
