"""The answer to why a schedule did not launch at a moment."""

from enum import StrEnum

from arctic_orchestration.documents import At, Document


class Source(StrEnum):
    """Where an answer comes from."""

    HISTORY = "history"
    #: the span was simulated again, over the real events
    SIMULATION = "simulation"
    #: neither says it
    UNKNOWN = "unknown"


class Evidence(Document):
    """Something that happened around the moment."""

    at: At
    text: str


class WhyNot(Document):
    """Why a schedule did not launch at a moment.

    Attributes:
        schedule: its name.
        at: the moment.
        cause: a stable key: ``launched`` (it did), ``not_created``, ``deleted``, ``suspended``,
            ``trigger``, the cause that holds a waiting job, ``held``, ``launch``, ``read_late``,
            ``deferred``, ``discarded``, ``dispatcher``, ``nothing_arrived``, ``unknown``.
        answer: one sentence.
        source: where it comes from.
        job: the job that waited; none: there was none.
        evidence: what happened around the moment, in order.
    """

    schedule: str
    at: At
    cause: str
    answer: str
    source: Source = Source.HISTORY
    job: str | None = None
    evidence: tuple[Evidence, ...] = ()
