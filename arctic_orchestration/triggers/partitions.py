"""Fires when enough different partitions of an asset have arrived."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from arctic_orchestration.events.event import Event, EventKey
from arctic_orchestration.triggers.base import Arrivals, Firing, Leaf


class Partitions(Leaf):
    """Fires when ``count`` different partitions of ``asset`` have arrived since the last job.

    A partition that arrives again before the job counts once. Arrivals without a partition,
    as of an unpartitioned asset, count together as one.
    """

    kind: Literal["partitions"] = "partitions"
    asset: str = Field(min_length=1)
    count: int = Field(default=1, ge=1, strict=True)
    #: a glob on the partition key; ``*`` matches anything, ``[…]`` a set
    where: str | None = None

    def keys(self, location: str) -> tuple[EventKey, ...]:
        return (EventKey.of_partition(self.asset),)

    def named_assets(self) -> Mapping[str, str]:
        return {"asset": self.asset}

    def takes(self, event: Event) -> bool:
        return self.where is None or fnmatchcase(event.partition or "", self.where)

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        here = arrivals[0]
        arrived = here.partitions
        what = f"partitions of {self.asset}" + (f" like {self.where}" if self.where else "")
        reason = f"{arrived} of {self.count} {what} have arrived"
        if arrived < self.count:
            return Firing(satisfied=False, reason=reason)
        first_at = here.first_at if self.count == 1 else here.fired_at or here.last_at
        return Firing(satisfied=True, reason=reason, first_at=first_at, last_at=here.last_at)
