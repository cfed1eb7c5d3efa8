"""Priorities that age, as one number that never has to be written again.

Dagster's daemon sorts queued runs by the whole number in ``dagster/priority``, the highest first.
A run of level ``l`` that was queued at second ``q`` gets ``l * S - q``, with ``S`` seconds a level.
Of two runs the one goes first whose number is larger, at whatever time one looks: waiting ``S``
seconds counts as much as one level.

The bound. A run of level ``l`` queued at ``q`` can only be overtaken by runs of higher levels
``h`` that were queued before ``q + (h - l) * S``. With ``r(h)`` such runs a second, ``c`` slots and
runs of at most ``d`` seconds, it starts, once it is the first, within ``d``; and it is the first
at the latest when all that were ahead at ``q``, and all that came until ``q + (H - l) * S`` (``H``
the highest level in use), have started. Unlike a strict order of levels, that is a number: no
run waits for ever, however many more urgent ones keep coming.
"""

from datetime import datetime, timedelta


def priority(level: int, queued_at: datetime, seconds_per_level: int) -> int:
    """The number by which a run is sorted; more is earlier."""
    return level * seconds_per_level - int(queued_at.timestamp())


def overtaken_until(
    level: int, queued_at: datetime, highest_level: int, seconds_per_level: int
) -> datetime:
    """The moment after which no run that is queued goes before this one any more."""
    levels = max(highest_level - level, 0)
    return queued_at + timedelta(seconds=levels * seconds_per_level)
