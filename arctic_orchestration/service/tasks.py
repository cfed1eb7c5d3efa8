"""``/tasks``: tasks with fresh parents, their graph, submissions and the skip list.

A task is one thing in all clusters and locations that declare it, so a scope admits it by its name,
with ``asset=``: a limit to a location would let one declarer skip the task of all the others.
"""

from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Response

from arctic_orchestration.errors import NotFound
from arctic_orchestration.freshness import definitions, skip_list, submissions
from arctic_orchestration.freshness.dagster.plain_assets import PlainAssets
from arctic_orchestration.freshness.status import events_of
from arctic_orchestration.freshness.views.documents import (
    ChildDocument,
    GraphDocument,
    StepDocument,
    SubmissionDocument,
    TaskDocument,
    graph_document,
    task_document,
)
from arctic_orchestration.freshness.views.explanation import explain
from arctic_orchestration.freshness.views.overview import TaskOverview, task_overview
from arctic_orchestration.freshness.views.tasks import TaskView, task_views
from arctic_orchestration.service import paging, parameters
from arctic_orchestration.service import tasks_documents as documents
from arctic_orchestration.service.access import Caller, FreshnessReader, FreshnessWriter
from arctic_orchestration.service.bodies import JsonObject, body_schema
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import HAS_ETAG, Text
from arctic_orchestration.service.service import ServiceOfApp
from arctic_orchestration.state import audit, dialect
from arctic_orchestration.state.dialect import database_time

router = APIRouter(tags=["tasks"])
TaskName = Annotated[str, Path(description="The task's name: an asset's key, or a job's name.")]
_SUBMIT = body_schema(documents.SubmitForm.model_json_schema())
_SKIP = body_schema(documents.SkipForm.model_json_schema())
#: how many submissions and steps a task is shown with
_LATEST = 20


@router.get("/tasks")
def list_tasks(
    service: ServiceOfApp,
    caller: FreshnessReader,
    batch: Annotated[Text, Query(description="Only of this batch.")] = None,
    fresh: Annotated[bool | None, Query(description="Only fresh ones, or only others.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> documents.TaskPage:
    """List tasks of all clusters by name, with their freshness and their parents'."""
    (after,) = paging.values(cursor, str) or ("",)
    listed: list[TaskDocument] = []
    with service.database.read() as tx:
        assets = PlainAssets()
        while True:
            names = definitions.task_names(tx, after=after, batch=batch, limit=limit + 1)
            # A declaration of another version of the package may be unreadable.
            readable = _readable(tx, caller, names)
            known = task_overview(tx, assets, readable)
            # In the order of the database, which the next page goes on with.
            found = [known.views[name] for name in readable]
            listed += [task_document(known, one) for one in found if fresh in (None, one.fresh)]
            if len(names) <= limit or len(listed) > limit:
                break
            after = names[-1]
    following = paging.cursor(listed[limit - 1].task) if len(listed) > limit else None
    return documents.TaskPage(tasks=listed[:limit], next_cursor=following)


@router.get("/tasks/{task:path}", responses={200: HAS_ETAG})
def show_task(
    service: ServiceOfApp, caller: FreshnessReader, task: TaskName, response: Response
) -> documents.TaskDetails:
    """Show a task: why it runs or not, its parents and children, its submissions and steps."""
    caller.check(asset=task)
    with service.database.read() as tx:
        assets = PlainAssets()
        known = _known(tx, assets, task)
        view = known.views[task]
        found = explain(tx, task, known.now, assets=assets, last=_LATEST)
        history = [event for _, event in events_of(tx, task=task, limit=_LATEST)]
        latest = submissions.latest_of(tx, task, _LATEST)
    response.headers["ETag"] = _etag(view)
    return documents.TaskDetails.from_record(
        task_document(known, view),
        children=ChildDocument.from_records(known.children(task)),
        submissions=SubmissionDocument.from_records(latest),
        history=StepDocument.from_records(history),
        explanation=found.lines(),
    )


@router.get("/task-graph")
def show_graph(
    service: ServiceOfApp,
    caller: FreshnessReader,
    task: Annotated[Text, Query(description="Only this task and its ancestors.")] = None,
) -> GraphDocument:
    """Show tasks and the freshness of each parent for each child."""
    if task is not None:
        caller.check(asset=task)
    with service.database.read() as tx:
        known = _known(tx, PlainAssets(), task)
    graph = graph_document(known, task)
    return GraphDocument(
        tasks=[one for one in graph.tasks if caller.admits(asset=one.task)],
        edges=[one for one in graph.edges if caller.admits(asset=one.child)],
    )


@router.post("/submissions", openapi_extra=_SUBMIT, status_code=202)
def submit_tasks(
    service: ServiceOfApp, caller: FreshnessWriter, body: JsonObject
) -> documents.SubmissionsDocument:
    """Submit tasks or batches: bring them up to date if they are stale; all of them or none.

    A task that is fresh does not run, and no task runs twice.
    """
    form = documents.SubmitForm.parse(body)
    caller.check_some("asset")
    actor = caller.actor
    with service.database.begin() as tx:
        options = form.model_dump(exclude={"names"})
        made = submissions.submit(tx, form.names, cluster=actor.cluster, by=actor.name, **options)
        for one in made:
            caller.check(asset=one.task)
        details = form.model_dump(exclude={"names", "with_parents"})
        details["submissions"] = len(made)
        audit.record(tx, actor, "tasks", "submit", ", ".join(form.names), **details)
    return documents.SubmissionsDocument(submissions=SubmissionDocument.from_records(made))


@router.get("/skip-list")
def list_skipped(service: ServiceOfApp, caller: FreshnessReader) -> documents.SkipList:
    """List the tasks on the skip list."""
    with service.database.read() as tx:
        found = [one for one in skip_list.skips(tx) if caller.admits(asset=one.task)]
    return documents.SkipList(skipped=documents.SkipDocument.from_records(found))


@router.put("/skip-list/{task:path}", openapi_extra=_SKIP, responses={200: HAS_ETAG})
def skip_task(
    service: ServiceOfApp,
    caller: FreshnessWriter,
    task: TaskName,
    body: JsonObject,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> documents.SkipDocument:
    """Skip a task in all clusters, or change the reason; a run of it continues.

    If-Match takes the ETag of the task.
    """
    caller.check(asset=task)
    form = documents.SkipForm.parse(body)
    actor = caller.actor
    with service.database.begin() as tx:
        dialect.lock(tx, f"task {task}")
        parameters.check_etag(if_match, _etag(_view(tx, task)))
        done = skip_list.skip(tx, task, form.reason, by=actor.name, cluster=actor.cluster)
        audit.record(tx, actor, "tasks", "skip", task, reason=form.reason)
        response.headers["ETag"] = _etag(_view(tx, task))
    return documents.SkipDocument.from_record(done)


@router.delete("/skip-list/{task:path}", status_code=204)
def unskip_task(
    service: ServiceOfApp,
    caller: FreshnessWriter,
    task: TaskName,
    if_match: parameters.IfMatch = None,
) -> None:
    """Remove a task from the skip list; nothing is submitted."""
    caller.check(asset=task)
    actor = caller.actor
    with service.database.begin() as tx:
        dialect.lock(tx, f"task {task}")
        parameters.check_etag(if_match, _etag(_view(tx, task)))
        if not skip_list.skips(tx, [task]):
            raise NotFound(f"task {task} is not on the skip list")
        skip_list.unskip(tx, task, by=actor.name, cluster=actor.cluster)
        audit.record(tx, actor, "tasks", "unskip", task)


def _readable(tx: sa.Connection, caller: Caller, names: list[str]) -> list[str]:
    """Returns the tasks that the caller may see and this version of the package can read."""
    readable = {one.spec.name for one in definitions.definitions(tx, names)}
    return [name for name in names if name in readable and caller.admits(asset=name)]


def _known(tx: sa.Connection, assets: PlainAssets, task: str | None) -> TaskOverview:
    """Returns the overview of all tasks, of which the task is one.

    Errors:
        NotFound: it is not; without the names of others, as the command has.
    """
    known = task_overview(tx, assets)
    if task is not None and task not in known.views:
        raise _unknown(task)
    return known


def _view(tx: sa.Connection, task: str) -> TaskView:
    """Returns a task, without what is known of its parents that are no tasks.

    Errors:
        NotFound: it is none.
    """
    if not definitions.definitions(tx, [task]):
        raise _unknown(task)
    (view,) = task_views(tx, database_time(tx), names=[task])
    return view


def _unknown(task: str) -> NotFound:
    return NotFound(f"no code location declares a task {task}")


def _etag(view: TaskView) -> str:
    """Returns the ETag of a task: of its last success, its submissions and its skip."""
    live = [(one.id, one.state.value) for one in view.live]
    return parameters.etag(view.name, view.row.last_token, view.row.token, view.skipped, live)
