"""What Dagster's runs mean for the submissions that requested them.

A run that has begun as a task reports its own end and renews its own lease. Before that, and for
jobs, whose code does not know about tasks, the ticks of the location do both. A killed run, which
cannot report, is detected by its status in Dagster or by its lease.
"""

import logging
import math
import time as steady
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import DatabaseUnavailable, Refused
from arctic_orchestration.event_log.event import RunStatus
from arctic_orchestration.event_log.run_lookup import FailureLookup, RunView
from arctic_orchestration.freshness import definitions, ownership, submissions
from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.ownership import TaskRow
from arctic_orchestration.freshness.run_outcomes import Outcomes, wake
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.run_tags import PARENT_TAG, RUN_KEY_TAG
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import is_live, task_submissions

_log = logging.getLogger("arctic.freshness")

SUBMISSION_TAG = "arctic/submission"

#: the location of a run that was started in none
NOWHERE = "local"
#: the prefix by which a run reports an exception, as the reason of its submission, before it ends
RAISED = "failed: "
#: the prefix by which it reports that it could not renew its lease
SILENT = "fell silent: "
#: how long the run of an asset may take, from its observed start, to begin as a task
BEGINS_WITHIN = timedelta(minutes=15)
#: leases of queued runs that are renewed in one transaction
_RENEWED_AT_ONCE = 500
#: how long a run that raised and has not ended may pause before Dagster retries its step
RETRIED_WITHIN = timedelta(hours=1)


#: whether a run was for a partition of its task that is not the newest at a moment
Outdated = Callable[[TaskSpec, RunView, datetime], bool]


@dataclass(frozen=True)
class RunReconciler:
    """Reconciles the runs of one code location."""

    database: Database
    cluster: str
    location: str
    outcomes: Outcomes
    outdated: Outdated = lambda *_: False

    def reconcile(
        self, runs: FailureLookup, counts: Counter[str], give_up_at: float = math.inf
    ) -> None:
        """Reconciles the runs of all submissions that own their task.

        Cost: two statements of the state database and at most two of Dagster's, a transaction for
        hundreds of queued runs, whose leases are renewed, and one for each submission with changes.

        Args:
            runs: the lookup of Dagster's runs.
            counts: what was done is added here.
            give_up_at: the steady time after which submissions with changes are deferred.

        Errors:
            DatabaseUnavailable: a database did not answer.
        """
        given = {"cluster_": self.cluster, "location_": self.location}
        with self.database.read() as tx:
            owning_ones = [Submission.from_row(row) for row in tx.execute(_OWN, given).mappings()]
            if not owning_ones:
                return
            now = self.outcomes.time(tx)
            rows = ownership.rows_of(tx, sorted({one.task for one in owning_ones}))
        seen = _looked_up(owning_ones, runs)
        queued: list[Submission] = []
        changed: list[tuple[Submission, RunView | None]] = []
        for submission in owning_ones:
            run = seen.get(submission.id)
            row = rows.get(submission.task) or TaskRow(task=submission.task)
            if not self._has_news(submission, row, run, now):
                continue
            if _is_queued(submission, row, run):
                queued.append(submission)
            else:
                changed.append((submission, run))
        self._renew(queued, counts)
        for submission, run in changed:
            if steady.monotonic() > give_up_at:
                return
            try:
                self._reconcile(submission, run, _why_failed(run, runs), counts)
            except DatabaseUnavailable:
                raise
            except Exception as error:
                # The other submissions are still reconciled; the next tick retries this one.
                _log.warning("submission %s could not be reconciled", submission.id, exc_info=error)
                counts["troubled"] += 1

    def _renew(self, queued: Sequence[Submission], counts: Counter[str]) -> None:
        """Renews the leases of queued runs: thousands, one by one, would fill a tick."""
        held = [(one.task, one.owner, one.token) for one in queued if one.token is not None]
        life, time = self.outcomes.life, self.outcomes.time
        for first in range(0, len(held), _RENEWED_AT_ONCE):
            some = held[first : first + _RENEWED_AT_ONCE]
            with self.database.begin() as tx:
                counts["renewed"] += ownership.renew_all(tx, some, life=life, time=time)

    def _has_news(
        self, submission: Submission, row: TaskRow, run: RunView | None, now: datetime
    ) -> bool:
        """Returns whether something has to be written; verified once the rows are locked."""
        if row.owner != submission.owner or row.token != submission.token or row.expires_at is None:
            return True
        renews_itself = row.begun_at is not None and not submission.reason.startswith(RAISED)
        if row.expires_at - now <= self.outcomes.life * 2 / 3 and not renews_itself:
            return True
        if row.expires_at <= now:
            return True
        if run is None:
            return _is_gone(submission, row)
        if run.status is None:
            return False
        return run.status.ended or submission.run_id is None

    def _reconcile(
        self, before: Submission, run: RunView | None, why: str | None, counts: Counter[str]
    ) -> None:
        with self.database.begin() as tx:
            submission = submissions.by_id(tx, before.id, lock=True)
            if submission is None or not submission.state.owns or submission.token is None:
                # The run reported first.
                return
            if run is not None and not _is_its(submission, run):
                return
            if run is None and submission.run_id != before.run_id:
                # It has reported since the lookup missed it.
                return
            what = self._apply(tx, submission, run, why)
            counts[what] += 1
        if what not in _STILL:
            with self.database.begin() as tx:
                wake(tx, submission.task, submission.batch, self.outcomes.time(tx))

    def _apply(
        self, tx: sa.Connection, submission: Submission, run: RunView | None, why: str | None
    ) -> str:
        out, now = self.outcomes, self.outcomes.time(tx)
        row = ownership.row_of(tx, submission.task)
        mine = row.owner == submission.owner and row.token == submission.token
        spec = definitions.spec_of(tx, submission.task, submission.cluster, submission.location)
        begun = row.begun_at is not None
        # Whatever the code declares by now: an op of a job has begun, and the job never does.
        of_job = submission.state is SubmissionState.RUNNING and not begun
        late = row.expires_at is None or row.expires_at <= now
        ended = run is not None and run.status is not None and run.status.ended
        if not mine:
            out.silent(tx, submission)
            return "lost"
        if run is not None and ended:
            # The run of a job never begins as a task, and goes on without the database.
            is_asset = spec is not None and spec.kind == "asset" and not of_job
            silent = late and (begun or is_asset)
            # No tick has seen its end: it may be hours old.
            seen_at = row.expires_at - out.life if late and row.expires_at is not None else None
            return self._run_ended(
                tx, submission, run, spec, why, begun=begun, silent=silent, seen_at=seen_at
            )
        if begun and run is not None and self._is_to_be_retried(tx, submission, now):
            return "renewed"
        if late and begun:
            return self._silent(tx, submission)
        if begun:
            return "running"
        if run is None and _is_gone(submission, row):
            gone = f"run {submission.run_id} is gone from Dagster's storage"
            return _counted(out.failed(tx, submission, gone, spec))
        given_up = submission.deadline_at is not None and now >= submission.deadline_at
        # Without ticks to renew the lease, the run could not begin either: it gets more time.
        if run is not None and given_up and not late:
            text = f"run {run.run_id} has not begun as a task"
            return _counted(out.failed(tx, submission, text, spec))
        # Until it begins, only this renewal shows that a run is on its way.
        seen: dict[str, Any] = {}
        if run is not None and submission.run_id is None:
            seen["run_id"] = run.run_id
            submissions.update(tx, submission.id, run_id=run.run_id)
        if submission.deadline_at is None and not of_job and _is_to_begin(run, spec):
            # By the database's time: Dagster's moments come from the clocks of the processes.
            submissions.update(tx, submission.id, deadline_at=now + BEGINS_WITHIN)
        out.renew(tx, submission, **seen)
        return "renewed"

    def _is_to_be_retried(self, tx: sa.Connection, submission: Submission, now: datetime) -> bool:
        """Renews the lease of a run that raised and goes on: Dagster retries its step.

        The pause of a retry policy may be longer than a lease, which the run does not renew in it.
        """
        until = submission.deadline_at or now + RETRIED_WITHIN
        if not submission.reason.startswith(RAISED) or now >= until:
            return False
        submissions.update(tx, submission.id, deadline_at=until)
        return self.outcomes.renew(tx, submission)

    def _run_ended(
        self,
        tx: sa.Connection,
        submission: Submission,
        run: RunView,
        spec: TaskSpec | None,
        why: str | None,
        *,
        begun: bool,
        silent: bool,
        seen_at: datetime | None,
    ) -> str:
        out = self.outcomes
        token = submission.token
        assert token is not None
        if submission.run_id is None:
            submissions.update(tx, submission.id, run_id=run.run_id)
            submission = replace(submission, run_id=run.run_id)
        if run.status is RunStatus.SUCCESS:
            if begun and silent:
                return self._silent(tx, submission)
            # Without a take-over, this run may still publish.
            out.renew(tx, submission, run_id=run.run_id)
            try:
                out.published(
                    tx, submission, token=token, owner=submission.owner, seen_at=seen_at,
                    outdated=lambda at: spec is not None and self.outdated(spec, run, at),
                )  # fmt: skip
            except Refused as error:
                out.report(tx, submission, Step.REFUSED, str(error), out.time(tx))
                return "lost"
            return "published"
        if run.status is RunStatus.CANCELED:
            out.canceled(tx, submission, f"run {run.run_id} was canceled")
            return "canceled"
        if not run.started and not begun:
            text = f"run {run.run_id} could not start" + (f": {why}" if why else "")
            return _counted(out.not_started(tx, submission, text))
        raised = submission.reason.startswith(RAISED)
        if submission.reason.startswith(SILENT) or (silent and not raised):
            # It could not renew its lease, or could not even begin.
            return self._silent(tx, submission)
        if why is not None:
            text = f"{RAISED}{why}"
        else:
            text = submission.reason if raised else "failed"
        return _counted(out.failed(tx, submission, f"run {run.run_id} {text}", spec))

    def _silent(self, tx: sa.Connection, submission: Submission) -> str:
        return "repeated" if self.outcomes.silent(tx, submission) else "lost"


def _why_failed(run: RunView | None, runs: FailureLookup) -> str | None:
    if run is None or run.status is not RunStatus.FAILURE:
        return None
    try:
        return runs.why_failed(run.run_id)
    except Exception as error:
        # The failure itself is what matters.
        _log.warning("why run %s failed could not be read: %s", run.run_id, error)
        return None


def _counted(state: SubmissionState) -> str:
    """Returns the counter of a failure."""
    return "repeated" if state is SubmissionState.ACQUIRED else state.value


def _is_to_begin(run: RunView | None, spec: TaskSpec | None) -> bool:
    """Returns whether a started run of an asset will begin as a task; runs of jobs never do."""
    if run is None or spec is None or spec.kind != "asset":
        return False
    return run.status is RunStatus.STARTED


def _looked_up(owning_ones: Sequence[Submission], runs: FailureLookup) -> dict[str, RunView]:
    """Returns the run of each submission that has one in Dagster's storage."""
    requested = [one.id for one in owning_ones if not one.by_hand]
    tagged = runs.runs_by_tag(SUBMISSION_TAG, requested) if requested else {}
    seen: dict[str, RunView] = {}
    for one in owning_ones:
        run = _of_attempt(one, tagged.get(one.id, ()))
        if run is not None and not one.by_hand:
            seen[one.id] = run
    # Runs started by people lack these tags, and other runs may have lost them.
    ids = {one.run_id: one.id for one in owning_ones if one.run_id and one.id not in seen}
    found = runs.run_statuses(list(ids)) if ids else {}
    seen.update((ids[id], run) for id, run in found.items())
    return seen


def _is_queued(submission: Submission, row: TaskRow, run: RunView | None) -> bool:
    """Returns whether only the lease is to be renewed: the run was requested, and not started."""
    if (row.owner, row.token) != (submission.owner, submission.token) or row.begun_at is not None:
        return False
    if submission.deadline_at is not None:
        return False
    if run is None:
        return submission.run_id is None
    is_on_its_way = run.status in (RunStatus.QUEUED, RunStatus.STARTING)
    return is_on_its_way and submission.run_id == run.run_id


def _is_gone(submission: Submission, row: TaskRow) -> bool:
    """Returns whether a missing run was seen before, and cannot report any more."""
    return submission.run_id is not None and row.begun_at is None


def _is_its(submission: Submission, run: RunView) -> bool:
    """Returns whether a run belongs to the present attempt, by its id or by its tags."""
    if submission.run_id == run.run_id or submission.by_hand:
        return True
    return _of_attempt(submission, (run,)) is not None


def _of_attempt(submission: Submission, runs: Sequence[RunView]) -> RunView | None:
    """Returns the run of the present attempt; a re-execution by a user is another run.

    Two daemons on one instance may each have created a run of one request. The one that has begun
    is the attempt's; before that, one that has succeeded, or may still begin.
    """
    own = [
        run
        for run in runs
        if run.tags.get(RUN_KEY_TAG) == submission.run_key
        and PARENT_TAG not in run.tags
        and (submission.state is not SubmissionState.RUNNING or run.run_id == submission.run_id)
    ]
    return min(own, key=_rank, default=None)


def _rank(run: RunView) -> int:
    if run.status is RunStatus.SUCCESS:
        return 0
    if run.status is not None and run.status.ended:
        return 2
    # One that a daemon has only created may never be submitted.
    return 1 if run.submitted else 3


#: without waiting submissions
_STILL = frozenset({"renewed", "running", "repeated"})

_OWN = sa.select(task_submissions).where(
    task_submissions.c.cluster == sa.bindparam("cluster_"),
    (task_submissions.c.location == sa.bindparam("location_"))
    # Runs that a person started outside of any location: no other location reconciles them.
    | (task_submissions.c.by_hand & (task_submissions.c.location == NOWHERE)),
    is_live,
    task_submissions.c.state.in_(["acquired", "running"]),
)
