"""What programs read of schedules and their jobs."""

from collections.abc import Iterable
from typing import Any

from arctic_orchestration.documents import At, Document, source
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.stored_schedule import Origin, ScheduleStatus
from arctic_orchestration.schedules.views.explanation import ConstraintNode, Explanation, Move
from arctic_orchestration.schedules.views.listing import ListedJob, ListedSchedule


class ScheduleDocument(Document):
    """A schedule and its state."""

    name: str = source("row.name")
    status: ScheduleStatus = source("row.status")
    origin: Origin = source("row.origin")
    version: int = source("row.version")
    #: why this version of the package cannot read it
    problem: str | None
    created_at: At = source("row.created_at")
    updated_at: At = source("row.updated_at")
    status_at: At = source("row.status_at")
    jobs_waiting: int = source("waiting")
    jobs_active: int = source("active")
    next_tick_at: At | None
    #: null: this version of the package cannot read it
    definition: dict[str, Any] | None


class JobDocument(Document):
    """One firing of a schedule on its way to a run."""

    id: str
    schedule: str
    schedule_version: int
    state: JobState
    reason: str
    priority: int
    partition: str | None
    partition_start: str | None
    partition_end: str | None
    created_at: At
    satisfied_at: At | None
    next_check_at: At | None
    deadline_at: At | None
    held_by: str | None
    forced: str | None
    attempt: int
    requests: int
    run_id: str | None
    ended_at: At | None


class ExplanationDocument(Document):
    """Why a job waits, or why a schedule has not run."""

    summary: str
    schedule: str = source("schedule.name")
    status: ScheduleStatus = source("schedule.status")
    suspend_mode: str = source("schedule.schedule.suspend_mode")
    version: int = source("schedule.version")
    job: JobDocument | None
    #: the trigger as a tree; each node has ``form``, ``satisfied``, ``reason`` and ``children``
    trigger: dict[str, Any] | None
    constraints: list[ConstraintNode]
    partition: str | None
    timeout: str | None
    events: int
    partitions: list[str]
    more_partitions: int
    others_waiting: int
    history: list[Move]
    unknown: list[str]
    cycles: list[str]


def schedule_document(listed: ListedSchedule) -> ScheduleDocument:
    """Returns a schedule and its state."""
    schedule = listed.schedule
    return ScheduleDocument.from_record(
        listed,
        problem=listed.row.problem if schedule is None else None,
        definition=schedule and schedule.to_form(),
    )


def job_documents(listed: Iterable[ListedJob]) -> list[JobDocument]:
    """Returns jobs."""
    return [JobDocument.from_record(one.job, schedule=one.schedule) for one in listed]


def explanation_document(explained: Explanation) -> ExplanationDocument:
    """Returns why a job waits."""
    job, name = explained.job, explained.schedule.name
    return ExplanationDocument.from_record(
        explained,
        job=job and JobDocument.from_record(job, schedule=name),
        trigger=explained.trigger and explained.trigger.to_json(),
    )
