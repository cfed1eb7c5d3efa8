"""Fires when enough bytes of an asset have arrived, or a time after the first of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import field_validator

from arctic_orchestration.quantities import (
    PositiveDuration,
    Size,
    format_bytes,
    format_duration,
    format_moment,
)
from arctic_orchestration.schedules.triggers.base import ArrivalLeaf, Arrivals, Firing


class Data(ArrivalLeaf):
    """Fires when ``size`` bytes of ``asset`` have arrived since the last job.

    With ``max_wait`` it also fires that long after the first arrival since the last job. An arrival
    without a size counts as zero bytes.
    """

    kind: Literal["data"] = "data"
    size: Size
    max_wait: PositiveDuration | None = None

    @field_validator("size")
    @classmethod
    def _some(cls, value: int) -> int:
        if not value:
            raise ValueError("a size above 0B")
        return value

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        arrived = arrivals[0]
        size = f"{format_bytes(arrived.bytes)} of {format_bytes(self.size)}"
        reason = f"{size} of {self.asset} have arrived"
        if arrived.events and not arrived.bytes:
            reason += " (no arrival has a size)"
        enough = arrived.bytes >= self.size
        ends_at = None
        if self.max_wait is not None and arrived.first_at is not None:
            ends_at = arrived.first_at + self.max_wait
        if ends_at is None or now < ends_at:
            if enough:
                return Firing(
                    satisfied=True,
                    reason=reason,
                    first_at=arrived.fired_at or arrived.last_at,
                    last_at=arrived.last_at,
                )
            if ends_at is not None:
                reason += f"; it goes with that at {format_moment(ends_at)}"
            return Firing(satisfied=False, reason=reason, recheck_at=ends_at)
        assert arrived.last_at is not None and self.max_wait is not None
        if not enough:
            reason += f", and {format_duration(self.max_wait)} have passed since the first"
        # No event tells: the size was reached at an arrival, or the wait ended first.
        reached_at = arrived.fired_at or (arrived.last_at if enough else ends_at)
        return Firing(
            satisfied=True,
            reason=reason,
            first_at=min(reached_at, ends_at),
            last_at=max(ends_at, arrived.last_at) if not enough else arrived.last_at,
        )
