"""The submissions of a cluster that wait, by the state in which they wait."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.freshness import submissions
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.freshness.views.wait_roots import Root, roots
from arctic_orchestration.state.freshness_tables import is_live, task_submissions, task_waits
from arctic_orchestration.waits import (
    CLUSTER,
    Certainty,
    Details,
    Holder,
    Until,
    WaitKind,
    WaitRow,
    WaitRows,
    WaitScope,
    command,
    describe_each,
)

_col = task_submissions.c
#: Its run makes the task: nothing is waited for.
_RUNNING = SubmissionState.RUNNING.value


@cache
def wait_rows() -> tuple[WaitRows, ...]:
    """Returns the submissions of a cluster that have neither ended nor a run at work.

    Causes: ``parents``, ``batch:NAME`` for a slot in a batch, ``shared_run``, ``retry``,
    ``run_start`` for a run that was requested, ``check`` for the next tick.
    """
    return (
        WaitRows(
            kind=WaitKind.TASK,
            table=task_submissions,
            where=(is_live, _col.state != _RUNNING, _col.cluster == CLUSTER),
            keys=(_col.id,),
            id=_col.id,
            name=_col.task,
            location=_col.location,
            # Other states are entered again at each check.
            since=sa.case(
                (_col.state.in_(["retrying", "acquired"]), _col.state_at),
                else_=_col.submitted_at,
            ),
            cause=_cause(),
            reason=_col.reason,
            describe=_described,
        ),
    )


def _cause() -> sa.ColumnElement[str]:
    slot = sa.exists().where(task_waits.c.submission == _col.id, task_waits.c.kind == "batch")
    return sa.case(
        (
            _col.state == SubmissionState.WAITING.value,
            sa.case(
                (slot, sa.literal("batch:") + sa.func.coalesce(_col.batch, "")), else_="parents"
            ),
        ),
        (_col.state == SubmissionState.SHARING.value, "shared_run"),
        (_col.state == SubmissionState.RETRYING.value, "retry"),
        (_col.state == SubmissionState.ACQUIRED.value, "run_start"),
        else_="check",
    )


def _described(
    tx: sa.Connection, rows: Sequence[WaitRow], _: WaitScope
) -> Mapping[tuple[Any, ...], Details | Exception]:
    found = submissions.by_ids(tx, [row.id for row in rows])
    shared = {one.shares for one in found.values() if one.shares is not None}
    others = submissions.by_ids(tx, shared)
    ends = roots(tx, list(found.values()))
    return describe_each(rows, lambda row: _details(found[row.id], others, ends.get(row.id)))


def _details(
    submission: Submission, others: Mapping[str, Submission], root: Root | None
) -> Details:
    held = []
    if root is not None:
        held.append(_holder(root.submission, root.text))
    shared = others.get(submission.shares or "")
    if submission.state is SubmissionState.SHARING and shared is not None:
        held.append(_holder(shared, submission.reason))
    return Details(
        held_by=tuple(held),
        until=_until(submission),
        actions=(command("tasks", "explain", submission.task),),
    )


def _holder(submission: Submission, text: str) -> Holder:
    if submission.run_id is not None and submission.state.owns:
        return Holder(kind="run", id=submission.run_id, text=text)
    return Holder(kind="submission", id=submission.id, text=text)


def _until(submission: Submission) -> Until:
    if submission.state is SubmissionState.RETRYING and submission.next_check_at is not None:
        return Until(certainty=Certainty.KNOWN, at=submission.next_check_at, event="retry")
    if submission.deadline_at is not None:
        return Until(certainty=Certainty.KNOWN, at=submission.deadline_at, event="deadline")
    at = submission.next_check_at
    return Until(at=at, event="check" if at is not None else "")
