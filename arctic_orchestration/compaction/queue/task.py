"""A task: one group of files of a table on its way to fewer files.

::

    planned ──▶ claimed ──▶ merged ──▶ committed
      │  ▲ ▲      │ │ │       ├──────▶ quarantined   its rows do not add up
      │  │ └──────┘ │ │       ├──────▶ superseded    the table has changed: planned anew
      │  │          │ │       └──────▶ canceled      by a person, as nobody could commit it
      │  │ released │ └──────────────▶ quarantined   the last attempt failed or was lost
      │  │  or lost │
      │  └─ failed ◀┘
      │     │   after the retry interval it is planned again
      ▼     ▼
    superseded | canceled

A *live* task (planned, claimed, merged, failed) keeps its files to itself. A *waiting* one
(planned, failed) may be replaced by a better plan; what a worker has, nobody takes away.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.lake.file_groups import FileGroup


class TaskState(StrEnum):
    """Where a task stands."""

    #: it waits for a worker
    PLANNED = "planned"
    #: an attempt of a worker has it
    CLAIMED = "claimed"
    #: its output files are written and wait for the committer
    MERGED = "merged"
    #: a snapshot of the table has its outputs in place of its files
    COMMITTED = "committed"
    #: an attempt failed; it is planned again after the retry interval
    FAILED = "failed"
    #: it failed as often as it may, or its outputs were wrong; a person should look
    QUARANTINED = "quarantined"
    #: a later plan took its place, or the table changed under it
    SUPERSEDED = "superseded"
    #: a person, or the end of its table, took it back
    CANCELED = "canceled"


class TaskKind(StrEnum):
    """What a task is for."""

    #: small files of a partition are put together
    MINOR = "minor"
    #: a partition is written anew, with all deletes applied
    MAJOR = "major"


LIVE = (TaskState.PLANNED, TaskState.CLAIMED, TaskState.MERGED, TaskState.FAILED)
WAITING = (TaskState.PLANNED, TaskState.FAILED)
ENDED = (
    TaskState.COMMITTED,
    TaskState.QUARANTINED,
    TaskState.SUPERSEDED,
    TaskState.CANCELED,
)

TRANSITIONS: dict[TaskState, set[TaskState]] = {
    TaskState.PLANNED: {TaskState.CLAIMED, TaskState.SUPERSEDED, TaskState.CANCELED},
    TaskState.CLAIMED: {
        TaskState.MERGED,
        TaskState.FAILED,
        TaskState.PLANNED,
        TaskState.QUARANTINED,
    },
    TaskState.MERGED: {
        TaskState.COMMITTED,
        TaskState.SUPERSEDED,
        TaskState.QUARANTINED,
        TaskState.CANCELED,
    },
    TaskState.FAILED: {TaskState.PLANNED, TaskState.SUPERSEDED, TaskState.CANCELED},
    TaskState.COMMITTED: set(),
    TaskState.QUARANTINED: set(),
    TaskState.SUPERSEDED: set(),
    TaskState.CANCELED: set(),
}


def check_move(task_id: str, state: TaskState, to: TaskState) -> None:
    """Lets a move pass that the table above has.

    Errors:
        TransitionRefused: any other; names the task and both states.
    """
    if to not in TRANSITIONS[state]:
        raise TransitionRefused(f"Compaction task {task_id} is {state} and cannot become {to}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedTask:
    """What a planner offers: a group of files, and why it is worth merging."""

    kind: TaskKind
    #: the partition as people read it: ``day=2013-01-01``; empty: the table has none
    partition: str
    group: FileGroup
    #: how many of its files are too small
    small_files: int
    #: what has to be read: data files and the deletes that apply to them
    bytes: int
    #: why it was planned, for people
    reason: str
    #: what comes of it, for people: ``12 files → 1``
    gain: str

    @property
    def paths(self) -> tuple[str, ...]:
        """Its data files."""
        return tuple(file.path for file in self.group.files)

    @property
    def digest(self) -> str:
        """The same for the same data files, whatever their order and deletes."""
        return digest_of(self.paths)


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One row of ``arctic_compaction_tasks``, without its group of files."""

    id: str
    #: the table by its name in the catalog: ``lake.flights``
    table: str
    queue: str
    kind: TaskKind
    state: TaskState
    #: why it is in this state
    reason: str
    state_at: datetime
    partition: str
    digest: str
    #: how many data files, and delete files that apply to them
    files: int
    delete_files: int
    small_files: int
    bytes: int
    rows: int
    #: why it was planned, and what comes of it
    planned_reason: str
    gain: str
    #: of its table
    level: int
    #: the number by which it is claimed, the smallest first: see ``ranking``
    rank: int
    offered_at: datetime
    #: its age, with that of the task whose place it took
    waiting_since: datetime
    #: of a failed task: when it is planned again
    not_before: datetime | None
    #: how many attempts began, without those that were given back
    attempts: int
    max_attempts: int
    retry_seconds: float
    #: of its last attempt
    token: int
    attempt_id: str | None
    #: the snapshot that has its outputs
    snapshot_id: int | None
    #: whether a person asked for it: plans by thresholds do not replace it while it waits
    forced: bool
    ended_at: datetime | None

    @property
    def is_live(self) -> bool:
        """Whether it keeps its files to itself."""
        return self.state in LIVE

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "Task":
        """The task that a row of ``arctic_compaction_tasks`` holds."""
        values = {name: row[COLUMN_OF.get(name, name)] for name in _FIELDS}
        return cls(
            **{**values, "kind": TaskKind(row["kind"]), "state": TaskState(row["state"])},
        )


#: where a field's column has another name
COLUMN_OF = {"table": "table_name"}
_FIELDS = tuple(field.name for field in fields(Task))
#: the columns that a :class:`Task` is made of
TASK_COLUMNS = tuple(COLUMN_OF.get(name, name) for name in _FIELDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """What happened to a task, and why."""

    at: datetime
    #: none: it was made
    before: TaskState | None
    state: TaskState
    reason: str
    attempt_id: str | None


def digest_of(paths: Iterable[str]) -> str:
    """A text that stands for a set of paths."""
    hashed = hashlib.sha256()
    for path in sorted(paths):
        hashed.update(path.encode())
        hashed.update(b"\0")
    return hashed.hexdigest()
