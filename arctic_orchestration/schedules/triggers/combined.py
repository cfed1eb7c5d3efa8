"""Triggers made of triggers."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import field_validator

from arctic_orchestration.quantities import PositiveDuration, format_duration, format_moment
from arctic_orchestration.schedules.triggers.base import Arrivals, Firing, Leaf, Trigger

if TYPE_CHECKING:
    from arctic_orchestration.schedules.triggers import AnyTrigger


class Combined(Trigger):
    """The base of triggers with children."""

    of: tuple["AnyTrigger", ...]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for child in self.of for leaf in child.leaves)

    def places(self, place: str) -> Iterator[tuple[str, Leaf]]:
        for number, child in enumerate(self.of):
            yield from child.places(f"{place}.{self.kind}[{number}]")

    def _evaluate_children(self, arrivals: Sequence[Arrivals], now: datetime) -> tuple[Firing, ...]:
        """Returns the results of all children."""
        firings, begin = [], 0
        for child in self.of:
            end = begin + len(child.leaves)
            firings.append(child.evaluate(arrivals[begin:end], now))
            begin = end
        return tuple(firings)


class AnyOf(Combined):
    """Fires when one of its children fires; the job takes the arrivals of all of them."""

    kind: Literal["any_of"] = "any_of"

    @field_validator("of")
    @classmethod
    def _some(cls, value: tuple[Trigger, ...]) -> tuple[Trigger, ...]:
        if not value:
            raise ValueError("at least one trigger")
        return value

    @classmethod
    def joining(cls, left: Trigger, right: Trigger) -> "AnyOf":
        """``left | right``, without nesting one any_of in another."""
        children: list[Any] = []
        for side in (left, right):
            children.extend(side.of if isinstance(side, AnyOf) else (side,))
        return cls(of=tuple(children))

    @property
    def notes_firings(self) -> bool:
        return any(child.notes_firings for child in self.of)

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        firings = self._evaluate_children(arrivals, now)
        fired = [firing for firing in firings if firing.satisfied]
        return Firing(
            satisfied=bool(fired),
            reason=fired[0].reason if fired else " or ".join([f.reason for f in firings]),
            recheck_at=_earliest(firings),
            children=firings,
            first_at=min([f.first_at for f in firings if f.first_at], default=None),
            last_at=max([f.last_at for f in fired if f.last_at], default=None),
        )


class AllOf(Combined):
    """Fires when each of its children has fired; the job takes the arrivals of all of them.

    With ``within`` the latest firings of all children must lie in one span of that length: a child
    that fired too long before the others must fire again. With ``wait`` it fires that long after
    the first child has fired, with the arrivals so far.
    """

    kind: Literal["all_of"] = "all_of"
    within: PositiveDuration | None = None
    wait: PositiveDuration | None = None

    @field_validator("of")
    @classmethod
    def _several(cls, value: tuple[Trigger, ...]) -> tuple[Trigger, ...]:
        if len(value) < 2:
            raise ValueError("at least two triggers")
        return value

    @classmethod
    def joining(cls, left: Trigger, right: Trigger) -> "AllOf":
        """``left & right``, without nesting one all_of in another unless it has its own times."""
        children: list[Any] = []
        for side in (left, right):
            children.extend(side.of if isinstance(side, AllOf) and side._is_plain else (side,))
        return cls(of=tuple(children))

    @property
    def _is_plain(self) -> bool:
        return self.within is None and self.wait is None

    @property
    def notes_firings(self) -> bool:
        return True

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        firings = self._evaluate_children(arrivals, now)
        # Includes children that fired and are no longer satisfied, such as an interrupted quiet.
        firsts = [f.first_at for f in firings if f.first_at]
        lasts = [f.last_at for f in firings if f.satisfied and f.last_at]
        ends_at = min(firsts) + self.wait if self.wait is not None and firsts else None
        ended = ends_at is not None and ends_at <= now
        complete = all(f.satisfied for f in firings)
        if complete and self.within is not None and lasts:
            complete = max(lasts) - min(lasts) <= self.within
        if complete:
            at = self._completed_at(firsts, lasts)
            return Firing(
                satisfied=True,
                reason=" and ".join([f.reason for f in firings]),
                recheck_at=_earliest(firings),
                children=firings,
                first_at=min(at, ends_at) if at and ends_at and ended else at,
                last_at=max(lasts, default=None),
            )
        missing = [reason for f in firings if (reason := self._missing(f, now)) is not None]
        if ended:
            assert ends_at is not None and self.wait is not None
            length = format_duration(self.wait)
            return Firing(
                satisfied=True,
                reason=f"{length} after the first has fired, without: {'; '.join(missing)}",
                recheck_at=_earliest(firings),
                children=firings,
                first_at=ends_at,
                last_at=max([*lasts, ends_at]),
            )
        look_at, reason = _earliest(firings), f"waits for: {'; '.join(missing)}"
        if ends_at is not None:
            look_at = min(look_at or ends_at, ends_at)
            reason += f"; at {format_moment(ends_at)} it goes with what there is"
        return Firing(satisfied=False, reason=reason, recheck_at=look_at, children=firings)

    def _completed_at(self, firsts: list[datetime], lasts: list[datetime]) -> datetime | None:
        """Returns when the last missing child fired, as far as known."""
        if not firsts:
            return None
        if self.within is None or max(firsts) - min(firsts) <= self.within:
            return max(firsts)
        return max(lasts)

    def _missing(self, firing: Firing, now: datetime) -> str | None:
        """Returns what must happen at a child before all have fired, or None."""
        if not firing.satisfied:
            return firing.reason
        if self.within is None or firing.last_at is None or now - firing.last_at <= self.within:
            return None
        return (
            f"another firing of what last fired at {format_moment(firing.last_at)}, "
            f"more than {format_duration(self.within)} ago ({firing.reason})"
        )


def _earliest(firings: Sequence[Firing]) -> datetime | None:
    return min([f.recheck_at for f in firings if f.recheck_at], default=None)


def fired_branches(trigger: Trigger, firing: Firing) -> list[str]:
    """Returns the labels of the leaves that made a combined trigger fire, from left to right."""
    if isinstance(trigger, Leaf):
        return [trigger.label]
    assert isinstance(trigger, Combined)
    pairs = zip(trigger.of, firing.children, strict=True)
    return [
        label for child, below in pairs if below.satisfied for label in fired_branches(child, below)
    ]


def kept_for_all(trigger: Trigger) -> tuple[int, ...]:
    """Returns the leaves whose events without a partition are kept for each partition.

    These are the leaves under an ``all_of``: each target partition waits for them, even one without
    a waiting job yet. In an ``any_of`` such events concern the jobs that wait at that moment.
    """
    return tuple(_kept(trigger, 0, below_all=False))


def _kept(trigger: Trigger, first: int, *, below_all: bool) -> Iterator[int]:
    if not isinstance(trigger, Combined):
        if below_all:
            yield first
        return
    for child in trigger.of:
        yield from _kept(child, first, below_all=isinstance(trigger, AllOf))
        first += len(child.leaves)
