"""What a submission waits for, as rows: the end of any of them wakes it.

A change of its location's definitions does too.
"""

from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.freshness.criteria import TaskSpec
from arctic_orchestration.freshness.decision import Decision
from arctic_orchestration.freshness.definitions import RegisteredLocation
from arctic_orchestration.freshness.status import Step
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.freshness_tables import (
    is_live,
    task_definitions,
    task_submissions,
    task_waits,
)


def note(
    tx: sa.Connection,
    submission: Submission,
    spec: TaskSpec,
    decision: Decision,
    made: Mapping[str, str],
    now: datetime,
) -> bool:
    """Records what a submission waits for, from a decision.

    Args:
        tx: the transaction.
        submission: the submission, locked.
        spec: its declaration.
        decision: the decision to wait.
        made: submissions that were created for it, by their task.
        now: the moment.

    Returns:
        whether the waits changed.
    """
    mine = task_waits.c.submission == submission.id
    known = {}
    if submission.state is SubmissionState.WAITING:
        found = tx.execute(sa.select(task_waits).where(mine))
        known = {(row.kind, row.name): row for row in found}
    wanted: dict[tuple[str, str], tuple[str | None, int | None]] = {}
    if decision.step is Step.WAITS_FOR_PLACE:
        wanted["batch", spec.batch or ""] = None, spec.concurrency
    else:
        for name, live in decision.waits_for.items():
            wanted["task", name] = made.get(name) or live, None
    if {key: (row.parent_submission, row.slots) for key, row in known.items()} == wanted:
        return False
    if known:
        tx.execute(sa.delete(task_waits).where(mine))
    rows = [
        {
            "submission": submission.id,
            "kind": kind,
            "name": name,
            "parent_submission": parent,
            "slots": slots,
            "since": known[(kind, name)].since if (kind, name) in known else now,
        }
        for (kind, name), (parent, slots) in wanted.items()
    ]
    tx.execute(sa.insert(task_waits), rows)
    return True


def extend(tx: sa.Connection, place: RegisteredLocation, now: datetime) -> None:
    """Extends the deadlines of a location by the time in which it did not tick.

    Called before any location is locked: submissions come first.

    Args:
        tx: the transaction.
        place: its record, with its last tick.
        now: the moment of its present tick.
    """
    since = place.ticked_at
    if since is None:
        return
    col = task_submissions.c
    query = sa.select(col.id, col.deadline_at, col.state_at).where(
        col.cluster == place.cluster, col.location == place.location, is_live,
        col.state == SubmissionState.WAITING.value, col.deadline_at.is_not(None),
    )  # fmt: skip
    # The last check, which wrote its state, may be later than the recorded tick.
    extended = [
        {"of": row.id, "until": row.deadline_at + (now - max(since, row.state_at))}
        for row in tx.execute(query.order_by(col.id).with_for_update())
    ]
    if extended:
        tx.execute(_EXTENDED, extended)


def follow(database: Database, cluster: str, location: str, now: datetime) -> None:
    """Applies changed definitions of a location to its live submissions; repeatable.

    They use slots of the batch to which their task belongs now, also while it runs; and those that
    wait are checked again.

    Args:
        database: the state database. The transaction is one of its own: a registration has locked
            the location, and submissions come first.
        cluster: the cluster of the location.
        location: the code location.
        now: the moment.
    """
    row, spec = task_submissions.c, task_definitions.c
    same = (spec.task == row.task, spec.cluster == row.cluster, spec.location == row.location)
    batch = sa.case((spec.task.is_(None), row.batch), else_=spec.batch)
    news = spec.task.is_(None) | batch.is_distinct_from(row.batch)
    # Each check writes the moment of the state.
    news |= spec.declared_at >= row.state_at
    query = (
        sa.select(row.id, batch.label("batch"))
        .outerjoin(task_definitions, sa.and_(*same))
        .where(row.cluster == cluster, row.location == location, is_live, news)
        .order_by(row.id)
        .with_for_update(of=task_submissions)
    )
    with database.begin() as tx:
        found = [{"of": one.id, "in": one.batch, "now": now} for one in tx.execute(query)]
        if found:
            tx.execute(_FOLLOWS, found)


_FOLLOWS = (
    sa.update(task_submissions)
    .where(task_submissions.c.id == sa.bindparam("of"))
    .values(
        batch=sa.bindparam("in"),
        next_check_at=sa.case(
            (
                task_submissions.c.state == SubmissionState.WAITING.value,
                sa.bindparam("now", type_=task_submissions.c.next_check_at.type),
            ),
            else_=task_submissions.c.next_check_at,
        ),
    )
)
_EXTENDED = (
    sa.update(task_submissions)
    .where(task_submissions.c.id == sa.bindparam("of"))
    .values(deadline_at=sa.bindparam("until"))
)
