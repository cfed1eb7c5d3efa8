"""What programs read of compaction; sizes in bytes."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator

from arctic_orchestration.compaction.planning.table_plan import Left
from arctic_orchestration.compaction.queue.queue import QueueCounts, QueueState
from arctic_orchestration.compaction.queue.task import TaskKind, TaskState
from arctic_orchestration.compaction.views.table_details import TableDetails
from arctic_orchestration.compaction.views.tables import TableView
from arctic_orchestration.compaction.views.task_documents import DataFileDocument
from arctic_orchestration.compaction.work.workers import Order, Worker
from arctic_orchestration.documents import At, Count, Document, source


class CompactionWorkerDocument(Document):
    """A live worker of a queue."""

    worker: str = source("id")
    parallelism: int
    host: str


class QueueDefinitionDocument(Document):
    """The definition of a queue of merge tasks."""

    queue: str = source("name")
    capacity: int
    level: int
    share: int
    max_workers: int
    #: the number that is kept, also without tasks
    min_workers: int
    #: Spark properties of an application for each worker; null: the session of the code location
    application: dict[str, str] | None
    execution_timeout_seconds: int
    #: when workers claim: ``22:00-06:00 Europe/Berlin mon,tue``, or ``always``
    hours: str
    #: how many tasks are merged at once at most, on average; 0: any number
    budget: float
    state: QueueState


class CompactionQueueDocument(QueueDefinitionDocument):
    """A queue of merge tasks, with its tasks and workers."""

    #: why nothing is claimed now, because of its hours or budget
    held: str | None
    tasks: int
    room: int
    waiting: int
    claimed: int
    merged: int
    tables: int
    workers: list[CompactionWorkerDocument]


class CompactionTableDocument(Document):
    """A table, as the state database knows it: without what stands in the catalog alone."""

    table: str
    enabled: bool
    queue: str
    due_since: At | None
    due_because: str | None = source("due_reason")
    rests_until: At | None
    rests_because: str | None
    resting_files: int
    commit_trouble: str | None
    refused: str | None
    #: since when the catalog does not have it
    gone_at: At | None
    looked_at: At | None
    looked: str | None = source("looked_reason")
    observed_at: At | None
    observed: str | None = source("observed_reason")
    waiting: int
    claimed: int
    merged: int
    last_commit_at: At | None
    next_commit_at: At | None
    #: what is to be said of it, most urgent first
    reasons: list[str]


class TableOfCatalogDocument(CompactionTableDocument):
    """A table, with what stands in the catalog."""

    #: null: the planner has not found it yet
    queue: str | None  # type: ignore[assignment]
    #: null: its files could not be counted, see ``trouble``
    numbers: dict[str, int | float] | None
    trouble: str | None
    #: whether the planner has found it
    known: bool


class RestingFileDocument(Document):
    """A data file that is not planned for now."""

    path: str
    rests: int
    until: At
    reason: str


class QueueOfTable(Document):
    """The queue of a table, and why it is that one."""

    queue: str
    because: str = source("queue_reason")
    level: int
    workers: int
    slots: int


class TaskWaitDocument(Document):
    """A live task, and what it waits for."""

    task: str = source("task.id")
    state: TaskState = source("task.state")
    kind: TaskKind = source("task.kind")
    partition: str = source("task.partition")
    gain: str = source("task.gain")
    waiting_since: At = source("task.waiting_since")
    #: how many of its queue precede it; null: it does not wait for a worker
    ahead: int | None
    #: no task that is offered later precedes it
    overtaken_until: At | None
    #: while the present workers go on; null: unknown
    claimed_by: At | None
    text: str


class QuarantinedTask(Document):
    """A task that was given up."""

    task: str = source("id")
    partition: str
    at: At = source("state_at")
    reason: str


class CompactionRecordDocument(Document):
    """One commit of compaction; sizes in bytes."""

    table: str
    snapshot_id: int
    at: At
    tasks: list[str]
    files_in: int
    files_out: int
    delete_files_removed: int
    bytes_in: int
    bytes_out: int
    rows: int
    rows_deleted: int
    merge_seconds: float
    waited_seconds: float
    ways: dict[str, int]


class TableDetailsDocument(Document):
    """What the tasks of a table wait for, and what became of others."""

    resting_files: list[RestingFileDocument] = source("seen.resting")
    #: null: the planner has not found the table yet
    queue: QueueOfTable | None
    live: int
    #: the first of the live tasks
    tasks: list[TaskWaitDocument] = source("waiting")
    quarantined: list[QuarantinedTask]
    last_commit: CompactionRecordDocument | None = source("last")
    #: the result of the last one; null: the table's properties request none
    upkeep: str | None


class CompactionTableDetails(TableDetailsDocument):
    """A table, and what its tasks wait for."""

    table: CompactionTableDocument
    queue: QueueOfTable


class PlannedTaskDocument(Document):
    """A task that a plan has."""

    kind: TaskKind
    partition: str
    files: Count = source("group.files")
    delete_files: Count = source("group.delete_files")
    small_files: int
    bytes: int
    gain: str
    because: str = source("reason")
    data_files: list[DataFileDocument] = source("group.files")


def _name_of(left: object) -> object:
    return left.name.lower() if isinstance(left, Left) else left


class PlannedPartition(Document):
    """What a plan does with a partition, or why it leaves it alone."""

    partition: str = source("name")
    files: int
    bytes: int
    fragments: int
    undersized: int
    oversized: int
    with_deletes: int
    delete_files: int
    kind: TaskKind | None
    tasks: int
    merged_files: int
    left: Annotated[str | None, BeforeValidator(_name_of)]
    because: str = source("reason")
    notes: list[str]


class PlanDocument(Document):
    """What would be merged in a table now; sizes in bytes."""

    snapshot_id: int | None
    files: int
    bytes: int
    refused: str | None
    gain: str
    #: with the same files, another plan at the earliest then
    recheck_at: At | None
    tasks: list[PlannedTaskDocument]
    partitions: list[PlannedPartition]


class CompactionPlan(PlanDocument):
    """What would be merged in a table now; sizes in bytes."""

    table: str


class MergeDocument(Document):
    """A live attempt at a merge task."""

    task: str
    table: str
    claimed_at: At
    #: when its lease ends, unless it is renewed
    expires_at: At


class WorkerDocument(Document):
    """A worker of compaction."""

    worker: str = source("worker.id")
    name: str = source("worker.name")
    queues: list[str] = source("worker.queues")
    slots: int = source("worker.parallelism")
    host: str = source("worker.host")
    memory: int | None = source("worker.memory")
    version: str = source("worker.version")
    labels: dict[str, str] = source("worker.labels")
    started_at: At = source("worker.started_at")
    seen_at: At = source("worker.seen_at")
    order: Order = source("worker.order")
    #: how many merges it has
    tasks: Count = source("merges")
    #: oldest first
    merges: list[MergeDocument]


def queue_document(one: QueueCounts, workers: Sequence[Worker]) -> CompactionQueueDocument:
    """Returns a queue with its tasks and workers."""
    return CompactionQueueDocument.from_record(
        one.queue,
        held=one.held,
        tasks=one.live,
        room=one.room,
        waiting=one.waiting,
        claimed=one.states.get(TaskState.CLAIMED, 0),
        merged=one.states.get(TaskState.MERGED, 0),
        tables=one.tables,
        workers=workers,
    )


def table_document(one: TableView, now: datetime) -> CompactionTableDocument:
    """Returns a table without what stands in the catalog alone."""
    return CompactionTableDocument.from_record(one.row, **_of_table(one, now))


def table_of_catalog(one: TableView, now: datetime) -> TableOfCatalogDocument:
    """Returns a table with its numbers of files."""
    numbers = None if one.numbers is None else asdict(one.numbers)
    more = {"numbers": numbers, "trouble": one.trouble, "known": one.row is not None}
    return TableOfCatalogDocument.from_record(one.row, **_of_table(one, now), **more)


def _of_table(one: TableView, now: datetime) -> dict[str, Any]:
    rests = one.row is not None and one.row.rests(now)
    return {
        "table": one.name,
        "enabled": one.enabled,
        "rests_until": one.row.rests_until if one.row and rests else None,
        "rests_because": one.row.rest_reason if one.row and rests else None,
        "resting_files": len(one.resting),
        "waiting": one.waiting,
        "claimed": one.tasks.get(TaskState.CLAIMED, 0),
        "merged": one.tasks.get(TaskState.MERGED, 0),
        "last_commit_at": one.committed_at,
        "reasons": one.reasons(now),
    }


def details_document(details: TableDetails) -> TableDetailsDocument:
    """Returns what the state database has about a table beside its row."""
    row, queue = details.seen.row, details.queue
    of_table = None
    if row is not None and queue is not None:
        of_table = QueueOfTable.from_record(row, workers=len(queue.workers), slots=queue.slots)
    live = sum(details.seen.tasks.values())
    return TableDetailsDocument.from_record(details, queue=of_table, live=live)
