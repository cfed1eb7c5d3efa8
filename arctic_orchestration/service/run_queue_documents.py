"""The answers about the run queue, in the forms of ``arctic queues`` and ``arctic runs --json``."""

from pydantic import Field

from arctic_orchestration.documents import At, Document
from arctic_orchestration.run_queue.overview import (
    GroupDocument,
    RulesDocument,
    RunQueueDocument,
)
from arctic_orchestration.run_queue.rules import HIGHEST_LEVEL
from arctic_orchestration.service.documents import Page
from arctic_orchestration.specification import Specification


class QueuesDocument(RulesDocument):
    """The rules of dagster.yaml, with their runs."""

    waiting: int
    in_progress: int
    #: null: no limit
    max_concurrent_runs: int | None
    #: why the daemon starts no runs; null: nothing is known to stop it
    trouble: str | None


class SlotDocument(Document):
    """A run in progress, which holds a slot."""

    run_id: str
    program: str
    started_at: At | None


class QueueDetails(RunQueueDocument):
    """A queue, with the runs that hold its slots."""

    holders: list[SlotDocument]


class GroupDetails(GroupDocument):
    """A group, with the runs that hold its slots."""

    holders: list[SlotDocument]


class GateDocument(Document):
    """A rule that holds a run."""

    gate: str
    reason: str


class QueuedRunDocument(Document):
    """A run that waits in the queue."""

    run_id: str
    job: str
    place: int
    queue: str | None
    level: int | None
    priority: int
    queued_at: At | None
    #: null: it starts with the next pass
    held_by: GateDocument | None


class QueuedRunPage(Page):
    """Queued runs, in the order in which they can start."""

    waiting: int
    in_progress: int
    max_concurrent_runs: int | None
    trouble: str | None
    runs: list[QueuedRunDocument]


class LevelForm(Specification):
    """The level of a queued run; more is earlier."""

    level: int = Field(strict=True, ge=-HIGHEST_LEVEL, le=HIGHEST_LEVEL, examples=[5])


class LevelDocument(Document):
    """A run with another level, from the next pass on."""

    run_id: str
    job: str
    level: int
    level_before: int | None
    priority: int
    place: int
    place_before: int
    waiting: int
