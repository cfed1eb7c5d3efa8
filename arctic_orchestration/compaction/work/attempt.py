"""What a worker gets with a claim, and what is kept of it."""

import json
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from arctic_orchestration.compaction.queue.task import Task
from arctic_orchestration.lake.file_groups import FileGroup


class AttemptState(StrEnum):
    """What became of an attempt."""

    #: a worker has it, or has had it and is not known to be gone
    LIVE = "live"
    #: its outputs wait for the committer
    MERGED = "merged"
    #: a snapshot has its outputs
    COMMITTED = "committed"
    #: the worker said that it failed
    FAILED = "failed"
    #: its lease was over
    LOST = "lost"
    #: the worker gave it back
    RELEASED = "released"
    #: it was merged, and its outputs were wrong or came too late
    DROPPED = "dropped"


class Output(Protocol):
    """A file that a merge wrote; size in bytes."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def rows(self) -> int: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class MergedFile:
    """A file that a merge wrote, as an attempt's row holds it; size in bytes."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A worker's right to a task."""

    #: as it is now: claimed
    task: Task
    group: FileGroup
    attempt_id: str
    token: int
    #: by the database's time; how long that is from now is ``expires_at - claimed_at``
    claimed_at: datetime
    expires_at: datetime
    #: the last part of the path of the directory that it writes to, of no other attempt
    directory: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One row of ``arctic_compaction_attempts``."""

    id: str
    task_id: str
    table_name: str
    worker: str
    token: int
    state: AttemptState
    reason: str
    directory: str
    #: the whole path of its directory; none: it has not said that it writes
    location: str | None
    claimed_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    #: what was reported; none until it was
    outputs: tuple[MergedFile, ...] | None
    rows_in: int | None
    rows_deleted: int | None
    rows_out: int | None
    way: str | None
    because: str | None
    #: the order that the rows of the outputs have; none: no order of the table's
    sort_order_id: int | None
    #: since when nobody counts on what it wrote; none: somebody does, or a snapshot has it
    over_at: datetime | None
    cleaned_at: datetime | None
    #: when the cleaner tries again, and what kept it from removing the directory
    clean_after: datetime | None
    clean_trouble: str | None
    #: why the directory stays for good
    kept_reason: str | None

    @classmethod
    def from_row(cls, row: Any) -> "Attempt":
        """The attempt that a row holds."""
        values = {field.name: getattr(row, field.name) for field in fields(cls)}
        if values["outputs"] is not None:
            values["outputs"] = tuple(MergedFile(**one) for one in json.loads(values["outputs"]))
        return cls(**{**values, "state": AttemptState(values["state"])})
