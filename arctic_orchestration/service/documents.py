"""The forms of answers, for OpenAPI; an answer of another form is an error of the service."""

from typing import Any, Literal

from arctic_orchestration.documents import At, Document
from arctic_orchestration.schedules.schedule_history import Action
from arctic_orchestration.schedules.stored_schedule import Origin
from arctic_orchestration.schedules.views.documents import (
    ExplanationDocument,
    JobDocument,
    ScheduleDocument,
)
from arctic_orchestration.schedules.views.explanation import Move
from arctic_orchestration.schedules.views.locations import ListedLocation
from arctic_orchestration.state.audit import AuditDocument

#: a schedule in the form of files
Form = dict[str, Any]


class Page(Document):
    """One page of a list."""

    #: the parameter ``cursor`` of the next page; null: this is the last
    next_cursor: str | None


class Places(Document):
    """The locations that the caller may read."""

    cluster: str
    locations: list[ListedLocation]


class ScheduleOfLocation(ScheduleDocument):
    """A schedule and its state."""

    location: str


class SchedulePageDocument(Page):
    """Schedules by location and name."""

    schedules: list[ScheduleOfLocation]


class FieldChangeDocument(Document):
    """A field that differs; a side without a value is left out."""

    path: str
    old: Any = None
    new: Any = None


class DeclaredSchedule(ScheduleOfLocation):
    """A schedule as it is now, beside what the code declares."""

    #: null: the code does not declare it, or was deployed by an older version of the package
    declared: Form | None
    #: what differs from the declaration: ``old`` is declared, ``new`` is stored
    differences: list[FieldChangeDocument]


class Specification(Page):
    """A location's specification: its schedules as they are now."""

    location: ListedLocation
    schedules: list[DeclaredSchedule]
    #: declared schedules that a person deleted
    deleted: list[str]


class HistoryLine(Document):
    """A change of a schedule."""

    at: At
    name: str
    action: Action
    version: int
    actor: str
    reason: str


class History(Document):
    """The newest changes of a schedule, in the order of time."""

    location: str
    history: list[HistoryLine]


class ScheduleChangeDocument(Document):
    """A schedule that gets a new version."""

    name: str
    version: int
    origin: Origin
    fields: list[FieldChangeDocument]
    problem: str | None


class DifferenceDocument(Document):
    """What turns the stored schedules into those of a file."""

    created: list[Form]
    updated: list[ScheduleChangeDocument]
    deleted: list[str]
    unchanged: list[str]


class AppliedFile(Document):
    """What a file of schedules changes."""

    location: str
    applied: bool
    difference: DifferenceDocument
    warnings: list[str]


class TicksOfSchedule(Document):
    """The ticks of the clocks of one schedule."""

    location: str
    schedule: str
    next: list[At]
    #: since the schedule was created, newest first, whether it was enabled then or not
    previous: list[At]


class TicksPage(Page):
    """The ticks of many schedules."""

    schedules: list[TicksOfSchedule]


class JobOfLocation(JobDocument):
    """One firing of a schedule on its way to a run."""

    location: str


class JobPage(Page):
    """Jobs, newest first."""

    jobs: list[JobOfLocation]


class JobHistory(Document):
    """The history of a job, in the order of time."""

    location: str
    job: str
    history: list[Move]


class JobDetails(Document):
    """A job, its launch, its first events and its history."""

    job: JobOfLocation
    #: what its run gets; null: it was not admitted yet
    launch: dict[str, Any] | None
    events: list[dict[str, Any]]
    history: list[Move]


class ExplanationOfLocation(ExplanationDocument):
    """Why a job waits, or why a schedule has not run."""

    location: str


class Refusal(Document):
    """An object of a bulk action that could not be changed."""

    location: str
    name: str
    reason: str


class BulkResult(Document):
    """What a bulk action does, or did."""

    action: str
    dry_run: bool
    #: how many the filter matched
    matched: int
    #: the first of them, by schedule name or job id
    first: list[str]
    changed: int
    #: the first of those that could not be changed
    refused: list[Refusal]


class AuditPage(Page):
    """Changes, newest first."""

    records: list[AuditDocument]


class Health(Document):
    """Whether the service answers."""

    status: Literal["ok", "unavailable"]
    #: why it is not ready
    reason: str | None = None
