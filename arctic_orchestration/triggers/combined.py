"""Triggers made of triggers."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import field_validator

from arctic_orchestration.triggers.base import Arrivals, Firing, Leaf, Trigger

if TYPE_CHECKING:
    from arctic_orchestration.triggers import AnyTrigger


class AnyOf(Trigger):
    """Fires when one of its children does; the job takes what arrived at all of them."""

    kind: Literal["any_of"] = "any_of"
    of: tuple["AnyTrigger", ...]

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
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for child in self.of for leaf in child.leaves)

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        firings, begin = [], 0
        for child in self.of:
            end = begin + len(child.leaves)
            firings.append(child.evaluate(arrivals[begin:end], now))
            begin = end
        fired = [firing for firing in firings if firing.satisfied]
        looks = [firing.look_again_at for firing in firings if firing.look_again_at]
        return Firing(
            satisfied=bool(fired),
            reason=fired[0].reason if fired else " or ".join(f.reason for f in firings),
            look_again_at=min(looks, default=None),
            children=tuple(firings),
        )
