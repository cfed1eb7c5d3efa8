"""The steps of a job that is a task: each shows the run's token, the first tells of its beginning.

The job itself knows nothing of tasks: unlike a run that is ``begun``, it publishes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from arctic_orchestration.database.dialect import database_time
from arctic_orchestration.database.engine import Database
from arctic_orchestration.freshness import owning, submissions
from arctic_orchestration.freshness.outcomes import Outcomes
from arctic_orchestration.freshness.owning import LEASE, Time
from arctic_orchestration.freshness.running import token_problem
from arctic_orchestration.freshness.status import SINKS, StatusSink, Step
from arctic_orchestration.freshness.submission import SubmissionState


def step_begun(
    database: Database,
    *,
    submission: str,
    token: int,
    run_id: str,
    life: timedelta = LEASE,
    time: Time = database_time,
    sinks: Sequence[StatusSink] = SINKS,
) -> str | None:
    """A step of a run that was asked for shows its token, and renews the lease; once for each run
    it is told that this has begun.

    The run's success is published by the ticks of its location, which go on renewing its lease.

    Returns:
        why the run is not the task's any more; none: it is.

    Errors:
        DatabaseUnavailable: it did not answer.
    """
    outcomes = Outcomes(life=life, time=time, sinks=sinks)
    with database.begin() as tx:
        asked = submissions.by_id(tx, submission, lock=True)
        if (
            asked is not None
            and asked.state.owns
            and asked.token == token
            and owning.renew(
                tx, asked.task, asked.owner, token, life=life, time=time, run_id=run_id
            )
        ):
            if asked.state is not SubmissionState.RUNNING:
                outcomes.move(
                    tx, replace(asked, run_id=run_id), SubmissionState.RUNNING, Step.BEGUN,
                    f"run {run_id} has begun", time(tx), run_id=run_id, token=token,
                    deadline_at=None,
                )  # fmt: skip
            return None
    problem = token_problem(database, submission, token)
    return problem or f"token {token} of submission {submission} is over"
