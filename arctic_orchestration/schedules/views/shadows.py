"""How the decisions of schedules in shadow differ from those of Dagster's own."""

from collections.abc import Sequence

from arctic_orchestration.documents import At, Document


class Decided(Document):
    """What one side decided."""

    #: ``run``, ``no run`` or ``failed``
    outcome: str
    reason: str
    #: ours: the id of the job; Dagster's: that of the tick; None: there is none
    source: str | None


class Difference(Document):
    """A decision that differs."""

    at: At
    #: the partition or run that it is about; empty: the moment
    about: str
    what: str
    ours: Decided
    theirs: Decided


class Shadow(Document):
    """A schedule in shadow, and its decisions that differ."""

    name: str
    schedule: str
    since: At
    #: decisions that both have made, and those that one has still to make
    compared: int
    open: int
    differences: Sequence[Difference]
