"""JSON documents of merge tasks: their files, attempts and history."""

from collections.abc import Sequence

from pydantic import Field

from arctic_orchestration.compaction.queue.task import Move, Task, TaskKind, TaskState
from arctic_orchestration.compaction.work.attempt import Attempt, AttemptState
from arctic_orchestration.documents import At, Count, Document, source
from arctic_orchestration.lake.file_groups import FileGroup


class CompactionTaskDocument(Document):
    """A merge task: one group of files."""

    task: str = source("id")
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
    planned_because: str = source("planned_reason")
    gain: str
    level: int
    waiting_since: At
    not_before: At | None
    attempts: int
    max_attempts: int
    snapshot_id: int | None
    ended_at: At | None


class DataFileDocument(Document):
    """A data file that a task merges."""

    path: str
    bytes: int = source("size")
    rows: int
    #: how many delete files apply to it
    deletes: Count


class DeleteFileDocument(Document):
    """A delete file that applies to one of them."""

    path: str
    kind: str
    bytes: int = source("size")
    rows: int


class OutputDocument(Document):
    """A data file that an attempt wrote."""

    path: str
    bytes: int = source("size")
    rows: int


class AttemptDocument(Document):
    """A worker's attempt at a task."""

    attempt: str = source("id")
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
    kept_because: str | None = source("kept_reason")
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
    attempt: str | None = source("attempt_id")


class CompactionTaskDetails(CompactionTaskDocument):
    """A merge task: its files, attempts and history."""

    ahead: int | None
    planned_from: int
    data_files: list[DataFileDocument]
    deletes: list[DeleteFileDocument]
    tried: list[AttemptDocument]
    history: list[TaskMoveDocument]


def task_details(
    task: Task,
    group: FileGroup,
    attempts: Sequence[Attempt],
    history: Sequence[Move],
    *,
    ahead: int | None,
) -> CompactionTaskDetails:
    """Returns a task with its files, attempts and history."""
    return CompactionTaskDetails.from_record(
        task,
        ahead=ahead,
        planned_from=group.snapshot_id,
        data_files=group.files,
        deletes=group.delete_files,
        tried=attempts,
        history=history,
    )
