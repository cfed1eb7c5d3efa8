"""``/compaction``: its tables, queues, merge tasks and commits.

All but the plan of a table stands in the state database.
Compaction belongs to all clusters of a state database. A scope can be limited to its queues.
"""

import threading
from datetime import datetime
from typing import Annotated, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Response

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.commit.records import numbered
from arctic_orchestration.compaction.queue import queues, task_store
from arctic_orchestration.compaction.queue.task import Task
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.compaction.views.documents import (
    CompactionPlan,
    CompactionQueueDocument,
    CompactionRecordDocument,
    CompactionTableDetails,
    details_document,
    queue_document,
    table_document,
)
from arctic_orchestration.compaction.views.table_details import table_details
from arctic_orchestration.compaction.views.tables import TableView, stored_table, stored_tables
from arctic_orchestration.compaction.views.task_documents import (
    CompactionTaskDocument,
    task_details,
)
from arctic_orchestration.compaction.views.task_waits import queue_now, wait_of
from arctic_orchestration.compaction.views.tasks import (
    After,
    list_tasks,
    parse_states,
    position_of,
)
from arctic_orchestration.compaction.work.attempt_lookup import attempts_of
from arctic_orchestration.compaction.work.workers import live_workers
from arctic_orchestration.errors import InvalidInput, NotFound, RequestRefused
from arctic_orchestration.service import compaction_documents as documents
from arctic_orchestration.service import paging, parameters
from arctic_orchestration.service.access import Caller, CompactionReader
from arctic_orchestration.service.paging import Cursor, Limit
from arctic_orchestration.service.parameters import HAS_ETAG, Text
from arctic_orchestration.service.service import ServiceOfApp

router = APIRouter(prefix="/compaction", tags=["compaction"])
TableName = Annotated[str, Path(description="The table's name in the catalog: lake.flights.")]
QueueName = Annotated[str, Path(description="The queue's name.")]
TaskId = Annotated[str, Path(description="The task's id.")]
OfTable = Annotated[Text, Query(description="Only of this table.")]
#: so many live tasks are described with a table
_TASKS = 100
_PLANNING = threading.BoundedSemaphore(1)


@router.get("/tables")
def list_tables(
    service: ServiceOfApp,
    caller: CompactionReader,
    order: Annotated[
        Literal["name", "need"], Query(description="need: those that are due first, oldest first.")
    ] = "name",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> documents.CompactionTablePage:
    """List tables that compaction knows, by name or by need.

    Without what stands in the catalog alone: numbers of files, and properties.
    """
    place_of = _need if order == "need" else _name
    begin = paging.values(cursor, *([int, int, str] if order == "need" else [str]))
    now = utc_now()
    with service.database.read() as tx:
        rows = sorted(
            (row for row in tables.all_tables(tx) if caller.admits(queue=row.queue)), key=place_of
        )
        rest = [row for row in rows if begin is None or place_of(row) > tuple(begin)]
        seen = stored_tables(tx, rest[:limit], now)
    more = paging.cursor(*place_of(rest[limit - 1])) if len(rest) > limit else None
    return documents.CompactionTablePage(
        tables=[table_document(one, now) for one in seen], next_cursor=more
    )


def _name(row: CompactionTable) -> tuple[str | int, ...]:
    return (row.name,)


def _need(row: CompactionTable) -> tuple[str | int, ...]:
    if row.due_since is None or row.gone_at is not None:
        return 1, 0, row.name
    return 0, int(row.due_since.timestamp() * 1_000_000), row.name


@router.get("/tables/{table}", responses={200: HAS_ETAG})
def show_table(
    service: ServiceOfApp, caller: CompactionReader, table: TableName, response: Response
) -> CompactionTableDetails:
    """Show a table: why it is compacted or not, and what its tasks wait for."""
    now = utc_now()
    with service.database.read() as tx:
        seen = stored_table(tx, known_table(tx, caller, table), now)
        details = details_document(table_details(tx, seen, now, _TASKS))
    response.headers["ETag"] = etag_of_table(seen)
    return CompactionTableDetails.from_record(details, table=table_document(seen, now))


@router.get("/tables/{table}/plan")
def plan_table(
    service: ServiceOfApp,
    caller: CompactionReader,
    table: TableName,
    force: Annotated[
        bool, Query(description="Whatever can be better, below thresholds too.")
    ] = False,
) -> CompactionPlan:
    """Show what would be merged in a table now, as a dry run does; offers nothing.

    It reads the catalog and the table's manifests: one request at a time.
    """
    with service.database.read() as tx:
        known_table(tx, caller, table)
    if not _PLANNING.acquire(blocking=False):
        raise RequestRefused(
            429, "Another table is planned: try again soon", headers={"Retry-After": "5"}
        )
    try:
        catalog = service.catalog
        # The service starts without the lake's packages.
        from arctic_orchestration.compaction.planning import table_planner

        made = table_planner.plan_table(service.database, catalog, table, utc_now(), forced=force)
    finally:
        _PLANNING.release()
    return CompactionPlan.from_record(made, table=table)


@router.get("/queues")
def list_queues(service: ServiceOfApp, caller: CompactionReader) -> documents.CompactionQueues:
    """List queues of merge tasks by level, with their tasks and workers."""
    with service.database.read() as tx:
        found = [one for one in queues.counted(tx) if caller.admits(queue=one.queue.name)]
        shown = [queue_document(one, live_workers(tx, one.queue.name)) for one in found]
    return documents.CompactionQueues(queues=shown)


@router.get("/queues/{queue}", responses={200: HAS_ETAG})
def show_queue(
    service: ServiceOfApp, caller: CompactionReader, queue: QueueName, response: Response
) -> CompactionQueueDocument:
    """Show a queue of merge tasks, with its tasks and workers."""
    caller.check(queue=queue)
    with service.database.read() as tx:
        return described_queue(tx, queue, response)


@router.get("/tasks")
def list_merge_tasks(
    service: ServiceOfApp,
    caller: CompactionReader,
    table: OfTable = None,
    queue: Annotated[Text, Query(description="Only of this queue.")] = None,
    state: Annotated[
        list[str] | None,
        Query(description="Only in this state, or: waiting, live (default), ended, all."),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> documents.CompactionTaskPage:
    """List live merge tasks in the order of their claims, then those that ended, newest first."""
    states = parse_states(state or ["live"])
    after = _after(cursor)
    with service.database.read() as tx:
        found = list_tasks(
            tx,
            states,
            table=table,
            queue=queue,
            queues=admitted_queues(tx, caller),
            after=after,
            limit=limit + 1,
        )
    shown, following = paging.page(found, limit, _position)
    tasks = CompactionTaskDocument.from_records(shown)
    return documents.CompactionTaskPage(tasks=tasks, next_cursor=following)


@router.get("/tasks/{task}", responses={200: HAS_ETAG})
def show_task(
    service: ServiceOfApp, caller: CompactionReader, task: TaskId, response: Response
) -> documents.ExplainedCompactionTask:
    """Show a merge task: its files, attempts and history, and what it waits for."""
    now = utc_now()
    with service.database.read() as tx:
        found = task_store.task_by_id(tx, task)
        caller.check(queue=found.queue)
        group, history = task_store.group_of(tx, task), task_store.history(tx, task)
        attempts = attempts_of(tx, task)
        wait, ahead = None, None
        if found.is_live:
            table = tables.table_by_name(tx, found.table)
            wait = wait_of(tx, found, table, queue_now(tx, found.queue), now)
            ahead = wait.ahead
    response.headers["ETag"] = etag_of_task(found)
    details = task_details(found, group, attempts, history, ahead=ahead)
    return documents.ExplainedCompactionTask.from_record(details, explanation=wait)


@router.get("/records")
def list_records(
    service: ServiceOfApp,
    caller: CompactionReader,
    table: OfTable = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> documents.CompactionRecords:
    """List commits of compaction, newest first; those of a table that is gone, without limits."""
    begin = paging.values(cursor, str, int)
    before = (parameters.moment(begin[0], field="cursor"), int(begin[1])) if begin else None
    with service.database.read() as tx:
        found = numbered(
            tx, table=table, queues=admitted_queues(tx, caller), before=before, limit=limit + 1
        )
    shown, following = paging.page(found, limit, lambda last: (last[1].at.isoformat(), last[0]))
    records = [CompactionRecordDocument.from_record(record) for _, record in shown]
    return documents.CompactionRecords(records=records, next_cursor=following)


def known_table(tx: sa.Connection, caller: Caller, name: str) -> CompactionTable:
    """Returns the row of a table.

    Errors:
        NotFound: compaction does not know it; without the names of others, as the command has.
        RequestRefused: 403; the caller may not.
    """
    try:
        row = tables.table_by_name(tx, name)
    except NotFound:
        raise NotFound(f"compaction knows no table {name}") from None
    caller.check(queue=row.queue)
    return row


def described_queue(tx: sa.Connection, name: str, response: Response) -> CompactionQueueDocument:
    """Returns a queue, and sets its ETag.

    Errors:
        NotFound: no such queue.
    """
    found = next((one for one in queues.counted(tx) if one.queue.name == name), None)
    if found is None:
        raise NotFound(f"no compaction queue {name}")
    response.headers["ETag"] = parameters.etag(found.queue)
    return queue_document(found, live_workers(tx, name))


def admitted_queues(tx: sa.Connection, caller: Caller) -> list[str] | None:
    """Returns the queues that a caller may read; None: all that there ever were."""
    if caller.admits():
        return None
    return [one.name for one in queues.queues(tx) if caller.admits(queue=one.name)]


def etag_of_task(task: Task) -> str:
    """Returns the ETag of a task: of its state, attempts, queue and level."""
    return parameters.etag(
        task.id, task.state, task.state_at, task.attempts, task.queue, task.level
    )


def etag_of_table(seen: TableView) -> str:
    """Returns the ETag of a table: of its queue, and whether it is due or rests."""
    row = seen.row
    state = row and (row.queue, row.due_since, row.due_number, row.failures, row.rests_until)
    return parameters.etag(seen.name, state, seen.resting)


def _position(last: Task) -> tuple[str | int, str]:
    place, id = position_of(last)
    return place.isoformat() if isinstance(place, datetime) else place, id


def _after(cursor: str | None) -> After | None:
    """Reads the position of the last task of a page: a live one, or one that ended.

    Errors:
        InvalidInput: it is another cursor.
    """
    try:
        begin = paging.values(cursor, int, str)
    except InvalidInput:
        at, id = paging.values(cursor, str, str) or ("", "")
        return parameters.moment(at, field="cursor"), id
    return (begin[0], begin[1]) if begin is not None else None
