"""How submissions ended, for who reports each end once: those with no run show up nowhere else.

Who reports notes it afterwards, on the row of the submission: one who dies in between reports that
end again, and none is missed. A cursor over moments or ids would miss those that are committed
after later ones; a row that bears no note yet is found whenever it came.
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

#: by which a submission ends
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
#: from which on it is made
_BEGINS = frozenset({Step.ACQUIRED, Step.BEGUN})


@dataclass(frozen=True, kw_only=True, slots=True)
class Success:
    """The success that a task had at some moment.

    Attributes:
        at: when it was published.
        run_id: by which run; none: it is not known.
        cluster: of that run.
    """

    at: datetime
    run_id: str | None
    cluster: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The end of a submission, with what was so just then.

    Attributes:
        submission: it.
        at: when it ended, by the database's time.
        steps: all that it went through.
        step: that by which it ended; none: its steps are not kept any more.
        began_at: when the task was its own to make for the first time; none: it never was.
        shared: the submission whose run it shared; none: it did not.
        success: the last success of the task at the end; none: it was never made.
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
        """How long nothing was made: until the task was its own to make, or until the end."""
        return (self.began_at or self.at) - self.submission.submitted_at

    @property
    def made_for(self) -> timedelta:
        """How long it was being made, waits for a place in Dagster's queue included."""
        return self.at - (self.began_at or self.at)

    @property
    def fresh(self) -> bool:
        """Whether the task was fresh enough for it in the end."""
        made_at = self.success.at if self.success is not None else None
        return is_fresh(made_at, self.submission.required_since)


def unreported(tx: sa.Connection, cluster: str, location: str, *, limit: int) -> list[str]:
    """The submissions of a location whose end was not reported yet, who ended first goes first.

    Runs that a person started outside of any location are reported where their task is declared.

    Args:
        tx: the transaction.
        cluster: the cluster on which they were to be made.
        location: the code location.
        limit: at most so many.
    """
    given = {"cluster_": cluster, "location_": location}
    return list(tx.execute(_UNREPORTED.limit(limit), given).scalars())


def ending(tx: sa.Connection, id: str) -> Ending | None:
    """The end of a submission; none: it has not ended, or is not kept any more."""
    asked = submissions.by_id(tx, id)
    if asked is None or asked.ended_at is None:
        return None
    at = asked.ended_at
    steps = tuple(step for _, step in events_of(tx, submission=id))
    return Ending(
        submission=asked,
        at=at,
        steps=steps,
        # A run that was too late for the end may have told of itself since.
        step=next((one.step for one in steps if one.at == at and one.step in _ENDS), None),
        began_at=next((one.at for one in steps if one.step in _BEGINS), None),
        shared=submissions.by_id(tx, asked.shares) if asked.shares is not None else None,
        success=_success(tx, asked.task, at),
    )


def note_reported(tx: sa.Connection, id: str, now: datetime) -> None:
    """Notes that the end of a submission was reported."""
    submissions.update(tx, id, reported_at=now)


def _success(tx: sa.Connection, task: str, at: datetime) -> Success | None:
    """The last success of a task until a moment."""
    here = task_publications.c
    # Later successes have higher tokens.
    query = sa.select(here.at, here.run_id, here.cluster).where(here.task == task, here.at <= at)
    found = tx.execute(query.order_by(here.token.desc()).limit(1)).first()
    if found is None:
        # Publications are kept for some time only, the last success for ever.
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
