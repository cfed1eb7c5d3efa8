"""The requests of workers, and the answers to them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from arctic_orchestration.compaction.queue.claim_order import WORKER_ENDS
from arctic_orchestration.compaction.queue.task import TaskKind, TaskState
from arctic_orchestration.compaction.views.documents import WorkerDocument
from arctic_orchestration.compaction.work.attempt import AttemptState
from arctic_orchestration.compaction.work.workers import Order
from arctic_orchestration.documents import Document
from arctic_orchestration.lake.file_groups import DeleteKind
from arctic_orchestration.specification import Specification

#: the longest wait of a claim, which is the worker's heartbeat meanwhile. A proxy that ends it
#: sooner does no harm: the claim is repeated.
LONGEST_WAIT_SECONDS = 100
_MOST_ATTEMPTS = 1_000
_MOST_OUTPUTS = 10_000
_LONGEST = 2**63 - 1


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("text of one line, without control characters")
    return text


Line = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_one_line)]
Reason = Annotated[str, Field(min_length=1, max_length=4_000)]
Number = Annotated[int, Field(ge=0, le=_LONGEST, strict=True)]
Positive = Annotated[int, Field(ge=1, le=_LONGEST, strict=True)]


class RegisterForm(Specification):
    """What a worker reports of itself."""

    name: Line
    #: names of compaction queues; empty: all
    queues: Annotated[tuple[Line, ...], Field(max_length=100)] = ()
    #: how many tasks it merges at once
    slots: Annotated[int, Field(ge=1, le=_MOST_ATTEMPTS, strict=True)] = 1
    #: how many bytes it may use
    memory: Positive | None = None
    version: Line | None = None
    labels: dict[Line, Line] = Field(default_factory=dict, max_length=50)


class ClaimForm(Specification):
    """A claim; a repeated one with the same key is the same claim."""

    key: Line
    wait_seconds: Annotated[float, Field(ge=0, le=LONGEST_WAIT_SECONDS)] = 0


class HeldAttempt(Specification):
    """An attempt that a worker has."""

    attempt: Line
    fencing_token: Number


class BeatForm(Specification):
    """The attempts that a worker has."""

    attempts: Annotated[tuple[HeldAttempt, ...], Field(max_length=_MOST_ATTEMPTS)] = ()


class OutputForm(Specification):
    """A file that a merge wrote; its size in bytes."""

    #: the directory of the attempt may have any characters
    path: Annotated[str, Field(min_length=1, max_length=4_096)]
    size: Positive
    rows: Positive


class MergedForm(Specification):
    """The result of a merge."""

    fencing_token: Number
    outputs: Annotated[tuple[OutputForm, ...], Field(max_length=_MOST_OUTPUTS)]
    rows_in: Number
    rows_deleted: Number = 0
    way: Literal["append", "decode"]
    #: why in that way, for people
    because: Reason = "the worker chose it"
    #: the table's sort order of the rows in the outputs; null: none
    sort_order_id: Annotated[int, Field(ge=0, lt=2**31, strict=True)] | None = None


class FailedForm(Specification):
    """Why a merge failed."""

    fencing_token: Number
    reason: Reason
    #: what would fail too: this task alone later on, or every task of its table
    retry: Literal["later", "not these files", "not this table"] = "later"


class ReleaseForm(Specification):
    """Why a task is put back."""

    fencing_token: Number
    reason: Reason = WORKER_ENDS


class Workers(Document):
    """The live workers that the caller may read, oldest first."""

    workers: list[WorkerDocument]


class Registration(Document):
    """A registered worker, and the times that it keeps."""

    worker: str
    order: Order
    lease_seconds: float
    #: a worker with attempts sends a heartbeat so often
    beat_seconds: float
    longest_wait_seconds: float


class DeleteFileDocument(Document):
    """A file with deletes, as Iceberg defines them; its size in bytes."""

    path: str
    kind: DeleteKind
    size: int
    rows: int
    sequence_number: int
    equality_ids: list[int]
    #: of a deletion vector: where its ``size`` bytes begin in the Puffin file, and its data file
    offset: int | None
    referenced: str | None


class DataFileDocument(Document):
    """A file to merge; its size in bytes."""

    path: str
    size: int
    rows: int
    sequence_number: int
    file_format: str
    sort_order_id: int | None
    #: format 3: the row id of its first row; null: its rows have none yet
    first_row_id: int | None
    #: places in the list of delete files
    deletes: list[int]


class GroupDocument(Document):
    """The files that are merged together."""

    snapshot_id: int
    sequence_number: int
    spec_id: int
    #: the values of the partition fields, in their order; empty: unknown
    partition: list[Any]
    deletes: list[DeleteFileDocument]
    files: list[DataFileDocument]


class TableDocument(Document):
    """A table, as far as a merge needs it."""

    name: str
    format_version: int
    metadata_location: str
    #: the present schema, in the JSON form of Iceberg's specification
    columns: dict[str, Any]
    #: whether rows are to be sorted, by the table's sort order or ``arctic.compaction.sort``, which
    #: the metadata contain
    is_sorted: bool
    #: properties of pyiceberg's FileIO: where its files are, and how they are opened
    io: dict[str, str]


class Assignment(Document):
    """A task that was claimed."""

    attempt: str
    fencing_token: int
    lease_seconds: float
    task: str
    kind: TaskKind
    partition: str
    gain: str
    table: TableDocument
    #: outputs are written below it; nothing else is
    directory: str
    #: the size of an output
    target_bytes: int
    group: GroupDocument


class ClaimAnswer(Document):
    """The answer to a claim."""

    order: Order
    #: the time until the answer; the lease in it is counted from then
    waited_seconds: float
    #: how long the worker waits before its next claim: the table of a task is away
    retry_seconds: float
    #: null: nothing was claimable
    assignment: Assignment | None


class AttemptAnswer(Document):
    """What a worker is to do with an attempt: after ``lost``, it must neither report nor write."""

    attempt: str
    answer: Literal["go on", "cancel", "lost"]


class BeatAnswer(Document):
    """The answer to a heartbeat."""

    order: Order
    lease_seconds: float
    attempts: list[AttemptAnswer]


class AttemptDocument(Document):
    """An attempt and its task, after a report."""

    attempt: str
    task: str
    state: AttemptState
    task_state: TaskState
    reason: str
