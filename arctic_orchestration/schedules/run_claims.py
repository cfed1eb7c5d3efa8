"""Decides which run of a job counts: the first one that begins.

A job can have more than one run in Dagster's storage. Run monitoring fails a run that is only slow,
the job's next attempt gets a run of its own, and then the slow run is enqueued after all. Or a
paused daemon creates a run after its lease on the request has expired. None of this can be excluded
before a run begins. So a run claims the job's row by compare-and-set after its process is up and
before its first step. One claim succeeds. A run without the claim ends before its first step, and
the job goes on with the run that has it.

A claim is final. A run that claimed its job and failed has begun, and no other attempt is made: the
job ends with it. A run that failed without a claim cannot begin once another attempt has.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.state.tables import is_active, jobs


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a claim was refused: another run has begun, or the job has ended."""

    begun_run_id: str | None
    state: JobState
    reason: str


def claim(
    tx: sa.Connection, job_id: str, run_id: str, *, instead_of: str | None = None
) -> Refusal | None:
    """Claims a job for ``run_id``; returns None on success.

    A job that was deleted with its schedule refuses no claim.

    Args:
        tx: a transaction that may write.
        job_id: the job.
        run_id: the run that is about to begin.
        instead_of: the run whose claim it takes over, as Dagster's retry of it.
    """
    begun = jobs.c.begun_run_id
    free = begun.is_(None) if instead_of is None else begun == instead_of
    taken = tx.execute(
        sa.update(jobs).where(jobs.c.id == job_id, is_active, free).values(begun_run_id=run_id)
    )
    if taken.rowcount:
        return None
    row = tx.execute(
        sa.select(begun, jobs.c.state, jobs.c.reason).where(jobs.c.id == job_id)
    ).one_or_none()
    if row is None:
        return None
    return Refusal(begun_run_id=row.begun_run_id, state=JobState(row.state), reason=row.reason)
