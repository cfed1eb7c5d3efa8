"""Fires for a partition of the target some time after its window has ended."""

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

    The target's partitions are windows of time, and the schedule says ``partitions: each`` or
    ``range``. A partition that has run by then is left out, so that ``any_of`` of this and of
    arrivals means: when all are there, or at that moment with what there is.
    """

    kind: Literal["partition_end"] = "partition_end"
    after: Duration = timedelta(0)

    @property
    def clock(self) -> PartitionClock:
        return PartitionClock(partition="ended", after=self.after)

    def next_tick(self, after: datetime, name: str) -> datetime:
        # When windows end is known where the target's definition is: it is asked at once.
        return after

    def ticks_due(self, due_at: datetime, now: datetime, name: str) -> Ticks:
        return Ticks(deliver=(), next_at=now + timedelta(minutes=1))

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        given = arrivals[0]
        after = f"{format_duration(self.after)} after its window ended" if self.after else "the end"
        if not given.ticks:
            return Firing(satisfied=False, reason=f"{after} is still to come")
        return Firing(
            satisfied=True,
            reason=f"{after} has come",
            first_at=given.first_at,
            last_at=given.last_at,
        )
