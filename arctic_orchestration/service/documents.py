"""The forms of answers, for OpenAPI; an answer of another form is an error of the service.

The values are those of the ``to_json`` of the views, as ``arctic ... --json`` prints them.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.schedule_history import Action
from arctic_orchestration.schedules.store import Origin, ScheduleStatus
from arctic_orchestration.schedules.views.forecast import Moment

#: a moment in UTC
At = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
#: a schedule in the form of files
Form = dict[str, Any]


class Document(BaseModel):
    """The base of all answers."""

    model_config = ConfigDict(extra="forbid")


class Page(Document):
    """One page of a list."""

    #: the parameter ``cursor`` of the next page; null: this is the last
    next_cursor: str | None


class Place(Document):
    """A location, and whether its dispatcher ticks."""

    name: str
    owner: str | None
    ticked_at: At | None
    alive: bool
    schedules: int
    jobs_waiting: int
    jobs_active: int


class Places(Document):
    """The locations that the caller may read."""

    cluster: str
    locations: list[Place]


class ScheduleDocument(Document):
    """A schedule and its state."""

    location: str
    name: str
    status: ScheduleStatus
    origin: Origin
    version: int
    #: why this version of the package cannot read it
    problem: str | None
    created_at: At
    updated_at: At
    status_at: At
    jobs_waiting: int
    jobs_active: int
    next_tick_at: At | None
    #: null: this version of the package cannot read it
    definition: Form | None


class SchedulePageDocument(Page):
    """Schedules by location and name."""

    schedules: list[ScheduleDocument]


class FieldChangeDocument(Document):
    """A field that differs; a side without a value is left out."""

    path: str
    old: Any = None
    new: Any = None


class DeclaredSchedule(ScheduleDocument):
    """A schedule as it is now, beside what the code declares."""

    #: null: the code does not declare it, or was deployed by an older version of the package
    declared: Form | None
    #: what differs from the declaration: ``old`` is declared, ``new`` is stored
    differences: list[FieldChangeDocument]


class Specification(Page):
    """A location's specification: its schedules as they are now."""

    location: Place
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


class Coming(Document):
    """A moment at which time alone does something."""

    at: At
    schedule: str
    moment: Moment
    what: str
    job: str | None


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


class JobDocument(Document):
    """One firing of a schedule on its way to a run."""

    location: str
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


class JobPage(Page):
    """Jobs, newest first."""

    jobs: list[JobDocument]


class MoveDocument(Document):
    """A line of a job's history."""

    at: At
    # "from" is a word of Python.
    before: str = Field(alias="from")
    state: str
    reason: str
    actor: str


class JobHistory(Document):
    """The history of a job, in the order of time."""

    location: str
    job: str
    history: list[MoveDocument]


class JobDetails(Document):
    """A job, its launch, its first events and its history."""

    job: JobDocument
    #: what its run gets; null: it was not admitted yet
    launch: dict[str, Any] | None
    events: list[dict[str, Any]]
    history: list[MoveDocument]


class ExplanationDocument(Document):
    """Why a job waits, or why a schedule has not run."""

    location: str
    summary: str
    schedule: str
    status: ScheduleStatus
    suspend_mode: str
    version: int
    job: dict[str, Any] | None
    #: the trigger as a tree; each node has ``form``, ``satisfied``, ``reason`` and ``children``
    trigger: dict[str, Any] | None
    constraints: list[dict[str, Any]]
    partition: str | None
    timeout: str | None
    events: int
    partitions: list[str]
    more_partitions: int
    others_waiting: int
    history: list[MoveDocument]
    unknown: list[str]
    cycles: list[str]


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


class AuditDocument(Document):
    """One change by a person."""

    at: At
    actor: str
    cluster: str
    feature: str
    action: str
    subject: str
    details: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    address: str
    request_id: str


class AuditPage(Page):
    """Changes, newest first."""

    records: list[AuditDocument]


class Health(Document):
    """Whether the service answers."""

    status: Literal["ok", "unavailable"]
    #: why it is not ready
    reason: str | None = None
