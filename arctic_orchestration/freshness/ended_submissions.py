"""How submissions ended, for reporters that report each end once, including ends without a run.

A reporter marks the submission's row afterwards: a crash in between repeats that report, and no end
is missed. A cursor over moments or ids would miss rows that commit after later ones; an unmarked
row is found whenever it was committed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.freshness import submissions
from arctic_orchestration.freshness.criteria import is_fresh
from arctic_orchestration.freshness.run_reconciler import NOWHERE
from arctic_orchestration.freshness.status import StatusEvent, Step, events_of
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.state.freshness_tables import (
    is_unreported,
    task_definitions,
    task_publications,
    task_submissions,
    tasks,
)

#: the steps that end a submission
_ENDS = frozenset(
    {
        Step.FRESH,
        Step.SKIPPED,
        Step.STALE_PARENTS,
        Step.PUBLISHED,
        Step.NOT_STARTED,
        Step.FAILED,
        Step.SHARED_FAILURE,
        Step.CANCELED,
        Step.LOST,
    }
)
#: the steps at which its run begins
_BEGINS = frozenset({Step.ACQUIRED, Step.BEGUN})


@dataclass(frozen=True, kw_only=True, slots=True)
class Success:
    """The success that a task had at some moment.

    Attributes:
        at: when it was published.
        run_id: its run; none: unknown.
        cluster: the cluster of that run.
    """

    at: datetime
    run_id: str | None
    cluster: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The end of a submission, with the facts at that moment.

    Attributes:
        submission: the submission.
        at: when it ended, by the database's time.
        steps: all of its steps.
        step: the step that ended it; none: its steps were pruned.
        began_at: when it first acquired the task; none: never.
        shared: the submission with the run that it shared; none: it shared no run.
        success: the last success of the task at the end; none: it had none.
    """

    submission: Submission
    at: datetime
    steps: tuple[StatusEvent, ...]
    step: Step | None
    began_at: datetime | None
    shared: Submission | None
    success: Success | None

    @property
    def waited(self) -> timedelta:
        """How long it waited: until it acquired the task, or until the end."""
        return (self.began_at or self.at) - self.submission.submitted_at

    @property
    def made_for(self) -> timedelta:
        """How long its run took, including the wait in Dagster's queue."""
        return self.at - (self.began_at or self.at)

    @property
    def fresh(self) -> bool:
        """Whether the task was fresh enough for it at the end."""
        made_at = self.success.at if self.success is not None else None
        return is_fresh(made_at, self.submission.required_since)


def unreported(tx: sa.Connection, cluster: str, location: str, *, limit: int) -> list[str]:
    """Returns the submissions of a location with an unreported end, earliest end first.

    The location that declares a task reports runs that a person started outside of any location.

    Args:
        tx: the transaction.
        cluster: the cluster of the submissions.
        location: the code location.
        limit: the maximum number.
    """
    given = {"cluster_": cluster, "location_": location}
    return list(tx.execute(_UNREPORTED.limit(limit), given).scalars())


def ending(tx: sa.Connection, id: str) -> Ending | None:
    """Returns the end of a submission; none: it has not ended, or was pruned."""
    submission = submissions.by_id(tx, id)
    if submission is None or submission.ended_at is None:
        return None
    at = submission.ended_at
    steps = tuple(step for _, step in events_of(tx, submission=id))
    return Ending(
        submission=submission,
        at=at,
        steps=steps,
        # A run that was too late for the end may have recorded steps since.
        step=next((one.step for one in steps if one.at == at and one.step in _ENDS), None),
        began_at=next((one.at for one in steps if one.step in _BEGINS), None),
        shared=submissions.by_id(tx, submission.shares) if submission.shares is not None else None,
        success=_success(tx, submission.task, at),
    )


def note_reported(tx: sa.Connection, id: str, now: datetime) -> None:
    """Marks the end of a submission as reported."""
    submissions.update(tx, id, reported_at=now)


def _success(tx: sa.Connection, task: str, at: datetime) -> Success | None:
    """Returns the last success of a task until a moment."""
    col = task_publications.c
    # Later successes have higher tokens.
    query = sa.select(col.at, col.run_id, col.cluster).where(col.task == task, col.at <= at)
    found = tx.execute(query.order_by(col.token.desc()).limit(1)).first()
    if found is None:
        # Publications are pruned, the last success is kept forever.
        row = tasks.c
        last = sa.select(row.last_success_at, row.last_success_run, row.last_success_cluster)
        found = tx.execute(last.where(row.task == task, row.last_success_at <= at)).first()
    return None if found is None else Success(at=found[0], run_id=found[1], cluster=found[2])


_here, _declared = task_submissions.c, task_definitions.c
_is_declared = sa.exists().where(
    _declared.task == _here.task,
    _declared.cluster == sa.bindparam("cluster_"),
    _declared.location == sa.bindparam("location_"),
)
_UNREPORTED = (
    sa.select(_here.id)
    .where(
        is_unreported,
        _here.cluster == sa.bindparam("cluster_"),
        (_here.location == sa.bindparam("location_"))
        | (_here.by_hand & (_here.location == NOWHERE) & _is_declared),
    )
    .order_by(_here.ended_at, _here.id)
)
