"""Which run of a job counts: the first one that begins.

A job can have more than one run in Dagster's storage. Run monitoring fails a run that is only
slow, the job's next attempt gets a run of its own, and then the slow run is enqueued after all. Or
a paused daemon creates a run after its lease on the request is over. None of this can be excluded
before a run begins, so it is decided there: between "the process is up" and its first step, a run
claims the job's row by compare-and-set. One claim succeeds. A run that did not get it ends before
its first step, and the job goes on with the run that did.

A claim is final. A run that claimed its job and failed has begun, and no other attempt is made:
the job ends with it. A run that failed without a claim never begins later than another attempt.
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
    """Makes ``run_id`` the run that counts for its job; none: it does.

    A job that was deleted with its schedule refuses nothing.

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
