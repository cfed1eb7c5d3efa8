"""The answers about the run queue, in the forms of ``arctic queues`` and ``arctic runs --json``."""

from typing import Any

from pydantic import Field

from arctic_orchestration.run_queue.rules import HIGHEST_LEVEL
from arctic_orchestration.service.documents import At, Document, Page
from arctic_orchestration.specification import Specification


class PauseDocument(Document):
    """A pause; without a moment it is configured in dagster.yaml."""

    since: At | None
    reason: str
    by: str


class RunQueueDocument(Document):
    """A queue of runs, now."""

    queue: str
    level: int
    share: float
    #: slots that it may use; null: there are enough for all queues
    may_use: int | None
    in_progress: int
    waiting: int
    paused: PauseDocument | None


class GroupDocument(Document):
    """A group of runs, now."""

    group: str
    limit: int | None
    limit_per_program: int | None
    in_progress: int
    waiting: int
    paused: PauseDocument | None


class RuleDocument(Document):
    """A window, a rate or an interval, now."""

    kind: str
    name: str
    rule: str
    #: whether a run may start; null for an interval, which has many gates
    open: bool | None
    state: str
    until: At | None
    waiting: int


class QueuesDocument(Document):
    """The rules of dagster.yaml, with their runs."""

    waiting: int
    in_progress: int
    #: null: no limit
    max_concurrent_runs: int | None
    #: queued runs in no queue, while there are queues
    in_no_queue: int
    queues: list[RunQueueDocument]
    groups: list[GroupDocument]
    rules: list[RuleDocument]
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


class RunDetailsDocument(Document):
    """A run of Dagster: why it waits, or what became of it."""

    run_id: str
    job: str
    location: str | None
    status: str
    summary: str
    #: which of its tags is not followed
    problem: str | None
    queued_at: At
    started_at: At | None
    ended_at: At | None
    #: its place, gates, share, slots and level; null: it does not wait
    queued: dict[str, Any] | None
    paused: list[dict[str, Any]]
    reported: dict[str, Any] | None
    dagster_pools: dict[str, Any] | None
    scheduling_job: dict[str, Any] | None


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
