"""The life of tasks in one code location: a tick processes due submissions and requests runs.

A tick is a handful of short transactions: one for each processed submission, so that no transaction
locks the rows of two tasks. A waiting submission holds no process and no slot: it is a row with the
moment of its next check, and the end of what it waits for wakes it.

A crash between them, or before Dagster has stored the requests, loses nothing: the next tick finds
what was committed, and a request that is handed out twice has the same run key.
"""

import logging
import time as steady
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import ArcticError, DatabaseUnavailable
from arctic_orchestration.event_log.run_lookup import FailureLookup
from arctic_orchestration.freshness import (
    definitions,
    ownership,
    retention,
    run_requests,
    slots,
    submissions,
    waits,
)
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.decision import (
    SHORTLY,
    Decision,
    Facts,
    decide,
    edge_since,
    shares,
)
from arctic_orchestration.freshness.ownership import LEASE, Acquired, Owner, TaskRow, Time
from arctic_orchestration.freshness.run_outcomes import Outcomes, wake, wake_behind
from arctic_orchestration.freshness.run_reconciler import Outdated, RunReconciler
from arctic_orchestration.freshness.run_requests import TaskRequest
from arctic_orchestration.freshness.status import ROOTS, WAITED_SINCE, Step
from arctic_orchestration.freshness.submission import Submission, SubmissionState, owner_of
from arctic_orchestration.freshness.submission_facts import NO_ASSETS, Assets, facts_of
from arctic_orchestration.freshness.submissions import NewSubmission
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import is_live, task_submissions

__all__ = ["Lifecycle", "TaskRequest", "TickResult"]

_log = logging.getLogger("arctic.freshness")

#: how many submissions are read at once
_READ_AT_ONCE = 200
#: the time limit of a tick, which defers the rest; Dagster evaluates no other sensor meanwhile
_TICK_SECONDS = 5.0
#: how often a location reports that it is alive
_SEEN_EVERY = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class TickResult:
    """The result of a tick, with the runs that it requests from Dagster."""

    counts: Counter[str]
    requests: Sequence[TaskRequest]
    #: the database's time, which determines partitions: the tasks were acquired before
    now: datetime
    #: why the location's definitions are not registered; none: they are
    trouble: str | None = None


@dataclass(kw_only=True)
class Lifecycle:
    """The tasks of one code location of one cluster.

    Args:
        database: the state database.
        cluster: the name of this Dagster instance.
        location: the code location.
        declared: what it declares; none: its registrations stay unchanged.
        runs: the lookup of Dagster's runs.
        assets: what is known of assets that are no tasks.
        life: the duration of a lease.
        time: the source of the time.
        storage_id: of the Dagster storage with the runs; none: that of the location is not checked.
        outdated: whether a run was for a partition that is not the newest at a moment.
    """

    database: Database
    cluster: str
    location: str
    runs: FailureLookup
    declared: Sequence[TaskSpec] | None = None
    assets: Assets = NO_ASSETS
    life: timedelta = LEASE
    time: Time = database_time
    storage_id: str | None = None
    outdated: Outdated = lambda *_: False
    _digest: str | None = field(default=None, init=False)
    _trouble: str | None = field(default=None, init=False)
    _tried_at: datetime | None = field(default=None, init=False)
    _was_away: bool = field(default=False, init=False)
    _followed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._outcomes = Outcomes(life=self.life, time=self.time)
        self._reconciler = RunReconciler(
            self.database, self.cluster, self.location, self._outcomes, self.outdated
        )

    def tick(self) -> TickResult:
        """Performs one round: definitions, ended runs, due submissions, requests.

        Errors:
            DatabaseUnavailable: a database did not answer; what was committed stands, and the next
                tick continues from there.
            ConfigurationError: another Dagster instance of the same cluster name owns the location.
                Nothing was done.
        """
        counts: Counter[str] = Counter()
        now = self._register(counts)
        if not self._followed:
            waits.follow(self.database, self.cluster, self.location, now)
            self._followed = True
        self._reconciler.reconcile(self.runs, counts, steady.monotonic() + _TICK_SECONDS)
        self._look_at_due(counts)
        requests, now = self._run_requests(now)
        counts["requested"] = len(requests)
        return TickResult(counts=counts, requests=requests, now=now, trouble=self._trouble)

    def refuse(self, submission: str, problem: str) -> None:
        """Ends a submission whose run Dagster refuses."""
        with self.database.begin() as tx:
            owning = submissions.by_id(tx, submission, lock=True)
            if owning is None or owning.state is not SubmissionState.ACQUIRED:
                return
            self._outcomes.refused_by_dagster(tx, owning, problem)
        self._wake(owning)

    def _register(self, counts: Counter[str]) -> datetime:
        if self.declared is not None and self._digest is None:
            self._digest = definitions.digest(self.declared)
        with self.database.read() as tx:
            known = definitions.location_of(tx, self.cluster, self.location)
            now = self.time(tx)
        bound = known.storage_id if known is not None else None
        if self.storage_id is not None and bound not in (None, self.storage_id):
            raise definitions.of_another_storage(self.cluster, self.location)
        wanted = self.declared is not None and (
            known is None or known.digest != self._digest or known.trouble is not None
        )
        late = known is None or known.ticked_at is None or now - known.ticked_at > _SEEN_EVERY
        late = late or (bound is None and self.storage_id is not None)
        if self._tried_at is not None and now - self._tried_at < _SEEN_EVERY:
            # Another location may resolve the conflict; that is noticed soon enough.
            wanted = False
        if not wanted and not late:
            return now
        with self.database.begin() as tx:
            now = self.time(tx)
            away = known is not None and known.was_away(now)
            if known is not None and away and not self._was_away:
                # Not for one gap after another: that is a slow sensor, and patience ends.
                waits.extend(tx, known, now)
            if wanted and self.declared is not None:
                done = definitions.register(tx, self.cluster, self.location, self.declared, now)
                counts["registered"] += done.written
                counts["unregistered"] += done.removed
                self._trouble = str(done.problem) if done.problem is not None else None
                self._tried_at = now if done.problem is not None else None
                self._followed = False
            definitions.ticked(tx, self.cluster, self.location, now, self.storage_id)
            counts["pruned"] += retention.prune(tx, now)
        self._was_away = away
        return now

    def _look_at_due(self, counts: Counter[str]) -> None:
        give_up_at = steady.monotonic() + _TICK_SECONDS
        while steady.monotonic() < give_up_at:
            with self.database.read() as tx:
                given = {"cluster_": self.cluster, "location_": self.location, "now": self.time(tx)}
                due = list(tx.execute(_DUE, given).scalars())
            for id in due:
                if steady.monotonic() > give_up_at:
                    return
                self._look_at(id, counts)
            if not due:
                return

    def _look_at(self, id: str, counts: Counter[str]) -> None:
        """Processes one submission in its own transaction; postpones it on failure."""
        try:
            with self.database.begin() as tx:
                submission = submissions.by_id(tx, id, lock=True)
                now = self.time(tx)
                if submission is None or not _is_due(submission, now):
                    return
                facts = facts_of(tx, submission, self.assets, now)
                decision = decide(facts, now)
                batch = slots.awaited_by(tx, submission)
                ended = self._apply(tx, facts, decision, now, counts)
            if ended:
                self._wake(submission)
            if batch is not None and decision.step is not Step.WAITS_FOR_PLACE:
                # It may have been woken for a slot that it did not take.
                self._pass_on(id, batch)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            _log.warning("submission %s could not be processed", id, exc_info=error)
            text = str(error) if isinstance(error, ArcticError) else f"{type(error).__name__}"
            self._put_off(id, text)
            counts["troubled"] += 1

    def _put_off(self, id: str, problem: str) -> None:
        with self.database.begin() as tx:
            submission = submissions.by_id(tx, id, lock=True)
            if submission is None or submission.state.ended or submission.state.owns:
                return
            recheck_at = self.time(tx) + timedelta(minutes=2)
            reason = f"could not be checked; the next check is at {recheck_at:%H:%M:%S}Z: {problem}"
            submissions.update(tx, id, reason=reason, next_check_at=recheck_at)
            batch = slots.awaited_by(tx, submission)
        if batch is not None:
            self._pass_on(id, batch)

    def _pass_on(self, id: str, batch: str) -> None:
        with self.database.begin() as tx:
            wake_behind(tx, id, batch, self.time(tx))

    def _apply(
        self,
        tx: sa.Connection,
        facts: Facts,
        decision: Decision,
        now: datetime,
        counts: Counter[str],
    ) -> bool:
        """Applies a decision; returns whether the submission has ended."""
        submission = facts.submission
        counts[decision.step.value] += 1
        if decision.step is Step.ACQUIRED:
            self._acquire(tx, submission, decision, now, counts)
            return False
        if decision.step is Step.SHARES:
            self._share(tx, submission, facts.row, decision, now)
            return False
        if decision.state is not SubmissionState.WAITING:
            details: dict[str, Any] = {}
            if decision.step is Step.STALE_PARENTS:
                details = {ROOTS: list(decision.roots), WAITED_SINCE: submission.submitted_at}
            self._outcomes.move(
                tx, submission, decision.state, decision.step, decision.reason, now, details=details
            )
            return True
        assert facts.spec is not None
        made = self._submit_parents(tx, submission, facts.spec, decision, now)
        changed = waits.note(tx, submission, facts.spec, decision, made, now)
        recheck_at = decision.recheck_at
        if changed and recheck_at is not None:
            # A submission that has just begun to wait may have missed the end of what it waits for.
            recheck_at = min(recheck_at, now + SHORTLY)
        self._outcomes.move(
            tx, submission, SubmissionState.WAITING, decision.step, decision.reason, now,
            recheck_at=recheck_at, deadline_at=decision.deadline_at, report=changed, shares=None,
            details={"waits_for": list(decision.waits_for)},
        )  # fmt: skip
        return False

    def _acquire(
        self,
        tx: sa.Connection,
        submission: Submission,
        decision: Decision,
        now: datetime,
        counts: Counter[str],
    ) -> None:
        attempt = submission.attempt + 1
        before = ownership.row_of(tx, submission.task)
        found = ownership.acquire(
            tx,
            submission.task,
            owner_of(submission.id, attempt),
            Owner(cluster=self.cluster, location=self.location, submission=submission.id),
            since=submission.required_since,
            force=submission.force,
            life=self.life,
            time=self.time,
        )
        if isinstance(found, Acquired):
            if before.owner is not None and before.token + 1 == found.token:
                text = f"{before.holder} was silent, and its lease was over"
                details = {"from": before.owner, "token": found.token}
                self._outcomes.report(tx, submission, Step.TOOK_OVER, text, now, details)
            self._outcomes.move(
                tx, submission, SubmissionState.ACQUIRED, Step.ACQUIRED, decision.reason, now,
                attempt=attempt, token=found.token, run_id=None, shares=None, deadline_at=None,
            )  # fmt: skip
        elif isinstance(found, ownership.FreshMeanwhile):
            # The task was free when the facts were read, and has succeeded since.
            submissions.update(tx, submission.id, next_check_at=now)
        else:
            counts[Step.SHARES.value] += 1
            self._share(tx, submission, found.row, shares(found.row), now)

    def _share(
        self,
        tx: sa.Connection,
        submission: Submission,
        row: TaskRow,
        decision: Decision,
        now: datetime,
    ) -> None:
        # The lease may expire without a notification; its renewals are at a third of its life.
        recheck_at = max(decision.recheck_at or now, now + timedelta(milliseconds=100))
        changed = (
            submission.state is not SubmissionState.SHARING or submission.shares != row.submission
        )
        self._outcomes.move(
            tx, submission, SubmissionState.SHARING, Step.SHARES, decision.reason, now,
            recheck_at=min(recheck_at, now + SHORTLY) if changed else recheck_at,
            shares=row.submission, report=changed, deadline_at=None,
            details={"token": row.token, "run_id": row.run_id, "cluster": row.cluster},
        )  # fmt: skip

    def _submit_parents(
        self,
        tx: sa.Connection,
        submission: Submission,
        spec: TaskSpec,
        decision: Decision,
        now: datetime,
    ) -> dict[str, str]:
        """Submits stale parents of the location; returns the submissions by their task."""
        if not decision.submits:
            return {}
        new = []
        for one in decision.submits:
            assert one.ours is not None
            new.append(
                NewSubmission(
                    task=one.name,
                    cluster=one.ours.cluster,
                    location=one.ours.location,
                    batch=one.ours.spec.batch,
                    required_since=edge_since(one.parent, spec, submission.submitted_at, now),
                    reason=f"submitted for {submission.task}",
                    by=f"submission {submission.id} of {submission.task}",
                    wanted_by=submission.id,
                )
            )
        made = submissions.make(tx, new, now=now, group=submission.group_id)
        return {one.task: one.id for one in made}

    def _run_requests(self, now: datetime) -> tuple[list[TaskRequest], datetime]:
        """Returns runs of acquired tasks, until they are seen, and a moment after the acquiring."""
        with self.database.read() as tx:
            if not run_requests.has_some(tx, self.cluster, self.location):
                return [], now
        with self.database.begin() as tx:
            requests, bad = run_requests.hand_out(tx, self.cluster, self.location, self._outcomes)
            now = self.time(tx)
        for id, problem in bad.items():
            self.refuse(id, problem)
        return requests, now

    def _wake(self, submission: Submission) -> None:
        with self.database.begin() as tx:
            wake(tx, submission.task, submission.batch, self.time(tx))


def _is_due(submission: Submission, now: datetime) -> bool:
    return (
        not submission.state.ended
        and not submission.state.owns
        and submission.next_check_at is not None
        and submission.next_check_at <= now
    )


_HERE = (
    task_submissions.c.cluster == sa.bindparam("cluster_"),
    task_submissions.c.location == sa.bindparam("location_"),
    is_live,
)
_DUE = (
    sa.select(task_submissions.c.id)
    .where(
        *_HERE,
        task_submissions.c.next_check_at <= sa.bindparam("now"),
        task_submissions.c.state.in_(["submitted", "waiting", "sharing", "retrying"]),
    )
    .order_by(task_submissions.c.next_check_at, task_submissions.c.id)
    .limit(_READ_AT_ONCE)
)
