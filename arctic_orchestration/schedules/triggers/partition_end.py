"""Fires for a partition of the target a duration after the end of its window."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from arctic_orchestration.quantities import Duration, format_duration
from arctic_orchestration.schedules.triggers.base import (
    Arrivals,
    Firing,
    Leaf,
    PartitionClock,
    Ticks,
)


class PartitionEnd(Leaf):
    """Fires for each partition of the target ``after`` the end of its window.

    The target's partitions are windows of time, and the schedule has ``partitions: each`` or
    ``range``. A partition that has run by then is skipped. So ``any_of`` of this and of arrivals
    fires when all have arrived, or at that moment with the arrivals so far.
    """

    kind: Literal["partition_end"] = "partition_end"
    after: Duration = timedelta(0)

    @property
    def clock(self) -> PartitionClock:
        return PartitionClock(partition="ended", after=self.after)

    def next_tick(self, after: datetime, name: str) -> datetime:
        # Only the target's definition gives the ends of windows: the first tick is due at once.
        return after

    def ticks_due(self, due_at: datetime, now: datetime, name: str) -> Ticks:
        return Ticks(deliver=(), next_at=now + timedelta(minutes=1))

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        given = arrivals[0]
        if not given.ticks:
            after = f"{format_duration(self.after)} after " if self.after else "at "
            return Firing(satisfied=False, reason=f"no tick {after}the end of its window yet")
        after = f"{format_duration(self.after)} after its window ended" if self.after else "the end"
        return Firing(
            satisfied=True,
            reason=f"{after} has come",
            first_at=given.first_at,
            last_at=given.last_at,
        )
