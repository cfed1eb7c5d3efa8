"""How a run of a task ends: published, repeated, failed, lost; and who is woken by it.

Called by the run itself, and by the ticks of its location for runs that cannot tell any more.
Whoever calls locks the submission first, then the task. To wake others is a transaction of its own,
afterwards: it locks submissions of many tasks, which nobody may do who holds a task.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import Refused
from arctic_orchestration.freshness import ownership, submissions
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.ownership import LEASE, Time
from arctic_orchestration.freshness.status import SINKS, StatusEvent, StatusSink, Step, tell
from arctic_orchestration.freshness.submission import Submission, SubmissionState, owner_of
from arctic_orchestration.quantities import format_duration, format_moment
from arctic_orchestration.state import dialect
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import is_live, task_submissions, task_waits

#: so often a task is made again whose run fell silent or did not start, whatever its retries
SILENCES = 3
#: the pause after the first run that did not start; each further one is twice as long
STARTS_AGAIN_IN = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Writes what becomes of runs.

    Args:
        life: how long a lease holds until it is renewed.
        time: what tells the moment.
        sinks: who is told of steps.
    """

    life: timedelta = LEASE
    time: Time = database_time
    sinks: Sequence[StatusSink] = SINKS

    def published(
        self, tx: sa.Connection, asked: Submission, *, token: int, owner: str
    ) -> datetime:
        """Publishes a success; the submission is locked.

        Errors:
            Refused: another one has taken the task over, or the lease is over, or the submission
                has ended. Nothing was written.
        """
        if not asked.state.owns:
            text = f"its submission {asked.id} is {asked.state.value}: {asked.reason}"
            raise Refused(f"task {asked.task}: token {token} is over: {text}")
        at = ownership.publish(tx, asked.task, owner, token, time=self.time)
        run = f"run {asked.run_id}" if asked.run_id else "its run"
        self.move(
            tx, asked, SubmissionState.SUCCEEDED, Step.PUBLISHED, f"{run} made it", at, token=token
        )
        return at

    def refused(self, tx: sa.Connection, asked: Submission, token: int, reason: str) -> None:
        """Notes that a run which was no owner any more has published nothing."""
        self.tell(tx, asked, Step.REFUSED, reason, self.time(tx), {"token": token})

    def failed(
        self, tx: sa.Connection, asked: Submission, reason: str, spec: TaskSpec | None = None
    ) -> SubmissionState:
        """A run failed; the submission is locked, and owns the task.

        Args:
            tx: the transaction.
            asked: the submission.
            reason: why the run failed.
            spec: by whose retries it is repeated; none: it is not.

        Returns:
            what became of the submission.
        """
        # Those that fell silent or did not start are counted by themselves.
        failures = asked.attempt - asked.silences
        if spec is not None and failures <= spec.retries:
            text = f"attempt {failures} of {spec.retries + 1}: {reason}; again"
            found = self._repeated(tx, asked, text, spec.retry_delay)
            if found is not None:
                return found
        self._over(tx, asked, SubmissionState.FAILED, Step.FAILED, reason)
        return SubmissionState.FAILED

    def not_started(self, tx: sa.Connection, asked: Submission, reason: str) -> SubmissionState:
        """A run failed before it started; the submission is locked, and owns the task.

        The task is not to blame: up to ``SILENCES`` times it is asked for again, whatever its
        retries.

        Returns:
            what became of the submission.
        """
        silences = asked.silences + 1
        if silences <= SILENCES:
            text = f"{reason}; again, {silences} of {SILENCES} times,"
            pause = STARTS_AGAIN_IN * 2 ** (silences - 1)
            found = self._repeated(tx, asked, text, pause, silences=silences)
            if found is not None:
                return found
        reason += f"; it was asked for again {SILENCES} times"
        self._over(tx, asked, SubmissionState.FAILED, Step.NOT_STARTED, reason)
        return SubmissionState.FAILED

    def refused_by_dagster(self, tx: sa.Connection, asked: Submission, problem: str) -> None:
        """No run of it can be made; the submission is locked, and owns the task."""
        reason = f"Dagster refuses its run: {problem}"
        self._over(tx, asked, SubmissionState.FAILED, Step.NOT_STARTED, reason)

    def given_up(self, tx: sa.Connection, asked: Submission, reason: str) -> None:
        """Nobody will make it, and it is not repeated; the submission is locked.

        A run of which nobody will hear any more is lost: whoever shares it makes the task instead.
        """
        state = SubmissionState.LOST if asked.state.owns else SubmissionState.FAILED
        self._over(tx, asked, state, Step.FAILED, reason)

    def canceled(self, tx: sa.Connection, asked: Submission, reason: str) -> None:
        """Somebody canceled the run, which is not repeated; the submission is locked."""
        self._over(tx, asked, SubmissionState.CANCELED, Step.CANCELED, reason)

    def silent(self, tx: sa.Connection, asked: Submission) -> bool:
        """The lease is over, or another one's; the submission is locked.

        The task is not to blame: with nobody else there it is made again whatever its retries, up
        to ``SILENCES`` times.

        Returns:
            whether it goes on: with another run, or to share that of the one who took over.
        """
        row = ownership.row_of(tx, asked.task, lock=True)
        now = self.time(tx)
        run = f"run {asked.run_id}" if asked.run_id else "its run"
        if row.owner != asked.owner or row.token != asked.token:
            by = f"{row.holder} has taken the task over" if row.is_held(now) else "it was replaced"
            text = f"{run} fell silent, and {by}"
            if asked.by_hand:
                # Nobody wished for more than that run.
                self.move(tx, asked, SubmissionState.LOST, Step.LOST, text, now)
                return False
            self.tell(tx, asked, Step.LOST, text, now, {"token": asked.token})
            submissions.update(
                tx, asked.id, state=SubmissionState.SUBMITTED.value, reason=text, state_at=now,
                next_check_at=now, token=None, run_id=None, deadline_at=None,
                silences=asked.silences + 1,
            )  # fmt: skip
            return True
        since = f" until {format_moment(row.expires_at)}" if row.expires_at else ""
        text = f"{run} was silent{since}, when its lease was over"
        silences = asked.silences + 1
        if silences <= SILENCES:
            told = f"{text}; again, {silences} of {SILENCES} times"
            if self._again(tx, asked, told, silences=silences):
                return True
        elif not asked.by_hand:
            text += f"; it was made again {SILENCES} times"
        # Nobody else makes it: people are to know, as of what failed otherwise.
        self._over(tx, asked, SubmissionState.LOST, Step.FAILED, text)
        return False

    def move(
        self,
        tx: sa.Connection,
        asked: Submission,
        state: SubmissionState,
        step: Step,
        reason: str,
        now: datetime,
        *,
        recheck_at: datetime | None = None,
        details: dict[str, Any] | None = None,
        told: bool = True,
        **values: Any,
    ) -> None:
        """Moves a locked submission; it waits for nothing any more."""
        values.update(
            state=state.value, reason=reason, state_at=now, next_check_at=recheck_at,
            ended_at=now if state.ended else None,
        )  # fmt: skip
        submissions.update(tx, asked.id, **values)
        if asked.state is SubmissionState.WAITING and state is not SubmissionState.WAITING:
            tx.execute(sa.delete(task_waits).where(task_waits.c.submission == asked.id))
        if told:
            told_of: dict[str, Any] = {
                name: values[name] for name in ("token", "attempt") if name in values
            }
            self.tell(tx, asked, step, reason, now, {**told_of, **(details or {})})

    def tell(
        self,
        tx: sa.Connection,
        asked: Submission,
        step: Step,
        reason: str,
        now: datetime,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Tells a step of a submission."""
        known = {"run_id": asked.run_id} if asked.run_id else {}
        event = StatusEvent(
            task=asked.task, step=step, reason=reason, at=now, cluster=asked.cluster,
            location=asked.location, submission=asked.id, details={**known, **(details or {})},
        )  # fmt: skip
        tell(tx, [event], self.sinks)

    def _again(self, tx: sa.Connection, asked: Submission, reason: str, **values: Any) -> bool:
        if asked.by_hand or asked.token is None:
            return False
        attempt = asked.attempt + 1
        token = ownership.renew_with_new_token(
            tx, asked.task, asked.owner, asked.token, new_owner=owner_of(asked.id, attempt),
            life=self.life, time=self.time,
        )  # fmt: skip
        if token is None:
            return False
        self.move(
            tx, asked, SubmissionState.ACQUIRED, Step.AGAIN, reason, self.time(tx),
            attempt=attempt, token=token, run_id=None, deadline_at=None, **values,
        )  # fmt: skip
        return True

    def _repeated(
        self, tx: sa.Connection, asked: Submission, reason: str, pause: timedelta, **values: Any
    ) -> SubmissionState | None:
        """Goes on with another attempt, now or after a pause; none: it cannot."""
        if not pause:
            done = self._again(tx, asked, reason, **values)
            return SubmissionState.ACQUIRED if done else None
        if asked.by_hand or asked.token is None:
            return None
        # Whoever waits for a place in its batch has it meanwhile.
        if not ownership.give_back(tx, asked.task, asked.owner, asked.token):
            return None
        now = self.time(tx)
        self.move(
            tx, asked, SubmissionState.RETRYING, Step.AGAIN,
            f"{reason} in {format_duration(pause)}", now,
            recheck_at=now + pause, token=None, run_id=None, deadline_at=None, **values,
        )  # fmt: skip
        return SubmissionState.RETRYING

    def _over(
        self, tx: sa.Connection, asked: Submission, state: SubmissionState, step: Step, reason: str
    ) -> None:
        if asked.token is not None:
            ownership.give_back(tx, asked.task, asked.owner, asked.token)
        self.move(tx, asked, state, step, reason, self.time(tx))


def wake(tx: sa.Connection, task: str, batch: str | None, now: datetime) -> int:
    """Lets everybody be looked at who waits for a task, or for a place in its batch.

    Who is about to begin to wait while the task ends may miss it, and is looked at again soon. Who
    waits already is not missed, also not while it is looked at: its row is waited for here.

    Returns:
        how many.
    """
    here, waits = task_submissions.c, task_waits.c
    waiting = (waits.kind == "task") & (waits.name == task)
    if batch is not None:
        waiting |= (waits.kind == "batch") & (waits.name == batch)
    whoever = (here.task == task) & (here.state == SubmissionState.SHARING.value)
    whoever |= here.id.in_(sa.select(waits.submission).where(waiting))
    query = sa.select(here.id).where(is_live, whoever).order_by(here.id)
    ids = list(tx.execute(query.with_for_update()).scalars())
    if ids:
        due = sa.update(task_submissions).where(dialect.among(tx, here.id, ids))
        tx.execute(due.values(next_check_at=now))
    return len(ids)
