"""What programs read of one run: why it waits, or what became of it."""

from typing import Any

from arctic_orchestration.documents import At, Document, source
from arctic_orchestration.run_queue.overview import PauseDocument
from arctic_orchestration.run_queue.pauses import Pausable


class Pool(Document):
    """One pool."""

    pool: str
    #: whether Dagster would give the run a slot
    has_room: bool
    #: the reason, for people
    text: str


class Pools(Document):
    """The pools that Dagster checks before it starts a run."""

    #: whether they keep the run in the queue
    hold: bool
    #: why, or why not
    text: str
    pools: list[Pool]


class PauseOfRun(PauseDocument):
    """A pause of its queue, or of one of its groups."""

    kind: Pausable
    name: str


class ReportedWait(Document):
    """What the daemon's last pass reported."""

    gate: str
    reason: str
    since: At


class SchedulingJob(Document):
    """The job of the schedule that requested the run."""

    id: str
    schedule: str
    location: str
    state: str
    reason: str


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
    paused: list[PauseOfRun] = source("pauses")
    reported: ReportedWait | None
    #: null: it uses none
    dagster_pools: Pools | None = source("pools")
    scheduling_job: SchedulingJob | None
