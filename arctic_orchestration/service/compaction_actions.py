"""Changes of compaction that need no catalog: of queues, of merge tasks, of tables that rest."""

from typing import Literal

from fastapi import APIRouter, Response

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import control, tables
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.views.documents import CompactionQueueDocument
from arctic_orchestration.compaction.views.tables import stored_table
from arctic_orchestration.compaction.views.task_documents import CompactionTaskDocument
from arctic_orchestration.errors import NotFound, TransitionRefused
from arctic_orchestration.service import compaction_documents as documents
from arctic_orchestration.service import parameters
from arctic_orchestration.service.access import CompactionWriter
from arctic_orchestration.service.bodies import JsonObject, takes
from arctic_orchestration.service.compaction import (
    QueueName,
    TableName,
    TaskId,
    described_queue,
    etag_of_table,
    etag_of_task,
    known_table,
)
from arctic_orchestration.service.parameters import HAS_ETAG
from arctic_orchestration.service.service import ServiceOfApp

router = APIRouter(prefix="/compaction", tags=["compaction"])
QueueAction = Literal["pause", "drain", "resume"]
TaskAction = Literal["retry", "cancel"]


@router.post("/queues/{queue}/{queue_action}", responses={200: HAS_ETAG})
def change_queue(
    service: ServiceOfApp,
    caller: CompactionWriter,
    queue: QueueName,
    queue_action: QueueAction,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> CompactionQueueDocument:
    """Pause a queue, drain it (it takes no new tasks), or resume it; merges in progress go on."""
    caller.check(queue=queue)
    with service.database.begin() as tx:
        try:
            present = queues.lock_queue(tx, queue)
        except NotFound:
            raise NotFound(f"no compaction queue {queue}") from None
        parameters.check_etag(if_match, parameters.etag(present))
        before = control.change_queue(tx, queue, queue_action, caller.actor)
        if before is control.QUEUE_ACTIONS[queue_action]:
            raise TransitionRefused(f"Compaction queue {queue} is {before} already")
        return described_queue(tx, queue, response)


@router.post(
    "/tasks/{task}/prioritize",
    openapi_extra=takes(documents.TaskLevelForm),
    responses={200: HAS_ETAG},
)
def prioritize_task(
    service: ServiceOfApp,
    caller: CompactionWriter,
    task: TaskId,
    body: JsonObject,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> CompactionTaskDocument:
    """Give a planned task another level; the time that it has waited still counts.

    It counts as requested manually: plans leave it until a worker has claimed it.
    """
    form = documents.TaskLevelForm.parse(body)
    with service.database.begin() as tx:
        before = control.locked_task(tx, task)
        caller.check(queue=before.queue)
        parameters.check_etag(if_match, etag_of_task(before))
        after = control.prioritize_task(tx, before, form.level, caller.actor)
    response.headers["ETag"] = etag_of_task(after)
    return CompactionTaskDocument.from_record(after)


@router.post("/tasks/{task}/{task_action}", responses={200: HAS_ETAG})
def act_on_task(
    service: ServiceOfApp,
    caller: CompactionWriter,
    task: TaskId,
    task_action: TaskAction,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> CompactionTaskDocument:
    """Retry a task that failed or is in quarantine, or cancel one that waits for a worker.

    The files of a task in quarantine are planned again; those of a canceled one rest for a day. A
    merged task is canceled by command: that reads the table, which may have it in a snapshot.
    """
    with service.database.begin() as tx:
        before = control.locked_task(tx, task)
        caller.check(queue=before.queue)
        parameters.check_etag(if_match, etag_of_task(before))
        if task_action == "cancel" and before.state is TaskState.MERGED:
            raise TransitionRefused(
                f"Compaction task {task} is merged, and only its table tells whether it is "
                f"committed: arctic compaction tasks cancel {task}; nothing was changed"
            )
        act = control.retry_task if task_action == "retry" else control.cancel_task
        after = act(tx, before, utc_now(), caller.actor)
    response.headers["ETag"] = etag_of_task(after)
    return CompactionTaskDocument.from_record(after)


@router.post("/tables/{table}/wake", responses={200: HAS_ETAG})
def wake_table(
    service: ServiceOfApp,
    caller: CompactionWriter,
    table: TableName,
    response: Response,
    if_match: parameters.IfMatch = None,
) -> documents.WokenTable:
    """End the rest of a table and of its files: the planner's next round plans it."""
    now = utc_now()
    with service.database.begin() as tx:
        known_table(tx, caller, table)
        row = tables.lock_table(tx, table)
        parameters.check_etag(if_match, etag_of_table(stored_table(tx, row, now)))
        files = control.wake_table(tx, table, now, caller.actor)
        if files is None:
            raise TransitionRefused(f"Table {table} does not rest")
        after = stored_table(tx, known_table(tx, caller, table), now)
    response.headers["ETag"] = etag_of_table(after)
    return documents.WokenTable(table=table, rested=True, files=files)
