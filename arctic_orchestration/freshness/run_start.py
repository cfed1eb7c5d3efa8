"""How a run of a task begins: with the token of its request, or started manually.

::

    with begun(database, task="delays", submission=id, token=7, run_id=run) as running:
        ...
        running.check()         # LeaseLost, once another one has taken over
        ...
        running.publish()       # Refused, when the token is not the task's any more

A run with an outdated token ends before it has touched anything. A run that has not begun waits for
an unavailable database. A job that is a task does not know about this: each of its steps verifies
the token, and it publishes nothing.
"""

import logging
import time as steady
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import sqlalchemy as sa

from arctic_orchestration.errors import DatabaseUnavailable, Refused
from arctic_orchestration.freshness import definitions, ownership, submissions
from arctic_orchestration.freshness.owned_run import Running, token_problem
from arctic_orchestration.freshness.ownership import Acquired, Owner
from arctic_orchestration.freshness.run_outcomes import Outcomes
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import Submission, SubmissionState, owner_of
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.leases import Lease
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import task_submissions

_log = logging.getLogger("arctic.freshness")

#: how long a run that has not begun waits for the database
_BEGINS_FOR = timedelta(minutes=10)
_RETRY_SECONDS = 1.0

_Answer = TypeVar("_Answer")


@contextmanager
def begun(
    database: Database,
    *,
    task: str,
    submission: str,
    token: int,
    run_id: str,
    outcomes: Outcomes = Outcomes(),
) -> Iterator[Running]:
    """Begins a requested run; renews its lease while the block runs.

    Args:
        database: the state database.
        task: the task's name.
        submission: from the run's tags.
        token: from the run's tags.
        run_id: Dagster's run id.
        outcomes: with the duration of the lease, and the source of the time.

    Errors:
        Refused: the token is no longer the task's. Nothing was touched.
        DatabaseUnavailable: it did not answer within ten minutes.
    """
    begin = partial(_begin, database, outcomes, task, submission, token, run_id)
    yield from _renewed(database, outcomes, begin)


@contextmanager
def acquired_manually(
    database: Database,
    *,
    task: str,
    cluster: str,
    location: str,
    run_id: str,
    outcomes: Outcomes = Outcomes(),
) -> Iterator[Running]:
    """Acquires a task, however fresh it is, for a run that a person started in Dagster.

    Errors:
        Refused: another run owns the task; the message names it.
        DatabaseUnavailable: it did not answer within ten minutes.
    """
    holder = Owner(cluster=cluster, location=location, run_id=run_id)
    yield from _renewed(database, outcomes, partial(_acquire, database, outcomes, task, holder))


def _renewed(
    database: Database, outcomes: Outcomes, begin: Callable[[], Submission]
) -> Iterator[Running]:
    """Takes the lease as soon as the database answers, and renews it while the block runs."""

    def timed() -> tuple[float, Submission]:
        return steady.monotonic(), begin()

    requested_at, owning = insist(timed)
    assert owning.token is not None
    lease = Lease.taken(
        owner=owning.owner, token=owning.token, requested_at=requested_at, life=outcomes.life
    )
    running = Running(database=database, submission=owning, lease=lease, outcomes=outcomes)
    with running.renewal:
        try:
            yield running
        except BaseException as error:
            if running.published_at is None:
                running.failed(error)
            raise


def _begin(
    database: Database, outcomes: Outcomes, task: str, id: str, token: int, run_id: str
) -> Submission:
    with database.begin() as tx:
        submission = submissions.by_id(tx, id, lock=True)
        if submission is None or submission.task != task:
            raise Refused(f"task {task} has no submission {id}: nothing was begun")
        now, problem = outcomes.time(tx), None
        if not submission.state.owns or submission.token != token or submission.by_hand:
            problem = (
                f"task {task}: token {token} is over: its submission {id} is "
                f"{submission.state.value} ({submission.reason})"
            )
        elif _has_another_run(submission, run_id):
            problem = f"task {task}: token {token} is used by run {submission.run_id}"
        elif not outcomes.renew(tx, submission, run_id=run_id, begun_at=now):
            row = ownership.row_of(tx, task)
            problem = ownership.why_not(row, submission.owner, token, now)
        if problem is None:
            return _with_run(tx, outcomes, submission, token, run_id, now)
        outcomes.refused(tx, submission, token, f"run {run_id} may not begin: {problem}")
    raise Refused(problem)


def _has_another_run(submission: Submission, run_id: str) -> bool:
    """Returns whether its run is another one, as after a re-execution with the same tags."""
    return submission.state is SubmissionState.RUNNING and submission.run_id != run_id


def _with_run(
    tx: sa.Connection,
    outcomes: Outcomes,
    submission: Submission,
    token: int,
    run_id: str,
    now: datetime,
) -> Submission:
    """Records once that the run of the submission has begun."""
    mine, text = replace(submission, run_id=run_id), f"run {run_id} has begun"
    if submission.state is not SubmissionState.RUNNING:
        outcomes.move(
            tx, mine, SubmissionState.RUNNING, Step.BEGUN, text, now,
            run_id=run_id, token=token, deadline_at=None,
        )  # fmt: skip
    elif submission.reason != text:
        # Dagster retries its step: the exception is over, and it renews its lease again.
        submissions.update(tx, submission.id, reason=text, deadline_at=None)
    return mine


def _acquire(database: Database, outcomes: Outcomes, task: str, holder: Owner) -> Submission:
    with database.begin() as tx:
        now = outcomes.time(tx)
        id = new_id(now)
        spec = definitions.spec_of(tx, task, holder.cluster, holder.location)
        found = ownership.acquire(
            tx, task, owner_of(id, 1), replace(holder, submission=id), since=now, force=True,
            life=outcomes.life, time=outcomes.time,
        )  # fmt: skip
        if not isinstance(found, Acquired):
            row = found.row
            # Not locked: the statement above may hold the task's row, and submissions come first.
            earlier = submissions.by_id(tx, row.submission or "")
            if (
                earlier is not None
                and earlier.by_hand
                and earlier.run_id == holder.run_id
                and outcomes.renew(tx, earlier)
            ):
                # A step that is retried in its run, or an answer that was lost.
                return earlier
            raise Refused(
                f"task {task} is being made by {row.holder} (submission {row.submission}, token "
                f"{row.token}): two runs of it at once could publish each other's leftovers"
            )
        text = f"run {holder.run_id} was started in Dagster"
        submission = Submission(
            id=id, task=task, cluster=holder.cluster, location=holder.location,
            batch=spec.batch if spec else None, group_id=id, by=f"run {holder.run_id}",
            state=SubmissionState.RUNNING, reason=text, state_at=now, required_since=now,
            force=True, by_hand=True, submitted_at=now, attempt=1, token=found.token,
            run_id=holder.run_id,
        )  # fmt: skip
        tx.execute(sa.insert(task_submissions).values(submission.as_row()))
        outcomes.renew(tx, submission, begun_at=now)
        outcomes.report(tx, submission, Step.BEGUN, text, now, {"token": found.token})
        return submission


def step_begun(
    database: Database,
    *,
    submission: str,
    token: int,
    run_id: str,
    outcomes: Outcomes = Outcomes(),
) -> str | None:
    """Verifies the token when a step of a requested run begins, and renews the lease.

    The first such step also records that the run has begun. The ticks of the location publish the
    run's success, and continue to renew its lease.

    Returns:
        why the run is no longer the task's; none: it is.

    Errors:
        DatabaseUnavailable: it did not answer.
    """
    with database.begin() as tx:
        owning = submissions.by_id(tx, submission, lock=True)
        if owning is not None and owning.state.owns and owning.token == token:
            if _has_another_run(owning, run_id):
                return f"task {owning.task}: token {token} is used by run {owning.run_id}"
            if outcomes.renew(tx, owning, run_id=run_id):
                _with_run(tx, outcomes, owning, token, run_id, outcomes.time(tx))
                return None
    problem = token_problem(database, submission, token)
    return problem or f"token {token} of submission {submission} is over"


def insist(begin: Callable[[], _Answer]) -> _Answer:
    """Retries ``begin`` until the database answers.

    Errors:
        DatabaseUnavailable: it did not answer within ten minutes.
    """
    give_up_at = steady.monotonic() + _BEGINS_FOR.total_seconds()
    while True:
        try:
            return begin()
        except DatabaseUnavailable as error:
            if steady.monotonic() > give_up_at:
                raise
            _log.warning("the run begins as soon as the state database answers: %s", error)
            steady.sleep(_RETRY_SECONDS)
