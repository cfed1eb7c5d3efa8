"""Fires at each run that a plain sensor of Dagster requests."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from arctic_orchestration.event_log.event import Event, EventKey, EventKind
from arctic_orchestration.schedules.triggers.base import Arrivals, Firing, Leaf
from arctic_orchestration.specification import IndexedName


class Requests(Leaf):
    """Fires at each run request of ``sensor``, one of the sources of the code location.

    The sensors are those of ``Arctic(sources=[...])``. Each request becomes a job of its own, whose
    run gets the configuration, tags, partition and asset selection of the request.
    """

    kind: Literal["requests"] = "requests"
    sensor: IndexedName
    #: only requests for this job; None: all
    job: IndexedName | None = None

    @property
    def is_one_event(self) -> bool:
        return True

    @property
    def label(self) -> str:
        job = f" for {self.job}" if self.job is not None else ""
        return f"{self.kind} {self.sensor}{job}"

    def keys(self, location: str) -> tuple[EventKey, ...]:
        return (EventKey.of_request(self.sensor),)

    def takes(self, event: Event) -> bool:
        return event.kind is EventKind.REQUEST and self.job in (None, event.job)

    def job_name_fields(self) -> Mapping[str, str]:
        return {"job": self.job} if self.job is not None else {}

    def evaluate(self, arrivals: Sequence[Arrivals], now: datetime) -> Firing:
        arrived = arrivals[0]
        reason = f"{arrived.events} of 1 requests of sensor {self.sensor}"
        return self._counted(arrived, 1, reason)
