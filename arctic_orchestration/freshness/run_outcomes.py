"""How a run of a task ends: published, retried, failed, lost; and which submissions that wakes.

Called by the run itself, and by the ticks of its location for runs that cannot report any more. The
caller locks the submission first, then the task. Waking others is a separate transaction
afterwards: it locks submissions of many tasks, which is not allowed with a locked task.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import Refused
from arctic_orchestration.freshness import ownership, slots, submissions
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.ownership import LEASE, Time
from arctic_orchestration.freshness.status import SINKS, StatusEvent, StatusSink, Step, report
from arctic_orchestration.freshness.submission import Submission, SubmissionState, owner_of
from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.state import dialect
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import is_live, task_submissions, task_waits

#: how often a task is run again after its run fell silent or did not start, whatever its retries
SILENCES = 3
#: the pause after the first run that did not start; each further pause is twice as long
FIRST_START_RETRY = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Records the outcomes of runs.

    Args:
        life: the duration of a lease.
        time: the source of the time.
        sinks: the sinks of steps.
    """

    life: timedelta = LEASE
    time: Time = database_time
    sinks: Sequence[StatusSink] = SINKS

    def renew(
        self, tx: sa.Connection, submission: Submission, **seen: str | datetime | None
    ) -> bool:
        """Renews the lease of the present attempt, see ``ownership.renew``."""
        assert submission.token is not None
        return ownership.renew(
            tx, submission.task, submission.owner, submission.token, life=self.life,
            time=self.time, **seen,
        )  # fmt: skip

    def published(
        self,
        tx: sa.Connection,
        submission: Submission,
        *,
        token: int,
        owner: str,
        outdated: Callable[[datetime], bool] = lambda _: False,
        seen_at: datetime | None = None,
    ) -> datetime:
        """Publishes a success, see ``ownership.publish``; the submission is locked.

        Errors:
            Refused: another owner has taken over the task, or the lease has expired, or the
                submission has ended. Nothing was written.
        """
        if not submission.state.owns:
            text = (
                f"its submission {submission.id} is {submission.state.value}: {submission.reason}"
            )
            raise Refused(f"task {submission.task}: token {token} is over: {text}")
        at = ownership.publish(
            tx, submission.task, owner, token, outdated=outdated, seen_at=seen_at, time=self.time
        )
        run = f"run {submission.run_id}" if submission.run_id else "its run"
        self.move(
            tx,
            submission,
            SubmissionState.SUCCEEDED,
            Step.PUBLISHED,
            f"{run} made it",
            at,
            token=token,
        )
        return at

    def refused(self, tx: sa.Connection, submission: Submission, token: int, reason: str) -> None:
        """Records that a run published nothing because it no longer owned the task."""
        self.report(tx, submission, Step.REFUSED, reason, self.time(tx), {"token": token})

    def failed(
        self, tx: sa.Connection, submission: Submission, reason: str, spec: TaskSpec | None = None
    ) -> SubmissionState:
        """Records a failed run; the submission is locked, and owns the task.

        Args:
            tx: the transaction.
            submission: the submission.
            reason: why the run failed.
            spec: the declaration with the retries; none: the run is not retried.

        Returns:
            the new state of the submission.
        """
        # Runs that fell silent or did not start are counted separately.
        failures = submission.attempt - submission.silences
        if spec is not None and failures <= spec.retries:
            text = f"attempt {failures} of {spec.retries + 1}: {reason}; again"
            state = self._retry(tx, submission, text, spec.retry_delay)
            if state is not None:
                return state
        self._end(tx, submission, SubmissionState.FAILED, Step.FAILED, reason)
        return SubmissionState.FAILED

    def not_started(
        self, tx: sa.Connection, submission: Submission, reason: str
    ) -> SubmissionState:
        """Records a run that failed before it started; the submission is locked, and owns the task.

        The task is not to blame: its run is requested again up to ``SILENCES`` times, whatever its
        retries.

        Returns:
            the new state of the submission.
        """
        silences = submission.silences + 1
        if silences <= SILENCES:
            text = f"{reason}; again, {silences} of {SILENCES} times,"
            pause = FIRST_START_RETRY * 2 ** (silences - 1)
            state = self._retry(tx, submission, text, pause, silences=silences)
            if state is not None:
                return state
        reason += f"; it was requested again {SILENCES} times"
        self._end(tx, submission, SubmissionState.FAILED, Step.NOT_STARTED, reason)
        return SubmissionState.FAILED

    def refused_by_dagster(self, tx: sa.Connection, submission: Submission, problem: str) -> None:
        """Records that Dagster refuses its run; the submission is locked, and owns the task."""
        reason = f"Dagster refuses its run: {problem}"
        self._end(tx, submission, SubmissionState.FAILED, Step.NOT_STARTED, reason)

    def given_up(self, tx: sa.Connection, submission: Submission, reason: str) -> None:
        """Ends a submission without a retry; the submission is locked.

        A run that will not report any more is lost: submissions that share it run the task instead.
        """
        state = SubmissionState.LOST if submission.state.owns else SubmissionState.FAILED
        self._end(tx, submission, state, Step.FAILED, reason)

    def canceled(self, tx: sa.Connection, submission: Submission, reason: str) -> None:
        """Records a canceled run, which is not retried; the submission is locked."""
        self._end(tx, submission, SubmissionState.CANCELED, Step.CANCELED, reason)

    def silent(self, tx: sa.Connection, submission: Submission) -> bool:
        """Records a silent run: its lease has expired or was replaced; the submission is locked.

        The task is not to blame: without another owner it runs again up to ``SILENCES`` times,
        whatever its retries.

        Returns:
            whether it continues: with another run, or by sharing the run of the new owner.
        """
        row = ownership.row_of(tx, submission.task, lock=True)
        now = self.time(tx)
        run = f"run {submission.run_id}" if submission.run_id else "its run"
        if row.owner != submission.owner or row.token != submission.token:
            by = f"{row.holder} has taken the task over" if row.is_held(now) else "it was replaced"
            text = f"{run} fell silent, and {by}"
            if submission.by_hand:
                # Only that one run was requested.
                self.move(tx, submission, SubmissionState.LOST, Step.LOST, text, now)
                return False
            self.report(tx, submission, Step.LOST, text, now, {"token": submission.token})
            submissions.update(
                tx, submission.id, state=SubmissionState.SUBMITTED.value, reason=text, state_at=now,
                next_check_at=now, token=None, run_id=None, deadline_at=None,
                silences=submission.silences + 1,
            )  # fmt: skip
            return True
        since = f" until {format_moment(row.expires_at)}" if row.expires_at else ""
        text = f"{run} was silent{since}, when its lease was over"
        silences = submission.silences + 1
        if silences <= SILENCES:
            retry = f"{text}; again, {silences} of {SILENCES} times"
            if self._retry_now(tx, submission, retry, silences=silences):
                return True
        elif not submission.by_hand:
            text += f"; it was retried {SILENCES} times"
        # Nothing else will run it: notify people, as of any other failure.
        self._end(tx, submission, SubmissionState.LOST, Step.FAILED, text)
        return False

    def move(
        self,
        tx: sa.Connection,
        submission: Submission,
        state: SubmissionState,
        step: Step,
        reason: str,
        now: datetime,
        *,
        recheck_at: datetime | None = None,
        details: dict[str, Any] | None = None,
        report: bool = True,
        **values: Any,
    ) -> None:
        """Moves a locked submission to a state in which it waits for nothing."""
        values.update(
            state=state.value, reason=reason, state_at=now, next_check_at=recheck_at,
            ended_at=now if state.ended else None,
        )  # fmt: skip
        submissions.update(tx, submission.id, **values)
        if submission.state is SubmissionState.WAITING and state is not SubmissionState.WAITING:
            tx.execute(sa.delete(task_waits).where(task_waits.c.submission == submission.id))
        if report:
            owner: dict[str, Any] = {
                name: values[name] for name in ("token", "attempt") if name in values
            }
            self.report(tx, submission, step, reason, now, {**owner, **(details or {})})

    def report(
        self,
        tx: sa.Connection,
        submission: Submission,
        step: Step,
        reason: str,
        now: datetime,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Reports a step of a submission."""
        run = {"run_id": submission.run_id} if submission.run_id else {}
        event = StatusEvent(
            task=submission.task, step=step, reason=reason, at=now, cluster=submission.cluster,
            location=submission.location, submission=submission.id,
            details={**run, **(details or {})},
        )  # fmt: skip
        report(tx, [event], self.sinks)

    def _retry_now(
        self, tx: sa.Connection, submission: Submission, reason: str, **values: Any
    ) -> bool:
        if submission.by_hand or submission.token is None:
            return False
        attempt = submission.attempt + 1
        token = ownership.renew_with_new_token(
            tx, submission.task, submission.owner, submission.token,
            new_owner=owner_of(submission.id, attempt), life=self.life, time=self.time,
        )  # fmt: skip
        if token is None:
            return False
        self.move(
            tx, submission, SubmissionState.ACQUIRED, Step.AGAIN, reason, self.time(tx),
            attempt=attempt, token=token, run_id=None, deadline_at=None, **values,
        )  # fmt: skip
        return True

    def _retry(
        self,
        tx: sa.Connection,
        submission: Submission,
        reason: str,
        pause: timedelta,
        **values: Any,
    ) -> SubmissionState | None:
        """Returns the state after a retry, now or after a pause; none: no attempt is left."""
        if not pause:
            done = self._retry_now(tx, submission, reason, **values)
            return SubmissionState.ACQUIRED if done else None
        if submission.by_hand or submission.token is None:
            return None
        # Submissions that wait for a slot in its batch use it meanwhile.
        if not ownership.give_back(tx, submission.task, submission.owner, submission.token):
            return None
        now = self.time(tx)
        self.move(
            tx, submission, SubmissionState.RETRYING, Step.AGAIN,
            f"{reason} in {format_duration(pause)}", now,
            recheck_at=now + pause, token=None, run_id=None, deadline_at=None, **values,
        )  # fmt: skip
        return SubmissionState.RETRYING

    def _end(
        self,
        tx: sa.Connection,
        submission: Submission,
        state: SubmissionState,
        step: Step,
        reason: str,
    ) -> None:
        if submission.token is not None:
            ownership.give_back(tx, submission.task, submission.owner, submission.token)
        self.move(tx, submission, state, step, reason, self.time(tx))


def wake(tx: sa.Connection, task: str, batch: str | None, now: datetime) -> int:
    """Wakes all submissions that wait for a task, and those that can take a free slot in its batch.

    A submission that begins to wait while the task ends may be missed, and is rechecked soon. One
    that already waits is not missed, even while it is checked: the statement waits for its row.

    Returns:
        the number of submissions.
    """
    row, waits = task_submissions.c, task_waits.c
    parents = sa.select(waits.submission).where(waits.kind == "task", waits.name == task)
    waiting: sa.ColumnElement[bool] = row.id.in_(parents)
    if batch is not None:
        waiting |= dialect.among(tx, row.id, slots.next_in_line(tx, batch, now))
    # Also those that wait for a slot for the same task: its success leaves them nothing to do.
    same = (row.task == task) & row.state.in_([SubmissionState.SHARING, SubmissionState.WAITING])
    return _make_due(tx, same | (waiting & _is_waiting), now)


def wake_behind(tx: sa.Connection, id: str, batch: str, now: datetime) -> int:
    """Wakes those behind a submission that can take the slot that it has not taken."""
    ids = slots.next_in_line(tx, batch, now, behind=id)
    return _make_due(tx, dialect.among(tx, task_submissions.c.id, ids) & _is_waiting, now)


#: Of the locked row: a submission that was checked meanwhile may own its task.
_is_waiting = task_submissions.c.state == SubmissionState.WAITING.value


def _make_due(tx: sa.Connection, affected: sa.ColumnElement[bool], now: datetime) -> int:
    row = task_submissions.c
    query = sa.select(row.id).where(is_live, affected).order_by(row.id)
    ids = list(tx.execute(query.with_for_update()).scalars())
    if ids:
        due = sa.update(task_submissions).where(dialect.among(tx, row.id, ids))
        tx.execute(due.values(next_check_at=now))
    return len(ids)
