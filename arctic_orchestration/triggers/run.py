"""Fires when runs of a job, or of assets, reach a status."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from arctic_orchestration.events.event import EventKey, RunStatus
from arctic_orchestration.triggers.base import Arrivals, Firing, Leaf

_STATUSES = ("success", "failure", "canceled", "started")


def _statuses(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class Run(Leaf):
    """Fires when ``count`` runs of ``job``, or of one of ``assets``, reached a status."""

    kind: Literal["run"] = "run"
    job: str | None = Field(default=None, min_length=1)
    assets: tuple[str, ...] = ()
    status: Annotated[
        tuple[Literal["success", "failure", "canceled", "started"], ...],
        BeforeValidator(_statuses),
    ] = ("success",)
    count: int = Field(default=1, ge=1, strict=True)
    #: the code location of the runs; none: the schedule's own
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
        statuses = [RunStatus(status) for status in self.status]
        if self.job is not None:
            return tuple(EventKey.of_job_run(where, self.job, status) for status in statuses)
        return tuple(
            EventKey.of_asset_run(where, asset, status)
            for asset in self.assets
            for status in statuses
        )

    def named_assets(self) -> tuple[str, ...]:
        return self.assets if self.location is None else ()

    def named_jobs(self) -> tuple[str, ...]:
        return (self.job,) if self.job is not None and self.location is None else ()

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        seen = arrivals[0].events
        who = f"job {self.job}" if self.job is not None else f"assets {', '.join(self.assets)}"
        return Firing(
            satisfied=seen >= self.count,
            reason=f"{seen} of {self.count} runs of {who} reached {' or '.join(self.status)}",
        )
