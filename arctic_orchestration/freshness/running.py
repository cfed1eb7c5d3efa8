"""A run that makes a task: shows its token when it begins, renews while it works, publishes.

::

    with begun(database, task="delays", submission=id, token=7, run_id=run) as running:
        ...
        running.check()         # LeaseLost, once another one has taken over
        ...
        running.publish()       # Refused, when the token is not the task's any more

A run that begins with a token that is not the task's any more ends before it has touched anything.
With the database away, a run that has not begun waits for it; one that has goes on for as long as
it may trust its lease, and what it cannot publish until then is published by nobody.
"""

import logging
import time as steady
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

import sqlalchemy as sa

from arctic_orchestration.database.dialect import database_time
from arctic_orchestration.database.engine import Database
from arctic_orchestration.database.freshness_tables import task_publications, task_submissions
from arctic_orchestration.errors import DatabaseUnavailable, LeaseLost, Refused
from arctic_orchestration.freshness import definitions, owning, submissions
from arctic_orchestration.freshness.outcomes import Outcomes, wake
from arctic_orchestration.freshness.owning import LEASE, Acquired, Holder, Time
from arctic_orchestration.freshness.settling import RAISED, SILENT
from arctic_orchestration.freshness.status import SINKS, StatusSink, Step, events_of
from arctic_orchestration.freshness.submission import Submission, SubmissionState, owner_of
from arctic_orchestration.identifiers import new_id
from arctic_orchestration.leases import Lease, Renewal

_log = logging.getLogger("arctic.freshness")

#: how long a run that has not begun waits for the database
_BEGINS_FOR = timedelta(minutes=10)
_AGAIN_SECONDS = 1.0
#: letters of what was raised that are kept
_LETTERS = 1_000

_Answer = TypeVar("_Answer")


@dataclass(kw_only=True)
class Running:
    """A run that has a task, until its block ends."""

    database: Database
    asked: Submission
    lease: Lease
    outcomes: Outcomes
    renewal: Renewal = field(init=False)
    published_at: datetime | None = field(default=None, init=False)
    _uncertain: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        what = f"task {self.asked.task}, token {self.lease.token}"
        life = self.outcomes.life
        self.renewal = Renewal(self.lease, self._renew, life=life, what=what)

    @property
    def token(self) -> int:
        """The fencing token."""
        return self.lease.token

    def check(self) -> None:
        """Returns while the lease may be trusted.

        Errors:
            LeaseLost: another one has taken over, or the database was away for too long.
        """
        self.renewal.check()

    def show(self) -> None:
        """Returns while the token is the task's by the database; with that away, as ``check``.

        Asked before something is stored elsewhere that nobody takes back. What is decided between
        this and the storing is seen by the publication alone.

        Errors:
            Refused: the token is not the task's any more.
            LeaseLost: as ``check``.
        """
        self.check()
        try:
            problem = token_problem(self.database, self.asked.id, self.token)
        except DatabaseUnavailable:
            return
        if problem is not None:
            self._tell_refused(problem)
            raise Refused(problem)

    def history(self) -> list[dict[str, str]]:
        """The steps of the submission up to here, as JSON can hold them; none if it is away."""
        try:
            with self.database.read() as tx:
                found = events_of(tx, submission=self.asked.id)
        except DatabaseUnavailable as error:
            _log.warning("the history of task %s is not known: %s", self.asked.task, error)
            return []
        return [
            {"at": one.at.isoformat(), "step": one.step.value, "reason": one.reason}
            for _, one in found
        ]

    def publish(self) -> datetime:
        """Writes the success, and gives the task back; again and again while the lease holds.

        Returns:
            the moment of the success, by the database's time.

        Errors:
            Refused: the token is not the task's any more, or its lease is over. Nothing was
                written.
            LeaseLost: the database was away until the lease could not be trusted any more.
        """
        try:
            while self.published_at is None:
                self.check()
                try:
                    self.published_at = self._publish()
                except DatabaseUnavailable as error:
                    # The answer may be what was lost.
                    self._uncertain = True
                    _log.warning("task %s is published in a moment: %s", self.asked.task, error)
                    self.renewal.lost.wait(_AGAIN_SECONDS)
        except Refused as error:
            self._tell_refused(str(error))
            raise
        self._wake()
        return self.published_at

    def failed(self, error: BaseException) -> None:
        """Notes what was raised.

        A run that was asked for keeps its task until its end is seen: its step may be repeated in
        it, or it may be run again. One that a person started gives it back at once.
        """
        text = f"{RAISED}{type(error).__name__}: {error}"[:_LETTERS]
        if isinstance(error, Refused):
            # With the database away for long; what the task does is not to blame.
            text = f"{SILENT}{error}"[:_LETTERS]
        elif isinstance(error, GeneratorExit):
            text = f"{RAISED}what it made could not be stored"
        try:
            with self.database.begin() as tx:
                asked = submissions.by_id(tx, self.asked.id, lock=True)
                if asked is None or not asked.state.owns or asked.token != self.token:
                    return
                if not asked.by_hand:
                    submissions.update(tx, asked.id, reason=text)
                    return
                reason = f"run {asked.run_id} {text}"
                if isinstance(error, Exception | GeneratorExit):
                    self.outcomes.failed(tx, asked, reason, retries=0)
                else:
                    self.outcomes.canceled(tx, asked, reason)
        except Exception as problem:
            _log.warning("why task %s failed could not be noted: %s", self.asked.task, problem)
            return
        self._wake()

    def _publish(self) -> datetime:
        with self.database.begin() as tx:
            asked = submissions.by_id(tx, self.asked.id, lock=True)
            if asked is None:
                raise Refused(f"task {self.asked.task}: submission {self.asked.id} is gone")
            try:
                return self.outcomes.published(tx, asked, token=self.token, owner=self.lease.owner)
            except Refused:
                at = self._published_before(tx) if self._uncertain else None
                if at is None:
                    raise
                return at

    def _published_before(self, tx: sa.Connection) -> datetime | None:
        here = task_publications.c
        query = sa.select(here.at).where(
            here.task == self.asked.task, here.token == self.token,
            here.submission == self.asked.id,
        )  # fmt: skip
        found: datetime | None = tx.execute(query).scalar()
        return found

    def _renew(self) -> bool:
        with self.database.begin() as tx:
            return owning.renew(
                tx, self.asked.task, self.lease.owner, self.token, life=self.outcomes.life,
                time=self.outcomes.time,
            )  # fmt: skip

    def _tell_refused(self, reason: str) -> None:
        try:
            with self.database.begin() as tx:
                self.outcomes.refused(tx, self.asked, self.token, reason)
        except Exception as error:
            _log.warning("it could not be noted that %s: %s", reason, error)

    def _wake(self) -> None:
        try:
            with self.database.begin() as tx:
                wake(tx, self.asked.task, self.asked.batch, self.outcomes.time(tx))
        except Exception as error:
            # Those who wait look again by themselves.
            _log.warning("nobody was woken by task %s: %s", self.asked.task, error)


@contextmanager
def begun(
    database: Database,
    *,
    task: str,
    submission: str,
    token: int,
    run_id: str,
    life: timedelta = LEASE,
    time: Time = database_time,
    sinks: Sequence[StatusSink] = SINKS,
    patience: timedelta = _BEGINS_FOR,
) -> Iterator[Running]:
    """A run that was asked for begins; its lease is renewed while the block runs.

    Args:
        database: the state database.
        task: the task's name.
        submission: of the run's tags.
        token: of the run's tags.
        run_id: Dagster's.
        life: how long the lease holds until it is renewed.
        time: what tells the moment.
        sinks: who is told of steps.
        patience: how long the database is waited for.

    Errors:
        Refused: the token is not the task's any more. Nothing was touched.
        DatabaseUnavailable: it did not answer for all its patience.
    """
    outcomes = Outcomes(life=life, time=time, sinks=sinks)
    asked_at = 0.0

    def begin() -> Submission:
        nonlocal asked_at
        asked_at = steady.monotonic()
        return _begin(database, outcomes, task, submission, token, run_id)

    asked = insist(begin, patience)
    lease = Lease.taken(owner=asked.owner, token=token, asked=asked_at, life=life)
    yield from _renewed(database, asked, lease, outcomes)


@contextmanager
def acquired_by_hand(
    database: Database,
    *,
    task: str,
    cluster: str,
    location: str,
    run_id: str,
    life: timedelta = LEASE,
    time: Time = database_time,
    sinks: Sequence[StatusSink] = SINKS,
    patience: timedelta = _BEGINS_FOR,
) -> Iterator[Running]:
    """A run that a person started in Dagster acquires its task for itself, however fresh it is.

    Errors:
        Refused: another run has the task; the message says whose.
        DatabaseUnavailable: it did not answer for all its patience.
    """
    outcomes = Outcomes(life=life, time=time, sinks=sinks)
    asked_at = 0.0

    def begin() -> Submission:
        nonlocal asked_at
        asked_at = steady.monotonic()
        return _acquire(database, outcomes, task, Holder(cluster=cluster, location=location,
                        run_id=run_id))  # fmt: skip

    asked = insist(begin, patience)
    assert asked.token is not None
    lease = Lease.taken(owner=asked.owner, token=asked.token, asked=asked_at, life=life)
    yield from _renewed(database, asked, lease, outcomes)


def _renewed(
    database: Database, asked: Submission, lease: Lease, outcomes: Outcomes
) -> Iterator[Running]:
    running = Running(database=database, asked=asked, lease=lease, outcomes=outcomes)
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
        asked = submissions.by_id(tx, id, lock=True)
        if asked is None or asked.task != task:
            raise Refused(f"task {task} has no submission {id}: nothing was begun")
        now, problem = outcomes.time(tx), None
        if not asked.state.owns or asked.token != token or asked.by_hand:
            problem = (
                f"task {task}: token {token} is over: its submission {id} is "
                f"{asked.state.value} ({asked.reason})"
            )
        elif asked.state is SubmissionState.RUNNING and asked.run_id != run_id:
            problem = f"task {task}: token {token} is used by run {asked.run_id}"
        elif not owning.renew(
            tx, task, asked.owner, token, life=outcomes.life, time=outcomes.time,
            run_id=run_id, begun_at=now,
        ):  # fmt: skip
            row = owning.row_of(tx, task)
            problem = owning.why_not(row, asked.owner, token, now)
        if problem is None:
            mine = replace(asked, run_id=run_id)
            if asked.state is not SubmissionState.RUNNING:
                outcomes.move(
                    tx, mine, SubmissionState.RUNNING, Step.BEGUN, f"run {run_id} has begun", now,
                    run_id=run_id, token=token, deadline_at=None,
                )  # fmt: skip
            return mine
        outcomes.refused(tx, asked, token, f"run {run_id} began in vain: {problem}")
    raise Refused(problem)


def _acquire(database: Database, outcomes: Outcomes, task: str, holder: Holder) -> Submission:
    with database.begin() as tx:
        now = outcomes.time(tx)
        id = new_id(now)
        spec = definitions.spec_of(tx, task, holder.cluster, holder.location)
        found = owning.acquire(
            tx, task, owner_of(id, 1), replace(holder, submission=id), since=now, force=True,
            life=outcomes.life, time=outcomes.time,
        )  # fmt: skip
        if not isinstance(found, Acquired):
            row = found.row
            # Not locked: the statement above may hold the task's row, and submissions come first.
            again = submissions.by_id(tx, row.submission or "")
            if (
                again is not None
                and again.by_hand
                and again.run_id == holder.run_id
                and owning.renew(
                    tx, task, again.owner, row.token, life=outcomes.life, time=outcomes.time
                )
            ):
                # A step that is repeated in its run, or an answer that was lost.
                return again
            raise Refused(
                f"task {task} is being made by {row.holder} (submission {row.submission}, token "
                f"{row.token}): two runs of it at once could publish each other's leftovers"
            )
        text = f"run {holder.run_id} was started in Dagster"
        asked = Submission(
            id=id, task=task, cluster=holder.cluster, location=holder.location,
            batch=spec.batch if spec else None, group_id=id, by=f"run {holder.run_id}",
            state=SubmissionState.RUNNING, reason=text, state_at=now, required_since=now,
            force=True, by_hand=True, submitted_at=now, attempt=1, token=found.token,
            run_id=holder.run_id,
        )  # fmt: skip
        tx.execute(sa.insert(task_submissions).values(asked.as_row()))
        owning.renew(
            tx, task, asked.owner, found.token, life=outcomes.life, time=outcomes.time,
            begun_at=now,
        )  # fmt: skip
        outcomes.tell(tx, asked, Step.BEGUN, text, now, {"token": found.token})
        return asked


def token_problem(database: Database, submission: str, token: int) -> str | None:
    """Why a run that was asked for is not its task's any more; none: it is.

    Errors:
        DatabaseUnavailable: it did not answer.
    """
    with database.read() as tx:
        asked = submissions.by_id(tx, submission)
        if asked is None:
            return f"there is no submission {submission}: nothing was done"
        row = owning.row_of(tx, asked.task)
        if row.owner == asked.owner and row.token == token == asked.token:
            return None
        problem = owning.why_not(row, owner_of(submission, asked.attempt), token, database_time(tx))
        return problem or f"token {token} is over: submission {submission} is {asked.state.value}"


def insist(begin: Callable[[], _Answer], patience: timedelta = _BEGINS_FOR) -> _Answer:
    """What ``begin`` answers, once the database does.

    Errors:
        DatabaseUnavailable: it did not for all the patience.
    """
    give_up_at = steady.monotonic() + patience.total_seconds()
    while True:
        try:
            return begin()
        except DatabaseUnavailable as error:
            if steady.monotonic() > give_up_at:
                raise
            _log.warning("the run begins as soon as the state database answers: %s", error)
            steady.sleep(_AGAIN_SECONDS)


__all__ = ["LeaseLost", "Running", "acquired_by_hand", "begun", "insist", "token_problem"]
