"""Limits in Dagster's form, for its daemon and its UI."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.census import Census
from arctic_orchestration.run_queue.counts import Counts
from arctic_orchestration.run_queue.pauses import Pausable, Paused
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.tags import Kind, Turn
from arctic_orchestration.run_queue.windows import OpenWindows

#: Dagster's form of a limit: ``{"key": ..., "value": ..., "limit": ...}``
Limit = Mapping[str, Any]
_EACH_VALUE = {"applyLimitPerUniqueValue": True}


def limits_of(
    rules: Rules,
    census: Census,
    counts: Counts,
    paused: Paused,
    windows: OpenWindows,
    now: datetime,
) -> list[dict[str, Any]]:
    """Returns the limits by which Dagster's daemon enforces the rules.

    They also apply to runs that are queued after the census was taken.
    """
    found: list[dict[str, Any]] = []
    for kind, name in paused:
        if kind is Pausable.QUEUE:
            found.append({"key": tagging.QUEUE, "value": name, "limit": 0})
        else:
            found.append({"key": Kind.GROUP.key(name), "limit": 0})
    for name, group in rules.groups.items():
        if group.limit is not None:
            key = Kind.GROUP.key(name)
            found.append({"key": key, "limit": max(group.limit - counts.strays[name], 0)})
        if group.limit_per_program is not None:
            key = tagging.program_key(name)
            found.append({"key": key, "value": _EACH_VALUE, "limit": group.limit_per_program})
    for (name, program), count in counts.program_strays.items():
        each = rules.groups[name].limit_per_program
        if each is not None and count:
            limit = max(each - count, 0)
            key = tagging.program_key(name)
            found.append({"key": key, "value": program, "limit": limit})
    for name, rule in rules.windows.items():
        if not windows.is_open(name, rule, now):
            found.append({"key": Kind.WINDOW.key(name), "limit": 0})
    found.extend(
        {"key": Kind.RATE.key(name), "value": Turn.WAITING.value, "limit": 0}
        for name in rules.rates
    )
    found.extend(
        {"key": Kind.INTERVAL.key(name), "value": _EACH_VALUE, "limit": 1}
        for name in rules.intervals
    )
    found.extend(
        {"key": Kind.INTERVAL.key(name), "value": program, "limit": 0}
        for name, program in _resting(rules, census, counts, now)
    )
    return found


def _resting(rules: Rules, census: Census, counts: Counts, now: datetime) -> set[tuple[str, str]]:
    """Returns the programs that may start no run: one is active, or ended too recently."""
    ended = {
        (name, program)
        for (name, program), at in census.ledger.ends.items()
        if name in rules.intervals and at + rules.intervals[name].duration > now
    }
    return ended | set(counts.in_interval)


def shown_limits(
    rules: Rules, stock: Sequence[Limit], windows: OpenWindows, now: datetime
) -> list[dict[str, Any]]:
    """Returns the limits for the queue criteria in Dagster's UI.

    Computed from the configuration and the time alone. The UI shows a limit whose value is that of
    the run's tag, and so shows the rule in words.
    """
    found = [dict(limit) for limit in stock]
    for name, queue in rules.queues.items():
        if queue.paused:
            found.append({"key": tagging.QUEUE, "value": name, "limit": 0})
    for name, group in rules.groups.items():
        if group.limit is not None:
            key = Kind.GROUP.key(name)
            found.append({"key": key, "value": group.text, "limit": group.limit})
        if group.limit_per_program is not None:
            key = tagging.program_key(name)
            found.append({"key": key, "value": _EACH_VALUE, "limit": group.limit_per_program})
    for name, window in rules.windows.items():
        if not windows.is_open(name, window, now):
            found.append({"key": Kind.WINDOW.key(name), "value": window.text, "limit": 0})
    found.extend(
        {"key": Kind.INTERVAL.key(name), "value": _EACH_VALUE, "limit": 1}
        for name in rules.intervals
    )
    found.extend(
        {"key": Kind.RATE.key(name), "value": Turn.WAITING.value, "limit": 0}
        for name in rules.rates
    )
    return found


def merged(limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """Returns the smallest limit of each key and value; Dagster would use the last one."""
    found: dict[tuple[str, Any], dict[str, Any]] = {}
    for limit in limits:
        place = place_of(limit)
        known = found.get(place)
        if known is None:
            found[place] = dict(limit)
        else:
            known["limit"] = min(known["limit"], limit["limit"])
    return list(found.values())


def last_of_each(limits: Sequence[Limit]) -> dict[tuple[str, Any], dict[str, Any]]:
    """Configured limits by place: as in Dagster, the last of several counts."""
    return {place_of(limit): dict(limit) for limit in limits}


def place_of(limit: Limit) -> tuple[str, Any]:
    """Returns a limit's key, and one value, all values together (None) or each (True)."""
    value = limit.get("value")
    if isinstance(value, str):
        return (limit["key"], value)
    return (limit["key"], True if value and value.get("applyLimitPerUniqueValue") else None)
