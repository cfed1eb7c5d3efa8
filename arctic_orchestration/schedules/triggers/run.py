"""Fires when runs of a job, or of assets, reach a status."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from arctic_orchestration.event_log.event import ANY_LOCATION, Event, EventKey, RunStatus
from arctic_orchestration.schedules.triggers.base import Arrivals, Firing, Leaf
from arctic_orchestration.specification import AssetName, IndexedName, IndexedText, one_or_several

_Status = Literal["success", "failure", "canceled", "started"]


class Run(Leaf):
    """Fires when ``count`` runs of ``job``, or of one of ``assets``, reached a status.

    With both, runs of the job count if they were to materialize one of the assets.
    """

    kind: Literal["run"] = "run"
    job: IndexedName | None = None
    assets: tuple[AssetName, ...] = ()
    status: Annotated[
        tuple[_Status, ...],
        BeforeValidator(one_or_several, json_schema_input_type=_Status | tuple[_Status, ...]),
    ] = ("success",)
    count: int = Field(default=1, ge=1, strict=True)
    #: the code location of the runs; None: the schedule's own; ``*``: any
    location: IndexedText | None = None
    #: only runs that have these tags; a value is a glob
    tags: Mapping[str, str] = Field(default={})

    @model_validator(mode="after")
    def _some_source(self) -> Self:
        if self.job is None and not self.assets:
            raise ValueError("a job, or assets")
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
        if self.job is not None and not self.assets:
            return tuple(EventKey.of_job_run(where, self.job, status) for status in statuses)
        return tuple(
            EventKey.of_asset_run(where, asset, status)
            for asset in dict.fromkeys(self.assets)
            for status in statuses
        )

    def takes(self, event: Event) -> bool:
        # A run counts once: one that started was counted at its start.
        already_counted = event.status is not None and event.status.ended and event.started
        if already_counted and "started" in self.status:
            return False
        # Of the runs that a key for assets finds.
        if self.job not in (None, event.subject):
            return False
        tags = event.tags
        return all(k in tags and fnmatchcase(tags[k], glob) for k, glob in self.tags.items())

    @property
    def label(self) -> str:
        names = [self.job] if self.job is not None else []
        return f"{self.kind} {', '.join([*names, *self.assets])}"

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
        runs = f"{arrived.events} of {self.count} runs of {self._who}"
        reason = f"{runs} reached {' or '.join(self.status)}"
        return self._counted(arrived, self.count, reason)

    @property
    def _who(self) -> str:
        who = f"assets {', '.join(self.assets)}" if self.assets else f"job {self.job}"
        if self.assets and self.job is not None:
            who += f" by job {self.job}"
        if self.tags:
            who += f" tagged {', '.join(f'{key}={glob}' for key, glob in self.tags.items())}"
        return f"{who} in any location" if self.location == ANY_LOCATION else who
