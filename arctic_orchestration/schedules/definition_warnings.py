"""Warns about settings that are valid but rarely intended; never refuses them."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from arctic_orchestration.quantities import format_duration
from arctic_orchestration.schedules import cycles
from arctic_orchestration.schedules.coincidence import cron_leaves, is_cron
from arctic_orchestration.schedules.constraints import Delay, MinimumInterval, Rate, Window
from arctic_orchestration.schedules.constraints.base import Constraint
from arctic_orchestration.schedules.triggers import (
    AllOf,
    AnyOf,
    Data,
    Partitions,
    Quiet,
    Run,
    Then,
    Trigger,
)

if TYPE_CHECKING:
    from arctic_orchestration.schedules.schedule import Schedule

_HOUR = timedelta(hours=1)
#: A Monday; a window's openings repeat each week, apart from clock changes.
_BEGIN = datetime(2027, 6, 7, tzinfo=UTC)
_WEEK_OF_OPENINGS = 9
#: The ticks of a cron expression that are followed: finding one takes some 0.4 ms.
_TICKS = 8


def cautions(schedules: Iterable["Schedule"]) -> list[str]:
    """Returns warnings for people, each beginning with the path of a field.

    The schedules must be as they were defined, because a store does not keep whether a timeout was
    given. Cycles are reported by :func:`.cycles.cycles`.
    """
    return [
        f"Schedule({schedule.name}).{text}"
        for schedule in schedules
        for text in (*_of_failures(schedule), *_of_timeout(schedule))
    ]


def _of_failures(schedule: "Schedule") -> Iterator[str]:
    if not cycles.is_sustained(schedule) and cycles.repeats_failures(schedule):
        yield (
            "trigger: a run of its own that fails sets it off again, without a limit on attempts. "
            "Dagster's run_retries have one"
        )


def _of_timeout(schedule: "Schedule") -> Iterator[str]:
    if schedule.on_timeout != "discard":
        return
    timeout = schedule.timeout
    delay = timedelta(0)
    for number, constraint in enumerate(schedule.constraints):
        longest = _longest_hold(constraint)
        if isinstance(constraint, Delay):
            delay = max(delay, constraint.duration)
        elif constraint.otherwise == "hold" and longest >= timeout:
            if _is_open_at_ticks(constraint, schedule):
                continue
            yield (
                f"constraints[{number}].{constraint.kind}: it can hold a job for "
                f"{format_duration(longest)}, and the job is discarded after the timeout, "
                f"{format_duration(timeout)} from its first event. Set a longer timeout, or "
                "on_timeout: launch"
            )
    is_default = "timeout" not in schedule.model_fields_set
    if is_default and _HOUR <= delay < timeout and _accumulates(schedule.trigger):
        yield (
            f"timeout: not set, so {format_duration(timeout)} from the first event. The delay "
            f"of {format_duration(delay)} leaves {format_duration(timeout - delay)} for the "
            "trigger to be satisfied; what arrives more slowly is discarded. Set timeout"
        )


def _is_open_at_ticks(constraint: Constraint, schedule: "Schedule") -> bool:
    """Returns whether the next ticks of crons, of a week or more, lie in a window."""
    if not isinstance(constraint, Window) or not is_cron(schedule.trigger):
        return False
    for cron in cron_leaves([schedule.trigger]):
        at = _BEGIN
        for _ in range(_TICKS):
            tick = cron.next_tick(at, schedule.name)
            if tick is None:
                break
            if not constraint.is_open(tick):
                return False
            at = tick
    return True


def _longest_hold(constraint: Constraint) -> timedelta:
    """Returns how long a constraint alone may hold a job, as far as this is known."""
    if isinstance(constraint, MinimumInterval):
        return constraint.duration
    if isinstance(constraint, Rate):
        return constraint.per if constraint.limit == 1 else timedelta(0)
    if isinstance(constraint, Window):
        return _longest_closed(constraint)
    return timedelta(0)


def _longest_closed(window: Window) -> timedelta:
    openings = list(islice(window.openings(_BEGIN), _WEEK_OF_OPENINGS))
    return max(after.begin - before.end for before, after in pairwise(openings))


def _accumulates(trigger: Trigger) -> bool:
    """Returns whether more than one event may be needed."""
    if isinstance(trigger, AnyOf):
        return any(map(_accumulates, trigger.of))
    if isinstance(trigger, (Partitions, Run)):
        return trigger.count == "all" or trigger.count > 1
    return isinstance(trigger, (AllOf, Data, Quiet, Then))
