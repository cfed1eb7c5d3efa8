"""Finds parts of a schedule that could never work or never have an effect.

Each part of a schedule may be valid while the whole makes no sense: a delay longer than the
timeout, two windows that are never open together, or a cron tick at noon whose jobs are admitted
only at night and discarded after an hour. Such a schedule never launches, without any error.

Rules that depend on the calendar are followed on one; see :mod:`.coincidence`.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from croniter import CroniterError

from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.quantities import format_duration
from arctic_orchestration.schedules import cycles
from arctic_orchestration.schedules.coincidence import (
    cron_leaves,
    ever_admitted,
    ever_together,
    is_cron,
)
from arctic_orchestration.schedules.constraints.checks_passed import ChecksPassed
from arctic_orchestration.schedules.constraints.delay import Delay
from arctic_orchestration.schedules.constraints.idle import Idle
from arctic_orchestration.schedules.constraints.window import BEGIN, Window, ever_open
from arctic_orchestration.schedules.triggers import (
    AllOf,
    AnyOf,
    Cron,
    Data,
    Elapsed,
    Freshness,
    Leaf,
    Partitions,
    Quiet,
    Requests,
    Then,
    Trigger,
)

if TYPE_CHECKING:
    from arctic_orchestration.schedules.schedule import Schedule


def contradictions(schedule: "Schedule", *, field: str = "") -> list[InvalidInput]:
    """Returns the contradictions within a well-formed schedule; empty if there are none.

    Costs microseconds, unless cron ticks are compared with windows or with each other: then some
    milliseconds, and up to a few hundred where they never meet and clocks change.

    Args:
        schedule: the schedule, with its defaults.
        field: the path that prefixes problems; default ``Schedule(name)``.
    """
    path = field or f"Schedule({schedule.name})"
    if problems := list(_without_ticks(schedule, path)):
        return problems
    problems = list(_of_trigger(schedule, schedule.trigger, f"{path}.trigger", path))
    if not schedule.timeout:
        problems.append(InvalidInput(f"{path}.timeout", "0s", "a duration longer than 0s"))
    if own := cycles.own_problem(schedule, path):
        problems.append(own)
    problems.extend(_of_partitions(schedule, path))
    if schedule.constraints:
        problems.extend(_of_constraints(schedule, path))
    return problems


def _without_ticks(schedule: "Schedule", path: str) -> Iterator[InvalidInput]:
    """Yields cron expressions whose ``H`` has no tick under the name of the schedule."""
    for place, leaf in schedule.trigger.places(f"{path}.trigger"):
        if isinstance(leaf, Cron) and leaf.is_hashed:
            try:
                leaf.next_tick(BEGIN, schedule.name)
            except CroniterError:
                expected = f"ticks: H gives no date that exists for the name {schedule.name}"
                yield InvalidInput(f"{place}.expression", leaf.expression, expected)


def _of_partitions(schedule: "Schedule", path: str) -> Iterator[InvalidInput]:
    """Yields partition settings of a schedule whose target has no partitions, or groups."""
    of_target = schedule.partitions != "none"
    if of_target and all(map(_names_no_partition, schedule.trigger.leaves)):
        expected = "none, or a trigger whose events have partitions: elapsed and freshness have not"
        yield InvalidInput(f"{path}.partitions", schedule.partitions, expected)
    for place, leaf in schedule.trigger.places(f"{path}.trigger"):
        form = leaf.to_form()[leaf.kind]
        if isinstance(leaf, Elapsed) and not isinstance(leaf.since, str):
            yield from _of_since(schedule, leaf.since, f"{place}.since")
        if of_target:
            if leaf.source.per is not None:
                expected = f"no per: with partitions: {schedule.partitions} mapping defines it"
                yield InvalidInput(f"{place}.per", leaf.source.per, expected)
            continue
        if leaf.clock is not None:
            where = f"{place}.partition" if "partition" in form else place
            yield InvalidInput(where, form.get("partition", form), f"{_OF_TARGET}: it names them")
        if leaf.source.mapping is not None:
            expected = f"{_OF_TARGET}: it maps to them"
            yield InvalidInput(f"{place}.mapping", leaf.source.mapping, expected)
        if leaf.source.per is None:
            for name in ("count", "complete", "late"):
                if form.get(name) in ("all", True) or (name == "late" and name in form):
                    expected = f"{_OF_TARGET}, or per: it is about what belongs together"
                    yield InvalidInput(f"{place}.{name}", form[name], expected)


def _names_no_partition(leaf: Leaf) -> bool:
    return isinstance(leaf, Freshness) or (isinstance(leaf, Elapsed) and leaf.restarts_at_launch)


def _of_since(schedule: "Schedule", since: Leaf, place: str) -> Iterator[InvalidInput]:
    """Yields what the event of an ``elapsed`` cannot have: its time is that of the schedule."""
    if schedule.partitions != "none":
        expected = (
            f"last_launch: with partitions: {schedule.partitions} the time would be that of all "
            "partitions. For one of each, use this trigger itself, with the constraint delay"
        )
        yield InvalidInput(place, since.kind, expected)
        return
    form = since.to_form()[since.kind]
    for name in ("count", "complete", "late", "mapping", "per"):
        if name in form and (name != "count" or form[name] == "all"):
            no = "a number" if name == "count" else f"no {name}"
            expected = f"{no}: elapsed does not know which partitions belong together"
            yield InvalidInput(f"{place}.{since.kind}.{name}", form[name], expected)


_OF_TARGET = "partitions: each or range, which are about partitions of the target"


def _of_trigger(
    schedule: "Schedule", trigger: Trigger, place: str, path: str
) -> Iterator[InvalidInput]:
    """Yields the problems of a trigger and its children; ``place`` is its path without its kind."""
    place = f"{place}.{trigger.kind}"
    timeout = _timeout(schedule)
    if isinstance(trigger, Data):
        yield from _too_long(timeout, path, f"{place}.max_wait", trigger.max_wait)
    elif isinstance(trigger, Quiet):
        yield from _too_long(timeout, path, f"{place}.duration", trigger.duration)
        yield from _too_long(timeout, path, f"{place}.max_wait", trigger.max_wait)
        if trigger.max_wait is not None and trigger.max_wait <= trigger.duration:
            yield InvalidInput(
                f"{place}.max_wait",
                format_duration(trigger.max_wait),
                f"a duration longer than that of the quiet, {format_duration(trigger.duration)}: "
                "else it never comes to quiet",
            )
    elif isinstance(trigger, Cron):
        if trigger.grace is not None and not trigger.grace:
            yield InvalidInput(f"{place}.grace", "0s", "a duration longer than 0s: none is on time")
    elif isinstance(trigger, Partitions):
        yield from _too_long(timeout, path, f"{place}.late", trigger.collects)
    elif isinstance(trigger, Elapsed):
        if not isinstance(trigger.since, str):
            yield from _too_long(timeout, path, f"{place}.duration", trigger.duration)
    elif isinstance(trigger, Requests):
        if schedule.partitions != "none":
            expected = "none: a request names its partition itself"
            yield InvalidInput(f"{path}.partitions", schedule.partitions, expected)
    elif isinstance(trigger, (AllOf, AnyOf, Then)):
        for number, child in enumerate(trigger.of):
            if isinstance(child, (Requests, Then)):
                expected = f"{child.kind} only as the whole trigger of a schedule"
                yield InvalidInput(f"{place}[{number}]", child.kind, f"a {expected}")
            yield from _of_trigger(schedule, child, f"{place}[{number}]", path)
        if isinstance(trigger, Then) and schedule.partitions != "none":
            expected = "none: a then is not evaluated for each partition of the target"
            yield InvalidInput(f"{path}.partitions", schedule.partitions, expected)
        if isinstance(trigger, AllOf):
            yield from _of_all(schedule, trigger, place, path)


def _of_all(schedule: "Schedule", trigger: AllOf, place: str, path: str) -> Iterator[InvalidInput]:
    timeout, within = _timeout(schedule), trigger.within
    yield from _too_long(timeout, path, f"{place}.wait", trigger.wait)
    if within is not None and within > timeout:
        yield InvalidInput(
            f"{place}.within",
            format_duration(within),
            f"at most the timeout, {format_duration(timeout)}: "
            "a job that waits for longer is discarded",
        )
    crons = [child for child in trigger.of if is_cron(child)]
    if len(crons) < 2:
        return
    if within is not None and within <= timeout:
        if not ever_together(crons, within, schedule.name):
            yield InvalidInput(
                f"{place}.within",
                format_duration(within),
                f"a span that ticks of {_named(crons)} ever fall into together",
            )
    elif trigger.wait is None and not ever_together(crons, timeout, schedule.name):
        yield InvalidInput(
            f"{path}.timeout",
            format_duration(timeout),
            f"a timeout in which ticks of {_named(crons)} ever come together: "
            "the job is always discarded before",
        )


def _timeout(schedule: "Schedule") -> timedelta:
    """Returns the longest time from the first event until a job times out.

    With target partitions the timeout begins when the window of the partition ends, which is known
    to the code alone.
    """
    return schedule.timeout if schedule.partitions == "none" else timedelta.max


def _too_long(
    timeout: timedelta, path: str, place: str, wait: timedelta | None
) -> Iterator[InvalidInput]:
    """Yields the problem of a wait that is longer than the timeout of the job."""
    if wait and wait >= timeout:
        where = place.removeprefix(f"{path}.")
        yield InvalidInput(
            f"{path}.timeout",
            format_duration(timeout),
            f"a duration longer than {where}, {format_duration(wait)}: "
            "the job is always discarded first",
        )


def _of_constraints(schedule: "Schedule", path: str) -> Iterator[InvalidInput]:
    windows: list[Window] = []
    delay, places = timedelta(0), list[str]()
    for number, constraint in enumerate(schedule.constraints):
        place = f"{path}.constraints[{number}].{constraint.kind}"
        if isinstance(constraint, Window):
            windows.append(constraint)
            places.append(place)
        elif isinstance(constraint, (ChecksPassed, Idle)):
            names_jobs = isinstance(constraint, Idle) and constraint.jobs
            if not constraint.assets and not schedule.trigger_assets and not names_jobs:
                expected = "at least one asset: the trigger names none"
                yield InvalidInput(f"{place}.assets", [], expected)
        elif isinstance(constraint, Delay):
            delay = max(delay, constraint.duration)
            if constraint.otherwise == "cancel" and constraint.duration:
                expected = "hold: it would cancel each job at its first check"
                yield InvalidInput(f"{place}.otherwise", "cancel", expected)
            # At the end of the timeout the job would be launched, whatever its delay is.
            if schedule.on_timeout == "discard":
                yield from _too_long(
                    _timeout(schedule), path, f"{place}.duration", constraint.duration
                )
    if delay and schedule.on_timeout == "discard":
        soonest = _soonest(schedule.trigger)
        if max(soonest, delay) < _timeout(schedule) <= soonest + delay:
            yield InvalidInput(
                f"{path}.timeout",
                format_duration(schedule.timeout),
                f"a duration longer than {format_duration(soonest)} until the trigger can be "
                f"satisfied, and a delay of {format_duration(delay)} after it",
            )
    if windows:
        yield from _of_windows(schedule, windows, places, delay)


def _of_windows(
    schedule: "Schedule", windows: Sequence[Window], places: Sequence[str], delay: timedelta
) -> Iterator[InvalidInput]:
    value: object = [window.to_form() for window in windows]
    where = places[0].rpartition("[")[0]
    if len(windows) == 1:
        value, where = windows[0].to_form()["window"], places[0]
    elif not ever_open(windows):
        yield InvalidInput(where, value, "windows that are ever open at the same time")
        return
    discards = schedule.on_timeout == "discard"
    if discards and delay >= schedule.timeout:
        return
    if not is_cron(schedule.trigger):
        return
    timeout = schedule.timeout if discards and schedule.partitions == "none" else None
    if not ever_admitted(
        schedule.trigger, windows, name=schedule.name, delay=delay, timeout=timeout
    ):
        what = "a window that is" if len(windows) == 1 else "windows that are together"
        when = "at"
        if discards and any(window.otherwise == "hold" for window in windows):
            when = f"within the timeout, {format_duration(schedule.timeout)}, after"
        yield InvalidInput(
            where,
            value,
            f"{what} open {when} any tick of {_named([schedule.trigger])}: "
            "else no job is ever admitted",
        )


def _soonest(trigger: Trigger) -> timedelta:
    """Returns the least time from the first event to the firing."""
    if isinstance(trigger, Quiet):
        return min(trigger.duration, trigger.max_wait or trigger.duration)
    if isinstance(trigger, AnyOf):
        return min(_soonest(child) for child in trigger.of)
    if isinstance(trigger, AllOf):
        soonest = [_soonest(child) for child in trigger.of]
        return (
            max(soonest) if trigger.wait is None else min(max(soonest), min(soonest) + trigger.wait)
        )
    return timedelta(0)


def _named(crons: Sequence[Trigger]) -> str:
    """Returns the expressions, each with its timezone."""
    return " and ".join(f"cron {leaf.expression} ({leaf.timezone})" for leaf in cron_leaves(crons))
