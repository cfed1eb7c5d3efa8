"""A job: one firing of a schedule on its way to a run.

::

    waiting_trigger ──▶ waiting_constraints ──▶ launching ──▶ launched ──▶ succeeded
          │                     │                 │  ▲  │         ├──────▶ failed
          └──────▶ discarded ◀──┘                 └──┘  │         └──────▶ canceled
                       ▲                      attempts  ├─▶ succeeded | failed | canceled
                       └─────────────── shadowed ───────┘

``launching`` and ``launched`` hold the resources of the target. A job is ``launching`` from its
admission until its run is seen in Dagster's storage. Until then its request belongs to one tick of
Dagster's sensor at a time, always under the same run key. A job may end from ``launching`` when the
end of a short run is seen first. One that is shadowed holds nothing, and is discarded where its run
would be requested.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from pydantic_core import from_json, to_json

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules.triggers import Arrivals


class JobState(StrEnum):
    """The state of a job."""

    #: it has events, and its trigger needs more
    WAITING_TRIGGER = "waiting_trigger"
    #: its trigger is satisfied, and a constraint holds it
    WAITING_CONSTRAINTS = "waiting_constraints"
    #: it was admitted, and its run is not seen yet
    LAUNCHING = "launching"
    #: its run was seen in Dagster's storage
    LAUNCHED = "launched"
    #: its run succeeded
    SUCCEEDED = "succeeded"
    #: its run failed, or could not be started
    FAILED = "failed"
    #: a person canceled its run, or the job before its run was seen
    CANCELED = "canceled"
    #: it ended before it was launched; the reason says why
    DISCARDED = "discarded"


WAITING = (JobState.WAITING_TRIGGER, JobState.WAITING_CONSTRAINTS)
ACTIVE = (JobState.LAUNCHING, JobState.LAUNCHED)
ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED, JobState.DISCARDED)

#: Values of :attr:`Job.forced`: why a job is launched past its constraints.
TIMED_OUT = "timed out"
LAUNCHED_MANUALLY = "launched manually"

#: the scope of the job that keeps common events for every partition of the target
COMMON: Final = "*"

_RUN_ENDS = {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED}

TRANSITIONS: dict[JobState, set[JobState]] = {
    JobState.WAITING_TRIGGER: {JobState.WAITING_CONSTRAINTS, JobState.DISCARDED},
    JobState.WAITING_CONSTRAINTS: {JobState.LAUNCHING, JobState.FAILED, JobState.DISCARDED},
    JobState.LAUNCHING: {
        JobState.LAUNCHING,
        JobState.LAUNCHED,
        JobState.DISCARDED,
        *_RUN_ENDS,
    },
    JobState.LAUNCHED: {JobState.LAUNCHING, *_RUN_ENDS},
    JobState.SUCCEEDED: set(),
    JobState.FAILED: set(),
    JobState.CANCELED: set(),
    JobState.DISCARDED: set(),
}


def check_move(state: JobState, to: JobState) -> None:
    """Accepts a move of the table above.

    Errors:
        TransitionRefused: the table has no such move.
    """
    if to not in TRANSITIONS[state]:
        raise TransitionRefused(f"A job that is {state} cannot become {to}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One row of the job queue."""

    id: str
    location_id: int
    schedule_id: str
    schedule_version: int
    state: JobState
    reason: str
    waiting_for: str | None
    arrivals: tuple[Arrivals, ...]
    priority: int
    created_at: datetime
    scope: str | None = None
    partition_start: str | None = None
    partition_end: str | None = None
    satisfied_at: datetime | None = None
    next_check_at: datetime | None = None
    deadline_at: datetime | None = None
    held_by: str | None = None
    verdicts: str | None = None
    launch: str | None = None
    attempt: int = 0
    requested_at: datetime | None = None
    requests: int = 0
    requested_tick: str | None = None
    request_expires_at: datetime | None = None
    run_id: str | None = None
    begun_run_id: str | None = None
    ended_at: datetime | None = None
    forced: str | None = None
    #: a stable key for what holds it; None: its state says it
    cause: str | None = None

    @property
    def partition(self) -> str | None:
        """Its target partition, or group; None: it has several, or none."""
        if self.partition_start is not None:
            return self.partition_start if self.partition_start == self.partition_end else None
        return None if self.scope == COMMON else self.scope

    @property
    def run_key(self) -> str:
        """The run key of this attempt; Dagster creates only one run for a key."""
        return f"{self.id}-{self.attempt}"

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Job":
        """Reads a job from a row of ``arctic_jobs``; arrivals that cannot be read are left out."""
        try:
            arrivals = tuple(map(Arrivals.from_json, from_json(row["arrivals"])))
        except (TypeError, ValueError):
            arrivals = ()
        return cls(**{**row, "state": JobState(row["state"]), "arrivals": arrivals})

    def to_row(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Returns the row of ``arctic_jobs`` for this job, or some of its columns."""
        row = {name: getattr(self, name) for name in names or self.__slots__}
        if "arrivals" in row:
            row["arrivals"] = arrivals_to_text(self.arrivals)
        return row


@dataclass(frozen=True, kw_only=True, slots=True)
class JobMove:
    """A move of a job to another state, or a new reason for which it waits."""

    #: the job after the move
    job: Job
    #: the state before the move
    before: JobState
    reason: str

    @property
    def is_launch(self) -> bool:
        """Whether the run of a launch request was seen."""
        return self.before is JobState.LAUNCHING and self.job.state is not JobState.LAUNCHING


def arrivals_to_text(arrivals: Sequence[Arrivals]) -> str:
    """Returns the arrivals of a job's leaves, in the form of its row."""
    return to_json([leaf.to_json() for leaf in arrivals]).decode()
