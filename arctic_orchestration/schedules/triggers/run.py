"""Fires when runs of a job, or of assets, reach a status."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from arctic_orchestration.event_log.event import Event, EventKey, RunStatus
from arctic_orchestration.schedules.triggers.base import Arrivals, Firing, Leaf

_Status = Literal["success", "failure", "canceled", "started"]


def _statuses(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class Run(Leaf):
    """Fires when ``count`` runs of ``job``, or of one of ``assets``, reached a status."""

    kind: Literal["run"] = "run"
    job: str | None = Field(default=None, min_length=1)
    assets: tuple[str, ...] = ()
    status: Annotated[
        tuple[_Status, ...],
        BeforeValidator(_statuses, json_schema_input_type=_Status | tuple[_Status, ...]),
    ] = ("success",)
    count: int = Field(default=1, ge=1, strict=True)
    #: the code location of the runs; None: the schedule's own
    location: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.job is None) == (not self.assets):
            raise ValueError("either job or assets")
        return self

    @field_validator("status")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("at least one status")
        return value

    def keys(self, location: str) -> tuple[EventKey, ...]:
        where = self.location or location
        # Each once, however often a person names it.
        statuses = [RunStatus(status) for status in dict.fromkeys(self.status)]
        if self.job is not None:
            return tuple(EventKey.of_job_run(where, self.job, status) for status in statuses)
        return tuple(
            EventKey.of_asset_run(where, asset, status)
            for asset in dict.fromkeys(self.assets)
            for status in statuses
        )

    def takes(self, event: Event) -> bool:
        # A run counts once: one that started was counted at its start.
        already_counted = event.status is not None and event.status.ended and event.started
        return not (already_counted and "started" in self.status)

    @property
    def label(self) -> str:
        return f"{self.kind} {self.job or ', '.join(self.assets)}"

    def asset_fields(self) -> Mapping[str, str]:
        own = self.assets if self.location is None else ()
        return {f"assets[{number}]": asset for number, asset in enumerate(own)}

    def job_name_fields(self) -> Mapping[str, str]:
        return {"job": self.job} if self.job is not None and self.location is None else {}

    @property
    def asset_of_partitions(self) -> str | None:
        return self.assets[0] if self.assets and self.location is None else None

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        arrived = arrivals[0]
        seen = arrived.events
        who = f"job {self.job}" if self.job is not None else f"assets {', '.join(self.assets)}"
        reason = f"{seen} of {self.count} runs of {who} reached {' or '.join(self.status)}"
        if seen < self.count:
            return Firing(satisfied=False, reason=reason)
        first_at = arrived.first_at if self.count == 1 else arrived.fired_at or arrived.last_at
        return Firing(satisfied=True, reason=reason, first_at=first_at, last_at=arrived.last_at)
