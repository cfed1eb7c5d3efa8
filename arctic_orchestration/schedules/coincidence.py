"""Decides whether ticks and windows ever meet, by following both on a calendar.

The calendar begins at a fixed moment, so the answer is always the same. Of two series, the one
behind jumps to the next moment at which it could meet the other; most meet at the first try.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from arctic_orchestration.schedules.constraints.window import (
    BEGIN,
    WEEK,
    YEAR,
    Window,
    first_open,
    is_steady,
)
from arctic_orchestration.schedules.triggers import AnyOf, Cron, Trigger

#: After this period weekdays and dates repeat.
_CYCLE = timedelta(days=28 * 365 + 7)
#: The limit of jumps for a series: daily moments are followed for more than a year.
_JUMPS = 401
_MOMENT = timedelta(microseconds=1)


def is_cron(trigger: Trigger) -> bool:
    """Returns whether cron ticks alone satisfy the trigger."""
    if isinstance(trigger, AnyOf):
        return all(is_cron(child) for child in trigger.of)
    return isinstance(trigger, Cron)


def cron_leaves(crons: Sequence[Trigger]) -> list[Cron]:
    """Returns the crons that ``crons`` are made of."""
    return [leaf for cron in crons for leaf in cron.leaves if isinstance(leaf, Cron)]


def _zones(crons: Sequence[Trigger]) -> set[str]:
    return {leaf.timezone for leaf in cron_leaves(crons)}


def _tick_from(cron: Trigger, begin: datetime, name: str) -> datetime | None:
    """Returns the first tick at ``begin`` or later."""
    ticks = [leaf.next_tick(begin - _MOMENT, name) for leaf in cron.leaves]
    return min((tick for tick in ticks if tick is not None), default=None)


def ever_together(crons: Sequence[Trigger], within: timedelta, name: str) -> bool:
    """Returns whether all have a tick within one such span; true where it cannot be decided."""
    ticks = [_tick_from(cron, BEGIN, name) for cron in crons]
    period = _period(crons)
    end = BEGIN + (2 * period if period and is_steady(_zones(crons)) else _CYCLE)
    for _ in range(_JUMPS * len(crons)):
        known = [tick for tick in ticks if tick is not None]
        if len(known) < len(ticks):
            return True
        latest, earliest = max(known), min(known)
        if latest - earliest <= within:
            return True
        if earliest > end or latest > BEGIN + _CYCLE:
            break
        behind = known.index(earliest)
        ticks[behind] = _tick_from(crons[behind], latest - within, name)
    covered = min(tick for tick in ticks if tick is not None) - BEGIN
    return covered < (2 * period if period else YEAR)


def _period(crons: Sequence[Trigger]) -> timedelta | None:
    """Returns the period after which all ticks repeat, apart from clock changes; None: too long."""
    fields = [leaf.expression.split() for leaf in cron_leaves(crons)]
    if len(_zones(crons)) > 1 or min(map(len, fields)) < 5:
        return None
    if any("#" in weekdays or "L" in weekdays.upper() for *_, weekdays in fields):
        return None
    if any(days != "*" or months != "*" for _, _, days, months, _ in fields):
        return None
    if any(weekdays != "*" for *_, weekdays in fields):
        return WEEK
    return timedelta(days=1 if any(hours != "*" for _, hours, *_ in fields) else 1 / 24)


def ever_admitted(
    cron: Trigger,
    windows: Sequence[Window],
    *,
    name: str,
    delay: timedelta,
    timeout: timedelta | None,
) -> bool:
    """Returns whether the windows admit the job of any tick; true where it cannot be decided.

    Args:
        cron: a trigger of cron ticks only.
        windows: all of them must be open.
        name: the schedule's name, which spreads ``H`` in an expression.
        delay: the earliest admission of a job after its tick.
        timeout: the latest admission after the tick; None: the job is then launched whatever the
            windows say, unless a canceling window canceled it at the tick.
    """
    canceling = [window for window in windows if window.otherwise == "cancel"]
    if timeout is None and not canceling:
        return True
    begin, tick, end = BEGIN, None, BEGIN + _CYCLE
    if _period([cron]) and is_steady({window.timezone for window in windows} | _zones([cron])):
        end = BEGIN + 2 * WEEK
    for _ in range(2 * _JUMPS):
        tick = _tick_from(cron, begin, name)
        if tick is None:
            return True
        if tick > end:
            return False
        # A window that cancels is evaluated at once, even while a delay holds the job.
        closed = [window for window in canceling if not window.is_open(tick)]
        if closed:
            begin = max(window.opens_at(tick) for window in closed)
            continue
        opens_at = first_open(windows, tick + delay)
        if timeout is None or opens_at is None or opens_at <= tick + timeout:
            return True
        begin = opens_at - timeout
    return tick is not None and tick < BEGIN + YEAR
