"""A run that owns its task: renews the lease while it works, and publishes; see ``run_start``.

Without the database it goes on while it may trust its lease. A success that it cannot publish until
then is never published.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.errors import DatabaseUnavailable, Refused
from arctic_orchestration.freshness import ownership, submissions
from arctic_orchestration.freshness.run_outcomes import Outcomes, wake
from arctic_orchestration.freshness.run_reconciler import RAISED, SILENT
from arctic_orchestration.freshness.submission import Submission, owner_of
from arctic_orchestration.leases import Lease, Renewal
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import task_publications

_log = logging.getLogger("arctic.freshness")

_RETRY_SECONDS = 1.0
#: how many characters of an exception are kept
_LETTERS = 1_000


@dataclass(kw_only=True)
class Running:
    """A run that owns a task, until its block ends."""

    database: Database
    submission: Submission
    lease: Lease
    outcomes: Outcomes
    #: see ``ownership.publish``
    outdated: Callable[[datetime], bool] = lambda _: False
    renewal: Renewal = field(init=False)
    published_at: datetime | None = field(default=None, init=False)
    _uncertain: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        what = f"task {self.submission.task}, token {self.lease.token}"
        life = self.outcomes.life
        self.renewal = Renewal(self.lease, self._renew, life=life, what=what)

    @property
    def token(self) -> int:
        """The fencing token."""
        return self.lease.token

    def check(self) -> None:
        """Returns while the lease can be trusted.

        Errors:
            LeaseLost: another run has taken over, or the database was unavailable for too long.
        """
        self.renewal.check()

    def show(self) -> None:
        """Returns while the database confirms the token; like ``check`` while the database is away.

        Called before an irreversible write elsewhere. Only the publication detects a loss between
        this check and that write.

        Errors:
            Refused: the token is no longer the task's.
            LeaseLost: as ``check``.
        """
        self.check()
        try:
            problem = token_problem(self.database, self.submission.id, self.token)
        except DatabaseUnavailable:
            return
        if problem is not None:
            self._record_refusal(problem)
            raise Refused(problem)

    def publish(self) -> datetime:
        """Records the success and releases the task; retries while the lease is valid.

        Returns:
            the moment of the success, by the database's time.

        Errors:
            Refused: the token is no longer the task's, or its lease has expired. Nothing was
                written.
            LeaseLost: the database was away until the lease could not be trusted any more.
        """
        try:
            while self.published_at is None:
                self.check()
                try:
                    self.published_at = self._publish()
                except DatabaseUnavailable as error:
                    # Only the answer may have been lost.
                    self._uncertain = True
                    _log.warning(
                        "task %s is published in a moment: %s", self.submission.task, error
                    )
                    self.renewal.lost.wait(_RETRY_SECONDS)
        except Refused as error:
            self._record_refusal(str(error))
            raise
        self._wake()
        return self.published_at

    def failed(self, error: BaseException) -> None:
        """Records an exception.

        A requested run keeps its task until its end is seen: Dagster may retry its step, or the run
        may be retried. A run that a person started releases it at once.
        """
        text = f"{RAISED}{type(error).__name__}: {error}"[:_LETTERS]
        if isinstance(error, Refused):
            # The database was away for long; the task's code is not to blame.
            text = f"{SILENT}{error}"[:_LETTERS]
        elif isinstance(error, GeneratorExit):
            text = f"{RAISED}what it made could not be stored"
        try:
            with self.database.begin() as tx:
                submission = submissions.by_id(tx, self.submission.id, lock=True)
                if (
                    submission is None
                    or not submission.state.owns
                    or submission.token != self.token
                ):
                    return
                if not submission.by_hand:
                    submissions.update(tx, submission.id, reason=text)
                    return
                reason = f"run {submission.run_id} {text}"
                if isinstance(error, Exception | GeneratorExit):
                    self.outcomes.failed(tx, submission, reason)
                else:
                    self.outcomes.canceled(tx, submission, reason)
        except Exception as problem:
            _log.warning(
                "the failure of task %s was not recorded: %s", self.submission.task, problem
            )
            return
        self._wake()

    def _publish(self) -> datetime:
        with self.database.begin() as tx:
            submission = submissions.by_id(tx, self.submission.id, lock=True)
            if submission is None:
                raise Refused(
                    f"task {self.submission.task}: submission {self.submission.id} is gone"
                )
            try:
                return self.outcomes.published(
                    tx, submission, token=self.token, owner=self.lease.owner, outdated=self.outdated
                )
            except Refused:
                at = self._published_before(tx) if self._uncertain else None
                if at is None:
                    raise
                return at

    def _published_before(self, tx: sa.Connection) -> datetime | None:
        col = task_publications.c
        query = sa.select(col.at).where(
            col.task == self.submission.task, col.token == self.token,
            col.submission == self.submission.id,
        )  # fmt: skip
        found: datetime | None = tx.execute(query).scalar()
        return found

    def _renew(self) -> bool:
        with self.database.begin() as tx:
            return self.outcomes.renew(tx, self.submission)

    def _record_refusal(self, reason: str) -> None:
        try:
            with self.database.begin() as tx:
                self.outcomes.refused(tx, self.submission, self.token, reason)
        except Exception as error:
            _log.warning("not recorded: %s: %s", reason, error)

    def _wake(self) -> None:
        try:
            with self.database.begin() as tx:
                # Its task may have moved to another batch since it began.
                present = submissions.by_id(tx, self.submission.id) or self.submission
                wake(tx, present.task, present.batch, self.outcomes.time(tx))
        except Exception as error:
            # Waiting submissions recheck by themselves.
            _log.warning(
                "waking those that wait for task %s failed: %s", self.submission.task, error
            )


def token_problem(database: Database, submission: str, token: int) -> str | None:
    """Returns why a requested run no longer owns its task; none: it does.

    Errors:
        DatabaseUnavailable: it did not answer.
    """
    with database.read() as tx:
        stored = submissions.by_id(tx, submission)
        if stored is None:
            return f"there is no submission {submission}: nothing was done"
        row = ownership.row_of(tx, stored.task)
        if row.owner == stored.owner and row.token == token == stored.token:
            return None
        problem = ownership.why_not(
            row, owner_of(submission, stored.attempt), token, database_time(tx)
        )
        return problem or f"token {token} is over: submission {submission} is {stored.state.value}"
