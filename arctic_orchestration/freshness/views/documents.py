"""What programs read of tasks, their parents and submissions."""

from typing import Any

from arctic_orchestration.documents import At, Document, source
from arctic_orchestration.freshness.submission import SubmissionState
from arctic_orchestration.freshness.views.overview import TaskOverview
from arctic_orchestration.freshness.views.tasks import EdgeView, TaskView


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

    submission: str = source("id")
    task: str
    cluster: str
    location: str
    group: str = source("group_id")
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
    submission: str = source("submission.id")
    task: str = source("submission.task")
    state: SubmissionState = source("submission.state")
    reason: str = source("submission.reason")


class TaskDocument(Document):
    """A task of all clusters that share the database."""

    task: str = source("name")
    #: running, waiting, skipped, fresh, failed, stale or never
    state: str
    fresh: bool
    fresh_until: At | None
    last_success_at: At | None = source("row.last_success_at")
    last_success_run: str | None = source("row.last_success_run")
    last_success_cluster: str | None = source("row.last_success_cluster")
    last_token: int | None = source("row.last_token")
    skipped: str | None
    holder: HolderOfTask | None
    #: the locations that declare it, each with its form in a batch file
    declared: list[dict[str, Any]]
    parents: list[EdgeDocument]
    live_submissions: list[SubmissionDocument] = source("live")
    roots: list[RootDocument]
    failed_submission: SubmissionDocument | None = source("failed")


class StepDocument(Document):
    """Something that happened to a task or a submission."""

    at: At
    step: str
    reason: str
    cluster: str | None
    location: str | None
    submission: str | None
    details: dict[str, Any]


class NodeDocument(Document):
    """A task of a graph."""

    task: str = source("name")
    state: str
    fresh: bool
    last_success_at: At | None = source("row.last_success_at")


class GraphDocument(Document):
    """Tasks, parents before children, and their edges."""

    tasks: list[NodeDocument]
    edges: list[EdgeOfGraph]


def task_document(known: TaskOverview, view: TaskView) -> TaskDocument:
    """Returns a task."""
    return TaskDocument.from_record(
        view,
        holder=None if view.holder is None else view.row,
        declared=[
            {"cluster": one.cluster, "location": one.location, **one.spec.to_form()}
            for one in known.places[view.name]
        ],
        parents=[edge_document(known, edge) for edge in view.parents],
        roots=[RootDocument.from_record(root, of=id) for id, root in view.roots.items()],
    )


def edge_document(known: TaskOverview, edge: EdgeView) -> EdgeDocument:
    """Returns a parent."""
    return EdgeDocument.from_record(edge, **_known_of(known, edge))


def _known_of(known: TaskOverview, edge: EdgeView) -> dict[str, bool | None]:
    return {"exists": known.exists(edge), "fresh": edge.fresh if known.is_known(edge) else None}


def graph_document(known: TaskOverview, task: str | None) -> GraphDocument:
    """Returns all tasks and edges, or those of a task and its ancestors."""
    names = list(known.views) if task is None else [*known.graph.ancestors([task]), task]
    views = [known.views[name] for name in names]
    edges = [edge for view in views for edge in view.parents]
    return GraphDocument(
        tasks=NodeDocument.from_records(views),
        edges=[EdgeOfGraph.from_record(edge, **_known_of(known, edge)) for edge in edges],
    )
