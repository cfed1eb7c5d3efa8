"""Fires when an asset has arrived and then nothing more arrives for a duration."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from arctic_orchestration.quantities import PositiveDuration, format_duration, format_moment
from arctic_orchestration.schedules.triggers.base import ArrivalLeaf, Arrivals, Firing


class Quiet(ArrivalLeaf):
    """Fires when ``asset`` has arrived and nothing more of it for ``duration``.

    With ``max_wait`` it also fires that long after the first arrival since the last job, even while
    more arrive. Until then each arrival restarts the quiet time.
    """

    kind: Literal["quiet"] = "quiet"
    duration: PositiveDuration
    max_wait: PositiveDuration | None = None

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        arrived = arrivals[0]
        if arrived.first_at is None or arrived.last_at is None:
            return Firing(satisfied=False, reason=f"nothing of {self.asset} has arrived")
        what = f"{arrived.events} arrival{'s' if arrived.events > 1 else ''} of {self.asset}"
        quiet_at = arrived.last_at + self.duration
        ends_at = quiet_at if self.max_wait is None else arrived.first_at + self.max_wait
        if now < quiet_at and now < ends_at:
            look_at = min(quiet_at, ends_at)
            return Firing(
                satisfied=False,
                reason=f"{what}, the last at {format_moment(arrived.last_at)}; "
                f"without another it fires at {format_moment(look_at)}",
                recheck_at=look_at,
                first_at=arrived.fired_at,
            )
        if quiet_at <= ends_at:
            reason = f"{what}, and nothing more for {format_duration(self.duration)}"
            first_at = arrived.fired_at or quiet_at
            return Firing(satisfied=True, reason=reason, first_at=first_at, last_at=quiet_at)
        assert self.max_wait is not None
        return Firing(
            satisfied=True,
            reason=f"{what}, and {format_duration(self.max_wait)} have passed since the first",
            first_at=arrived.fired_at or ends_at,
            last_at=max(ends_at, arrived.last_at),
        )
