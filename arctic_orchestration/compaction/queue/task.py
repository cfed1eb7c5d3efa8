"""A task: one group of files of a table on its way to fewer files.

::

    planned ──▶ claimed ──▶ merged ──▶ committed
      │  ▲ ▲      │ │ │       ├──────▶ quarantined   its rows do not add up
      │  │ └──────┘ │ │       ├──────▶ superseded    the table changed: planned again
      │  │          │ │       └──────▶ canceled      by a person: no commit was possible
      │  │ released │ └──────────────▶ quarantined   the last attempt failed or was lost
      │  │  or lost │
      │  └─ failed ◀┘
      │     │   after the retry interval it is planned again
      ▼     ▼
    superseded | canceled

A *live* task (planned, claimed, merged, failed) owns its files exclusively. A *waiting* one
(planned, failed) may be replaced by a better plan; a claimed one may not.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from arctic_orchestration.compaction.queue.ranking import decoded_bytes
from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.lake.file_groups import FileGroup


class TaskState(StrEnum):
    """The state of a task."""

    #: it waits for a worker
    PLANNED = "planned"
    #: a worker's attempt has claimed it
    CLAIMED = "claimed"
    #: its outputs are written and wait for the committer
    MERGED = "merged"
    #: a snapshot of the table contains its outputs in place of its files
    COMMITTED = "committed"
    #: an attempt failed; it is planned again after the retry interval
    FAILED = "failed"
    #: it used up its attempts, or its outputs were wrong; a person should investigate
    QUARANTINED = "quarantined"
    #: a later plan replaced it, or the table changed under it
    SUPERSEDED = "superseded"
    #: a person, or the removal of its table, canceled it
    CANCELED = "canceled"


class TaskKind(StrEnum):
    """The purpose of a task."""

    #: merges small files of a partition
    MINOR = "minor"
    #: merges small files of a partition, and applies deletes
    MAJOR = "major"
    #: rewrites all files of a partition, in the table's present sort order
    FULL = "full"


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
    """Checks that the table above contains a move.

    Errors:
        TransitionRefused: it does not; names the task and both states.
    """
    if to not in TRANSITIONS[state]:
        raise TransitionRefused(f"Compaction task {task_id} is {state} and cannot become {to}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedTask:
    """A planner's offer: a group of files, and why it is worth merging."""

    kind: TaskKind
    #: the partition for people: ``day=2013-01-01``; empty: the table is unpartitioned
    partition: str
    group: FileGroup
    #: how many of its files are too small
    small_files: int
    #: the bytes to read: data files and the deletes that apply to them
    bytes: int
    #: why it was planned, for people
    reason: str
    #: its effect, for people: ``12 files → 1``
    gain: str

    @property
    def paths(self) -> tuple[str, ...]:
        """Its data files."""
        return tuple(file.path for file in self.group.files)

    @property
    def decoded_bytes(self) -> int:
        """The CPU time of its merge, in decoded bytes: see ``ranking``."""
        files = self.group.files
        return decoded_bytes(len(files), any(file.deletes for file in files), self.bytes)

    @property
    def digest(self) -> str:
        """A digest of its data files that ignores their order and deletes."""
        return digest_of(self.paths)


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One row of ``arctic_compaction_tasks``, without its group of files."""

    id: str
    #: the table's name in the catalog: ``lake.flights``
    table: str
    queue: str
    kind: TaskKind
    state: TaskState
    #: the reason of this state
    reason: str
    state_at: datetime
    partition: str
    digest: str
    #: the number of data files, and of delete files that apply to them
    files: int
    delete_files: int
    small_files: int
    bytes: int
    rows: int
    #: why it was planned, and its effect
    planned_reason: str
    gain: str
    #: the level of its table, unless a person gave it another one
    level: int
    #: the number that orders claims, smallest first: see ``ranking``
    rank: int
    #: how many tasks of its table were live or offered before it
    place: int
    offered_at: datetime
    #: since when it waits, inherited from the task that it replaced
    waiting_since: datetime
    #: when a failed task is planned again
    not_before: datetime | None
    #: the number of attempts, without released ones
    attempts: int
    max_attempts: int
    retry_seconds: float
    #: of its last attempt
    token: int
    attempt_id: str | None
    #: the snapshot with its outputs
    snapshot_id: int | None
    #: whether a person requested it: automatic plans do not replace it while it waits
    forced: bool
    ended_at: datetime | None

    @property
    def decoded_bytes(self) -> int:
        """The CPU time of its merge, in decoded bytes: see ``ranking``."""
        return decoded_bytes(self.files, self.delete_files > 0, self.bytes)

    @property
    def is_live(self) -> bool:
        """Whether it owns its files exclusively."""
        return self.state in LIVE

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "Task":
        """Returns the task in a row of ``arctic_compaction_tasks``."""
        values = {name: row[COLUMN_OF.get(name, name)] for name in _FIELDS}
        return cls(
            **{**values, "kind": TaskKind(row["kind"]), "state": TaskState(row["state"])},
        )


#: the columns that differ from their field's name
COLUMN_OF = {"table": "table_name"}
_FIELDS = tuple(field.name for field in fields(Task))
#: the columns of a :class:`Task`
TASK_COLUMNS = tuple(COLUMN_OF.get(name, name) for name in _FIELDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A transition of a task, and its reason."""

    at: datetime
    #: none: it was created
    before: TaskState | None
    state: TaskState
    reason: str
    attempt_id: str | None


def digest_of(paths: Iterable[str]) -> str:
    """Returns a digest of a set of paths."""
    hashed = hashlib.sha256()
    for path in sorted(paths):
        hashed.update(path.encode())
        hashed.update(b"\0")
    return hashed.hexdigest()
