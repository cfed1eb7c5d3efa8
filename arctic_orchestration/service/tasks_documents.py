"""The answers about tasks with fresh parents, in the forms of ``arctic tasks ... --json``."""

from typing import Annotated, Any

from pydantic import Field

from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.service.documents import At, Document, Page
from arctic_orchestration.specification import Specification

#: the maximum number of tasks and batches that one request names
_MOST = 1_000
_Names = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=_MOST)]


class HolderOfTask(Document):
    """The run that makes a task."""

    cluster: str | None
    location: str | None
    run_id: str | None
    submission: str | None
    token: int
    expires_at: At | None


class EdgeDocument(Document):
    """A parent, and its freshness for one child."""

    parent: str
    #: ``task``, ``asset``, or ``missing``: it is unknown
    kind: str
    #: null: only the child's location knows
    exists: bool | None
    #: the maximum age; null: made since the start of today
    hours: float | None
    need: str
    last_success_at: At | None
    #: null: unknown, since the service has no instance of Dagster
    fresh: bool | None
    fresh_until: At | None


class EdgeOfGraph(EdgeDocument):
    """A parent of one child."""

    child: str


class ChildDocument(Document):
    """A task that needs this one."""

    child: str
    hours: float | None
    need: str
    fresh: bool


class SubmissionDocument(Document):
    """A request to bring a task up to date."""

    submission: str
    task: str
    cluster: str
    location: str
    group: str
    by: str
    state: SubmissionState
    reason: str
    required_since: At
    force: bool
    submitted_at: At
    next_check_at: At | None
    deadline_at: At | None
    attempt: int
    token: int | None
    run_id: str | None
    shares: str | None
    ended_at: At | None


class RootDocument(Document):
    """Where the wait of a submission ends."""

    of: str
    submission: str
    task: str
    state: SubmissionState
    reason: str


class TaskDocument(Document):
    """A task of all clusters that share the database."""

    task: str
    #: running, waiting, skipped, fresh, failed, stale or never
    state: str
    fresh: bool
    fresh_until: At | None
    last_success_at: At | None
    last_success_run: str | None
    last_success_cluster: str | None
    last_token: int | None
    skipped: str | None
    holder: HolderOfTask | None
    #: the locations that declare it, each with its form in a batch file
    declared: list[dict[str, Any]]
    parents: list[EdgeDocument]
    live_submissions: list[SubmissionDocument]
    roots: list[RootDocument]
    failed_submission: SubmissionDocument | None


class TaskPage(Page):
    """Tasks by name."""

    tasks: list[TaskDocument]


class StepDocument(Document):
    """Something that happened to a task or a submission."""

    at: At
    step: str
    reason: str
    cluster: str | None
    location: str | None
    submission: str | None
    details: dict[str, Any]


class TaskDetails(TaskDocument):
    """A task with its children, its last submissions and steps."""

    children: list[ChildDocument]
    submissions: list[SubmissionDocument]
    history: list[StepDocument]
    #: why it runs or does not, as sentences
    explanation: list[str]


class NodeDocument(Document):
    """A task of a graph."""

    task: str
    state: str
    fresh: bool
    last_success_at: At | None


class GraphDocument(Document):
    """Tasks, parents before children, and their edges."""

    tasks: list[NodeDocument]
    edges: list[EdgeOfGraph]


class SubmitForm(Specification):
    """Tasks to bring up to date."""

    #: tasks, or batches: all of their tasks
    names: _Names
    #: what was made of them before now does not count
    force: Annotated[bool, Field(strict=True)] = False
    #: the maximum age, instead of the tasks' own
    freshness_hours: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None
    #: of all that is named, only these
    only: _Names | None = None
    #: also all ancestors, in any location
    with_parents: Annotated[bool, Field(strict=True)] = False
    #: needed only if several locations declare a task
    location: str | None = None


class SubmissionsDocument(Document):
    """The submissions of one request."""

    submissions: list[SubmissionDocument]


class SkipForm(Specification):
    """Why a task is skipped."""

    reason: Annotated[str, Field(min_length=1, max_length=1_000)]


class SkipDocument(Document):
    """A task on the skip list."""

    task: str
    reason: str
    by: str
    at: At


class SkipList(Document):
    """Tasks that are not to run for now, in any cluster."""

    skipped: list[SkipDocument]
