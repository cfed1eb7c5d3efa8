"""The limits while a pass cannot be made: no run starts that a rule might hold."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.limits import Limit, merged
from arctic_orchestration.run_queue.rules import Rules
from arctic_orchestration.run_queue.tags import Kind, Turn
from arctic_orchestration.run_queue.windows import OpenWindows


def closed_windows(rules: Rules, windows: OpenWindows, now: datetime) -> frozenset[str]:
    """Returns the windows that were closed at the last evaluation, or are now."""
    return frozenset(
        name
        for name, rule in rules.windows.items()
        if windows.was_closed(name) or not windows.is_open(name, rule, now)
    )


def hold_limits(
    last: Sequence[Limit] | None,
    rules: Rules,
    stock: Sequence[Limit],
    windows: OpenWindows,
    now: datetime,
) -> list[dict[str, Any]]:
    """Returns the limits of the last good pass, with everything that depends on time closed.

    Without a good pass since the daemon started, everything under a rule is closed.
    """
    found = [dict(limit) for limit in (stock if last is None else last)]
    found += [{"key": Kind.INTERVAL.key(name), "limit": 0} for name in rules.intervals]
    found += [
        {"key": Kind.RATE.key(name), "value": Turn.WAITING.value, "limit": 0}
        for name in rules.rates
    ]
    for name, rule in rules.windows.items():
        if last is None or windows.was_closed(name) or not windows.is_open(name, rule, now):
            found.append({"key": Kind.WINDOW.key(name), "limit": 0})
    if last is None:
        found += [{"key": Kind.GROUP.key(name), "limit": 0} for name in rules.groups]
        found += [{"key": Kind.RATE.key(name), "limit": 0} for name in rules.rates]
        if rules.queues:
            found.append({"key": tagging.QUEUE, "limit": 0})
    return merged(found)
