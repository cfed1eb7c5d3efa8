"""The answers about compaction, in the forms of ``arctic compaction ... --json``."""

from typing import Any, Literal

from pydantic import Field

from arctic_orchestration.compaction.planning.policy import HIGHEST_LEVEL
from arctic_orchestration.compaction.queue.queue import QueueState
from arctic_orchestration.compaction.queue.task import TaskKind, TaskState
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.service.documents import At, Document, Page
from arctic_orchestration.specification import Specification


class CompactionWorkerDocument(Document):
    """A live worker of a queue."""

    worker: str
    parallelism: int
    host: str


class CompactionQueueDocument(Document):
    """A queue of merge tasks, with its tasks and workers."""

    queue: str
    capacity: int
    level: int
    share: int
    max_workers: int
    execution_timeout_seconds: int
    state: QueueState
    tasks: int
    room: int
    waiting: int
    claimed: int
    merged: int
    tables: int
    workers: list[CompactionWorkerDocument]


class CompactionQueues(Document):
    """The queues that the caller may read, by level."""

    queues: list[CompactionQueueDocument]


class CompactionTableDocument(Document):
    """A table, as the state database knows it: without what stands in the catalog alone."""

    table: str
    enabled: bool
    queue: str
    due_since: At | None
    due_because: str | None
    rests_until: At | None
    rests_because: str | None
    resting_files: int
    commit_trouble: str | None
    refused: str | None
    #: since when the catalog does not have it
    gone_at: At | None
    looked_at: At | None
    looked: str | None
    observed_at: At | None
    observed: str | None
    waiting: int
    claimed: int
    merged: int
    last_commit_at: At | None
    next_commit_at: At | None
    #: what is to be said of it, most urgent first
    reasons: list[str]


class CompactionTablePage(Page):
    """Tables by name."""

    tables: list[CompactionTableDocument]


class RestingFileDocument(Document):
    """A data file that is not planned for now."""

    path: str
    rests: int
    until: At
    reason: str


class QueueOfTable(Document):
    """The queue of a table, and why it is that one."""

    queue: str
    because: str
    level: int
    workers: int
    slots: int


class TaskWaitDocument(Document):
    """A live task, and what it waits for."""

    task: str
    state: TaskState
    kind: TaskKind
    partition: str
    gain: str
    waiting_since: At
    #: how many of its queue precede it; null: it does not wait for a worker
    ahead: int | None
    #: no task that is offered later precedes it
    overtaken_until: At | None
    #: while the present workers go on; null: unknown
    claimed_by: At | None
    text: str


class QuarantinedTask(Document):
    """A task that was given up."""

    task: str
    partition: str
    at: At
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


class CompactionRecords(Page):
    """Commits, newest first."""

    records: list[CompactionRecordDocument]


class CompactionTableDetails(Document):
    """A table, and what its tasks wait for."""

    table: CompactionTableDocument
    resting_files: list[RestingFileDocument]
    queue: QueueOfTable
    live: int
    #: the first of the live tasks
    tasks: list[TaskWaitDocument]
    quarantined: list[QuarantinedTask]
    last_commit: CompactionRecordDocument | None


class TaskLevelForm(Specification):
    """The level of a merge task; more is earlier."""

    level: int = Field(strict=True, ge=-HIGHEST_LEVEL, le=HIGHEST_LEVEL, examples=[5])


class CompactionTaskDocument(Document):
    """A merge task: one group of files."""

    task: str
    table: str
    queue: str
    kind: TaskKind
    state: TaskState
    reason: str
    state_at: At
    partition: str
    files: int
    delete_files: int
    small_files: int
    bytes: int
    rows: int
    planned_because: str
    gain: str
    level: int
    waiting_since: At
    not_before: At | None
    attempts: int
    max_attempts: int
    snapshot_id: int | None
    ended_at: At | None


class CompactionTaskPage(Page):
    """Live tasks in the order of their claims, then those that ended, newest first."""

    tasks: list[CompactionTaskDocument]


class DataFileDocument(Document):
    """A data file that a task merges."""

    path: str
    bytes: int
    rows: int
    #: how many delete files apply to it
    deletes: int


class PlannedTaskDocument(Document):
    """A task that a plan has."""

    kind: TaskKind
    partition: str
    files: int
    delete_files: int
    small_files: int
    bytes: int
    gain: str
    because: str
    data_files: list[DataFileDocument]


class PlannedPartition(Document):
    """What a plan does with a partition, or why it leaves it alone."""

    partition: str
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
    left: str | None
    because: str
    notes: list[str]


class CompactionPlan(Document):
    """What would be merged in a table now; sizes in bytes."""

    table: str
    snapshot_id: int | None
    files: int
    bytes: int
    refused: str | None
    gain: str
    #: with the same files, another plan at the earliest then
    recheck_at: At | None
    tasks: list[PlannedTaskDocument]
    partitions: list[PlannedPartition]


class DeleteFileDocument(Document):
    """A delete file that applies to one of them."""

    path: str
    kind: str
    bytes: int
    rows: int


class OutputDocument(Document):
    """A data file that an attempt wrote."""

    path: str
    bytes: int
    rows: int


class AttemptDocument(Document):
    """A worker's attempt at a task."""

    attempt: str
    token: int
    worker: str
    state: AttemptState
    reason: str
    claimed_at: At
    expires_at: At
    ended_at: At | None
    directory: str
    location: str | None
    cleaned_at: At | None
    clean_trouble: str | None
    kept_because: str | None
    outputs: list[OutputDocument] | None
    rows_in: int | None
    rows_deleted: int | None
    rows_out: int | None
    way: str | None
    because: str | None


class TaskMoveDocument(Document):
    """A line of a task's history."""

    at: At
    # "from" is a word of Python.
    before: TaskState | None = Field(alias="from")
    state: TaskState
    reason: str
    attempt: str | None


class CompactionTaskDetails(CompactionTaskDocument):
    """A merge task: its files, attempts and history, and what it waits for."""

    ahead: int | None
    planned_from: int
    data_files: list[DataFileDocument]
    deletes: list[DeleteFileDocument]
    tried: list[AttemptDocument]
    history: list[TaskMoveDocument]
    #: null: the task ended
    explanation: TaskWaitDocument | None


class WokenTable(Document):
    """A table whose rest was ended."""

    table: str
    rested: Literal[True]
    #: how many of its files rested
    files: int


def of_table(described: dict[str, Any]) -> CompactionTableDocument:
    """Returns a table without what a command reads from the catalog."""
    known = CompactionTableDocument.model_fields
    return CompactionTableDocument.model_validate(
        {name: value for name, value in described.items() if name in known}
    )
