"""Fires when an asset check passes or fails."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Self

from pydantic import Field, model_validator

from arctic_orchestration.event_log.event import Event, EventKey, EventKind
from arctic_orchestration.schedules.triggers.base import ArrivalLeaf, Arrivals, Firing
from arctic_orchestration.specification import IndexedName


class Check(ArrivalLeaf):
    """Fires when ``count`` evaluations of checks of ``asset`` had the result ``status``.

    An evaluation is one of the check ``name``, or of any check of the asset.
    """

    kind: Literal["check"] = "check"
    #: the name of the check; None: any check of the asset
    name: IndexedName | None = None
    status: Literal["passed", "failed"] = "passed"
    #: with status failed only: failures of this severity; None: of any
    severity: Literal["warn", "error"] | None = None
    count: int = Field(default=1, ge=1, strict=True)

    @model_validator(mode="after")
    def _severity_of_failures(self) -> Self:
        if self.severity is not None and self.status == "passed":
            raise ValueError("a severity only with status: failed")
        return self

    def keys(self, location: str) -> tuple[EventKey, ...]:
        return (EventKey.of_check(self.asset),)

    def takes(self, event: Event) -> bool:
        return (
            event.kind is EventKind.CHECK
            and self.name in (None, event.check)
            and event.passed is (self.status == "passed")
            and self.severity in (None, event.severity)
        )

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        arrived = arrivals[0]
        reason = f"{arrived.events} of {self.count} evaluations of {self._what} {self.status}"
        return self._counted(arrived, self.count, reason)

    @property
    def _what(self) -> str:
        which = "any check" if self.name is None else f"check {self.name}"
        severity = f" with severity {self.severity}" if self.severity else ""
        return f"{which} of {self.asset}{severity}"
