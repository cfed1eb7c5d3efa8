"""Fires when the freshness policy of an asset changes its state."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, field_validator

from arctic_orchestration.event_log.event import Event, EventKey, EventKind
from arctic_orchestration.schedules.triggers.base import Arrivals, Firing, Leaf
from arctic_orchestration.specification import AssetName, one_or_several

_State = Literal["pass", "warn", "fail"]


class Freshness(Leaf):
    """Fires when Dagster's freshness policy of ``asset`` changes to one of the states ``state``.

    A change is an event. A policy that stays in its state does not fire again.
    """

    kind: Literal["freshness"] = "freshness"
    asset: AssetName
    state: Annotated[
        tuple[_State, ...],
        BeforeValidator(one_or_several, json_schema_input_type=_State | tuple[_State, ...]),
    ]

    @field_validator("state")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("at least one state")
        return value

    def keys(self, location: str) -> tuple[EventKey, ...]:
        return (EventKey.of_freshness(self.asset),)

    def asset_fields(self) -> Mapping[str, str]:
        return {"asset": self.asset}

    def takes(self, event: Event) -> bool:
        return event.kind is EventKind.FRESHNESS and event.state in self.state

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        arrived = arrivals[0]
        changed = "changed" if arrived.events else "has not changed"
        reason = f"the freshness of {self.asset} {changed} to {' or '.join(self.state)}"
        return self._counted(arrived, 1, reason)
