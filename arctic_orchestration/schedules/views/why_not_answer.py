"""The answer to why a schedule did not launch at a moment."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from arctic_orchestration.quantities import iso


class Source(StrEnum):
    """Where an answer comes from."""

    HISTORY = "history"
    #: the span was simulated again, over the real events
    SIMULATION = "simulation"
    #: neither says it
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Something that happened around the moment."""

    at: datetime
    text: str

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {"at": iso(self.at), "text": self.text}


@dataclass(frozen=True, kw_only=True, slots=True)
class WhyNot:
    """Why a schedule did not launch at a moment.

    Attributes:
        schedule: its name.
        at: the moment.
        cause: a stable key: ``launched`` (it did), ``not_created``, ``deleted``, ``suspended``,
            ``trigger``, the cause that holds a waiting job, ``held``, ``launch``, ``read_late``,
            ``deferred``, ``discarded``, ``dispatcher``, ``nothing_arrived``, ``unknown``.
        answer: one sentence.
        source: where it comes from.
        job_id: the job that waited; none: there was none.
        evidence: what happened around the moment, in order.
    """

    schedule: str
    at: datetime
    cause: str
    answer: str
    source: Source = Source.HISTORY
    job_id: str | None = None
    evidence: tuple[Evidence, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form; its keys do not change."""
        return {
            "schedule": self.schedule,
            "at": iso(self.at),
            "cause": self.cause,
            "answer": self.answer,
            "source": self.source.value,
            "job": self.job_id,
            "evidence": [one.to_json() for one in self.evidence],
        }
