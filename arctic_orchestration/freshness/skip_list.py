"""The skip list: tasks that are not to run for now, in any cluster.

A submission of a skipped task ends at once, with a notice to people. Its children use its own last
success: while that is fresh enough for them they run, and then they fail, naming it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.freshness import definitions
from arctic_orchestration.freshness.ownership import Time
from arctic_orchestration.freshness.status import StatusEvent, Step, report
from arctic_orchestration.state import dialect
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.state.freshness_tables import skipped_tasks


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip:
    """A task on the skip list."""

    task: str
    reason: str
    by: str
    at: datetime


def skip(
    tx: sa.Connection,
    task: str,
    reason: str,
    *,
    by: str,
    cluster: str,
    time: Time = database_time,
) -> Skip:
    """Adds a task to the skip list, or changes its reason. A present run goes on.

    Errors:
        NotFound: no location of any cluster declares it.
        InvalidInput: the reason is empty.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInput("reason", reason, "why it is not to be made, as text")
    if not definitions.declared(tx, [task]):
        raise definitions.unknown(tx, "task", task)
    now = time(tx)
    values = {"reason": reason, "by": by, "at": now}
    new = dialect.insert(tx, skipped_tasks).values(task=task, **values)
    tx.execute(new.on_conflict_do_update(index_elements=["task"], set_=values))
    text = f"put on the skip list by {by}: {reason}"
    event = StatusEvent(task=task, step=Step.SKIP_SET, reason=text, at=now, cluster=cluster)
    report(tx, [event])
    return Skip(task=task, reason=reason, by=by, at=now)


def unskip(
    tx: sa.Connection,
    task: str,
    *,
    by: str,
    cluster: str,
    time: Time = database_time,
) -> None:
    """Removes a task from the skip list.

    Errors:
        NotFound: it is not on the list.
    """
    gone = tx.execute(sa.delete(skipped_tasks).where(skipped_tasks.c.task == task))
    if not gone.rowcount:
        listed = ", ".join(one.task for one in skips(tx)) or "nothing"
        raise NotFound(f"task {task} is not on the skip list, which has: {listed}")
    text = f"taken off the skip list by {by}"
    event = StatusEvent(task=task, step=Step.SKIP_LIFTED, reason=text, at=time(tx), cluster=cluster)
    report(tx, [event])


def reasons(tx: sa.Connection, names: Sequence[str]) -> dict[str, str]:
    """Returns why some tasks are on the skip list, by their names; omits the others."""
    return {one.task: f"{one.reason} (by {one.by})" for one in skips(tx, names)}


def skips(tx: sa.Connection, names: Sequence[str] | None = None) -> list[Skip]:
    """Returns the skip list, or its entries for some tasks, by name."""
    query = sa.select(skipped_tasks).order_by(skipped_tasks.c.task)
    if names is not None:
        query = query.where(dialect.among(tx, skipped_tasks.c.task, names))
    return [
        Skip(task=row.task, reason=row.reason, by=row.by, at=row.at) for row in tx.execute(query)
    ]
