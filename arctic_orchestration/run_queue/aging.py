"""Priorities that age, as one number that is written once.

Dagster's daemon sorts queued runs by the whole number in ``dagster/priority``, the highest first. A
run of level ``l`` that was queued at second ``q`` gets ``l * S - q``, with ``S`` seconds a level.
Of two runs the one with the larger number goes first, at any time: waiting ``S`` seconds counts as
much as one level.

The bound. A run of level ``l`` queued at ``q`` can only be overtaken by runs of higher levels ``h``
that were queued before ``q + (h - l) * S``. With ``r(h)`` such runs a second, ``c`` slots and runs
of at most ``d`` seconds, it starts within ``d`` once it is the first. It is the first at the latest
when all runs ahead at ``q``, and all that came until ``q + (H - l) * S`` (``H`` the highest level
in use), have started. This bound is finite, unlike with a strict order of levels: no run waits
forever, however many more urgent ones keep coming.
"""

from datetime import datetime, timedelta


def priority(level: int, queued_at: datetime, seconds_per_level: int) -> int:
    """Returns the number by which a run is sorted, highest first."""
    return level * seconds_per_level - int(queued_at.timestamp())


def overtaken_until(
    level: int, queued_at: datetime, highest_level: int, seconds_per_level: int
) -> datetime:
    """Returns the moment from which no newly queued run goes before this one."""
    levels = max(highest_level - level, 0)
    return queued_at + timedelta(seconds=levels * seconds_per_level)
