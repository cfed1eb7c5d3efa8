"""A submission, as the engine holds it, and its states."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class SubmissionState(StrEnum):
    """Where a submission stands."""

    #: to be looked at
    SUBMITTED = "submitted"
    #: waits for parents, or for a place in its batch; holds nothing
    WAITING = "waiting"
    #: another submission makes the task
    SHARING = "sharing"
    #: the task is ours; its run has not begun
    ACQUIRED = "acquired"
    #: its run has begun, and renews the lease itself
    RUNNING = "running"
    #: its run failed; it waits for the next attempt, and holds nothing
    RETRYING = "retrying"
    #: nothing had to be run, or another run made it
    FRESH = "fresh"
    #: its own run made it
    SUCCEEDED = "succeeded"
    #: the task is not to be run
    SKIPPED = "skipped"
    FAILED = "failed"
    #: its run fell silent
    LOST = "lost"
    #: somebody canceled its run
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        """Whether nothing will happen any more."""
        return self not in LIVE

    @property
    def owns(self) -> bool:
        """Whether it has the lease of the task."""
        return self in (SubmissionState.ACQUIRED, SubmissionState.RUNNING)


LIVE = frozenset(
    {
        SubmissionState.SUBMITTED,
        SubmissionState.WAITING,
        SubmissionState.SHARING,
        SubmissionState.ACQUIRED,
        SubmissionState.RUNNING,
        SubmissionState.RETRYING,
    }
)
#: the task was to be made, and was not
BAD = frozenset({SubmissionState.FAILED, SubmissionState.LOST, SubmissionState.CANCELED})


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """One row of ``arctic_task_submissions``."""

    id: str
    task: str
    cluster: str
    location: str
    batch: str | None
    group_id: str
    by: str
    wanted_by: str | None = None
    state: SubmissionState
    reason: str
    state_at: datetime
    required_since: datetime
    force: bool = False
    by_hand: bool = False
    submits_parents: bool = True
    submitted_at: datetime
    next_check_at: datetime | None = None
    deadline_at: datetime | None = None
    attempt: int = 0
    silences: int = 0
    token: int | None = None
    run_id: str | None = None
    shares: str | None = None
    ended_at: datetime | None = None

    @property
    def owner(self) -> str:
        """Under which name its present attempt has the task."""
        return owner_of(self.id, self.attempt)

    @property
    def run_key(self) -> str:
        """By which Dagster makes one run of its present attempt, however often it is asked."""
        return owner_of(self.id, self.attempt)

    def as_row(self) -> dict[str, Any]:
        """Its columns."""
        row = {name: getattr(self, name) for name in Submission.__slots__}
        row["state"] = self.state.value
        return row

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "Submission":
        """The submission that a row holds."""
        values = {name: row[name] for name in cls.__slots__}
        values["state"] = SubmissionState(values["state"])
        return cls(**values)


def owner_of(submission: str, attempt: int) -> str:
    """The owner that an attempt of a submission is."""
    return f"{submission}-{attempt}"
