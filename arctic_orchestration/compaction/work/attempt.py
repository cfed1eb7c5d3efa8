"""The claim of a worker, and the record of its attempt."""

import json
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from arctic_orchestration.compaction.queue.task import Task
from arctic_orchestration.lake.file_groups import FileGroup


class AttemptState(StrEnum):
    """The state of an attempt."""

    #: a worker has it, as far as is known
    LIVE = "live"
    #: its outputs wait for the committer
    MERGED = "merged"
    #: a snapshot contains its outputs
    COMMITTED = "committed"
    #: the worker reported a failure
    FAILED = "failed"
    #: its lease expired
    LOST = "lost"
    #: the worker released it
    RELEASED = "released"
    #: it was merged, and its outputs were wrong or came too late
    DROPPED = "dropped"


def directory_name(attempt_id: str) -> str:
    """Returns the last component of the path of an attempt's directory."""
    return f"compaction-{attempt_id}"


class Output(Protocol):
    """An output file of a merge; size in bytes."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def rows(self) -> int: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class MergedFile:
    """An output file of a merge, as stored in an attempt's row; size in bytes."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A worker's right to a task."""

    #: its present state: claimed
    task: Task
    group: FileGroup
    attempt_id: str
    token: int
    #: by the database's time; how long that is from now is ``expires_at - claimed_at``
    claimed_at: datetime
    expires_at: datetime
    #: the last component of its directory's path, unique to this attempt
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
    #: the whole path of its directory; none: it has not reported one
    location: str | None
    claimed_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    #: the reported values; none until then
    outputs: tuple[MergedFile, ...] | None
    rows_in: int | None
    rows_deleted: int | None
    rows_out: int | None
    way: str | None
    because: str | None
    #: the order of the rows in the outputs; none: no order of the table
    sort_order_id: int | None
    #: since when its outputs are orphaned; none: they are needed, or in a snapshot
    over_at: datetime | None
    cleaned_at: datetime | None
    #: when the cleaner retries, and why the last removal of the directory failed
    clean_after: datetime | None
    clean_trouble: str | None
    #: why the directory stays for good
    kept_reason: str | None

    @classmethod
    def from_row(cls, row: Any) -> "Attempt":
        """Returns the attempt in a row."""
        values = {field.name: getattr(row, field.name) for field in fields(cls)}
        if values["outputs"] is not None:
            values["outputs"] = tuple(MergedFile(**one) for one in json.loads(values["outputs"]))
        return cls(**{**values, "state": AttemptState(values["state"])})
