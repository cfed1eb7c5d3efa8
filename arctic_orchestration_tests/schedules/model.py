"""A model of schedules for :mod:`test_model`: what arrived, what is whole, what was launched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from arctic_orchestration.schedules.triggers import Trigger, on

MODES = ("drop", "drain", "backlog", "collect")
SIZES = (10, 60)


@dataclass(frozen=True)
class Arrival:
    """A partition of an asset, and its bytes."""

    asset: str
    key: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A schedule, and in words of the model when it fires."""

    trigger: Trigger
    assets: str
    fires: Callable[[Sequence[Arrival]], bool]
    limit: int | None = None
    coalesce: bool = True


def _different(arrivals: Sequence[Arrival], asset: str) -> int:
    return len({arrival.key for arrival in arrivals if arrival.asset == asset})


def _partitions(asset: str, count: int, **others: Any) -> Shape:
    return Shape(
        trigger=on.partitions(asset, count=count),
        assets=asset,
        fires=lambda arrivals: _different(arrivals, asset) >= count,
        **others,
    )


SHAPES = {
    "single": _partitions("a", 1),
    "triple": _partitions("a", 3),
    "limited": _partitions("a", 2, limit=1),
    "piecewise": _partitions("b", 2, limit=1, coalesce=False),
    # Both leaves take some of the events; each event is one firing all the same.
    "either": Shape(
        trigger=on.partitions("a") | on.partitions("a", where="[1-3]"),
        assets="a",
        fires=lambda arrivals: True,
        coalesce=False,
    ),
    "both": Shape(
        trigger=on.partitions("a", count=2) & on.partitions("b"),
        assets="ab",
        fires=lambda got: _different(got, "a") >= 2 and _different(got, "b") >= 1,
        limit=1,
    ),
    "heavy": Shape(
        trigger=on.data("b", size="100B"),
        assets="b",
        fires=lambda arrivals: sum(arrival.size for arrival in arrivals) >= 100,
        coalesce=False,
    ),
}


@dataclass
class Whole:
    """A firing that waits to be launched, and whether arrivals still join it."""

    arrivals: list[Arrival]
    open: bool


@dataclass
class Model:
    """One schedule: arrivals that wait, whole firings that wait, and active runs."""

    shape: Shape
    mode: str
    enabled: bool = True
    pending: list[Arrival] = field(default_factory=list)
    ready: list[Whole] = field(default_factory=list)
    launched: list[list[str]] = field(default_factory=list)
    active: int = 0

    @property
    def gathers(self) -> bool:
        """Suspended, but not deaf: what arrives is kept for the day it is resumed."""
        return not self.enabled and self.mode in ("backlog", "collect")

    @property
    def takes(self) -> bool:
        return self.enabled or self.gathers

    @property
    def launches(self) -> bool:
        return self.enabled or self.mode == "drain"

    @property
    def joins(self) -> bool:
        """Whether arrivals join a firing that is whole."""
        return self.mode == "collect" if self.gathers else self.shape.coalesce

    def tick(self, arrived: Sequence[Arrival]) -> None:
        """What the engine owes after one tick that saw these arrivals."""
        for arrival in arrived:
            if self.takes and arrival.asset in self.shape.assets:
                self._take(arrival)
        while self.launches and self.ready and self._has_room():
            self.launched.append([arrival.key for arrival in self.ready.pop(0).arrivals])
            self.active += 1

    def _take(self, arrival: Arrival) -> None:
        for whole in self.ready:
            if whole.open:
                whole.arrivals.append(arrival)
                return
        self.pending.append(arrival)
        if self.shape.fires(self.pending):
            self.ready.append(Whole(self.pending, open=self.joins))
            self.pending = []

    def _has_room(self) -> bool:
        return self.shape.limit is None or self.active < self.shape.limit

    def suspend(self) -> None:
        self.enabled = False
        if self.mode == "drop":
            self.pending, self.ready = [], []
        elif self.mode == "backlog":
            self._close()

    def resume(self) -> None:
        self.enabled = True
        if not self.shape.coalesce:
            self._close()

    def _close(self) -> None:
        for whole in self.ready:
            whole.open = False
