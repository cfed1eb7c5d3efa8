"""A submission, as the engine holds it, and its states."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class SubmissionState(StrEnum):
    """The state of a submission."""

    #: to be checked
    SUBMITTED = "submitted"
    #: waits for parents, or for a slot in its batch; holds nothing
    WAITING = "waiting"
    #: another submission runs the task
    SHARING = "sharing"
    #: it owns the task; its run has not begun
    ACQUIRED = "acquired"
    #: its run has begun, and renews the lease itself
    RUNNING = "running"
    #: its run failed; it waits for the next attempt, and holds nothing
    RETRYING = "retrying"
    #: no run was needed, or another submission's run succeeded
    FRESH = "fresh"
    #: its own run succeeded
    SUCCEEDED = "succeeded"
    #: the task is skipped
    SKIPPED = "skipped"
    FAILED = "failed"
    #: its run fell silent
    LOST = "lost"
    #: its run was canceled
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self not in LIVE

    @property
    def owns(self) -> bool:
        """Whether it owns the lease of the task."""
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
#: the task should have run, and did not succeed
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
        """The owner name of its present attempt."""
        return owner_of(self.id, self.attempt)

    @property
    def run_key(self) -> str:
        """The run key of its present attempt, for which Dagster creates only one run."""
        return owner_of(self.id, self.attempt)

    def as_row(self) -> dict[str, Any]:
        """Returns its columns."""
        row = {name: getattr(self, name) for name in Submission.__slots__}
        row["state"] = self.state.value
        return row

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> "Submission":
        """Returns the submission in a row."""
        values = {name: row[name] for name in cls.__slots__}
        values["state"] = SubmissionState(values["state"])
        return cls(**values)


def owner_of(submission: str, attempt: int) -> str:
    """Returns the owner name of an attempt of a submission."""
    return f"{submission}-{attempt}"
