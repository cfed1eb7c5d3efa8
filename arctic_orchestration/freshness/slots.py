"""The slots of a batch: how many of its tasks run at once, and which waiting submissions are next.

Each location has a line of its own for each number of slots, oldest submission first. A free slot
makes the first submission of each line due, and no more of them than there are free slots: a
location that does not tick keeps its line waiting, and no other one. A submission that was first
and does not take the slot passes it on to those behind it.
"""

from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.state.freshness_tables import is_live, task_submissions, task_waits, tasks

#: An owner whose lease expired this long ago is gone with its cluster, and frees its slot in its
#: batch; until then its location may only be restarting.
_GONE = timedelta(minutes=5)


def running(tx: sa.Connection, batch: str, now: datetime, *, besides: str | None = None) -> int:
    """Returns how many tasks of a batch run, in all clusters, with a live owner.

    The task ``besides`` is not counted: taking it over needs no other slot.
    """
    col = task_submissions.c
    query = (
        sa.select(sa.func.count())
        .select_from(task_submissions)
        .join(tasks, (tasks.c.task == col.task) & (tasks.c.submission == col.id))
        .where(is_live, col.batch == batch, col.state.in_(["acquired", "running"]))
        .where(tasks.c.expires_at > now - _GONE)
    )
    if besides is not None:
        query = query.where(col.task != besides)
    return int(tx.execute(query).scalar_one())


def awaited_by(tx: sa.Connection, submission: Submission) -> str | None:
    """Returns the batch in which a submission waits for a slot; none: it waits for none."""
    if submission.state is not SubmissionState.WAITING:
        return None
    col = task_waits.c
    query = sa.select(col.name).where(col.submission == submission.id, col.kind == "batch")
    found: str | None = tx.execute(query).scalar()
    return found


def next_in_line(
    tx: sa.Connection, batch: str, now: datetime, *, behind: str | None = None
) -> list[str]:
    """Returns the submissions that can take the free slots of a batch.

    Args:
        tx: the transaction.
        batch: its name.
        now: the moment.
        behind: only submissions behind this one.

    Cost: two statements; the second reads the waits for the batch.
    """
    row, wait = task_submissions.c, task_waits.c
    taken = running(tx, batch, now)
    # A version before revision 0034 did not store the number.
    free = sa.func.coalesce(wait.slots, taken + 1) - taken
    line = (row.cluster, row.location, wait.slots)
    place = sa.func.row_number().over(partition_by=line, order_by=row.id)
    query = (
        sa.select(row.id, free.label("free"), place.label("place"))
        .join(task_waits, wait.submission == row.id)
        .where(wait.kind == "batch", wait.name == batch)
        .where(row.state == SubmissionState.WAITING.value)
    )
    if behind is not None:
        query = query.where(row.id > behind)
    found = query.subquery()
    first = sa.select(found.c.id).where(found.c.place <= found.c.free)
    return list(tx.execute(first).scalars())
