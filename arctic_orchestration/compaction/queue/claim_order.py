"""Which task is claimed next: the queue by shares, the task in it by rank."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.budget import held_queues
from arctic_orchestration.compaction.queue.queues import QueueState
from arctic_orchestration.compaction.queue.task import TASK_COLUMNS, TaskState
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_attempts,
    compaction_queues,
    compaction_tasks,
    is_claimed,
    is_failed,
    is_planned,
    is_uncleaned,
)
from arctic_orchestration.state.dialect import UtcTime

#: why a task is released that could be merged
WORKER_ENDS = "its worker ends"
#: how long tasks of other tables come first after another release
_OTHERS_FIRST = timedelta(minutes=1)

#: the first task of a queue that no other worker is about to claim
FIRST = (
    sa.select(*(compaction_tasks.c[name] for name in TASK_COLUMNS), compaction_tasks.c.file_group)
    .where(is_planned, compaction_tasks.c.queue == sa.bindparam("of_queue"))
    .order_by(compaction_tasks.c.rank, compaction_tasks.c.id)
    .limit(1)
    .with_for_update(skip_locked=True, key_share=True)
)

#: in two parts, for the partial index of each
_CLAIMABLE = sa.union_all(
    *(
        sa.select(compaction_tasks.c.queue, sa.func.count())
        .join(compaction_queues, compaction_queues.c.name == compaction_tasks.c.queue)
        .where(condition, compaction_queues.c.state != QueueState.PAUSED.value)
        .group_by(compaction_tasks.c.queue)
        for condition in (
            is_planned,
            is_failed & (compaction_tasks.c.not_before <= sa.bindparam("now", type_=UtcTime())),
        )
    )
)


def first_claimable(
    tx: sa.Connection, queues: Sequence[str], table: str | None, now: datetime
) -> Mapping[Any, Any] | None:
    """Locks the row of the next task, and returns it with its group of files.

    Args:
        tx: the transaction.
        queues: their names; empty: all queues.
        table: only of this table; none: of any.
        now: the moment.

    Returns:
        none: nothing is claimable that no other worker is about to claim.
    """
    first = FIRST if table is None else FIRST.where(compaction_tasks.c.table_name == table)
    searches = [first]
    if broken := _broken_tables(tx, now):
        # If nothing else waits, they may work again.
        others = ~dialect.among(tx, compaction_tasks.c.table_name, broken)
        searches = [first.where(others), first]
    waiting = _by_share(tx, queues)
    held = held_queues(tx, now, claims_from=waiting)
    for search in searches:
        for queue in waiting:
            if queue in held:
                continue
            row = tx.execute(search, {"of_queue": queue}).mappings().one_or_none()
            if row is not None:
                return row
    return None


def _broken_tables(tx: sa.Connection, now: datetime) -> list[str]:
    """Returns tables of which a task was just released because what it needs is out of order.

    As the first of its queue, such a task would be claimed again and again before all others.
    """
    col = compaction_attempts.c
    lately = (col.state == "released") & (col.over_at > now - _OTHERS_FIRST)
    query = sa.select(col.table_name).where(is_uncleaned, lately, col.reason != WORKER_ENDS)
    return sorted(set(tx.execute(query).scalars()))


def claimable(tx: sa.Connection, now: datetime) -> Counter[str]:
    """Counts the tasks that workers may claim now, by queue; two statements, for frequent use."""
    counts: Counter[str] = Counter()
    for name, number in tx.execute(_CLAIMABLE, {"now": now}):
        counts[name] += number
    for name in held_queues(tx, now):
        del counts[name]
    return counts


def plan_again(tx: sa.Connection, now: datetime) -> int:
    """Makes failed tasks claimable again after their retry interval.

    Returns:
        the number of tasks.
    """
    col = compaction_tasks.c
    query = (
        sa.select(col.id, col.attempts, col.max_attempts)
        .where(is_failed, col.not_before <= now)
        .with_for_update(skip_locked=True, key_share=True)
    )
    rested = tx.execute(query).all()
    for row in rested:
        reason = f"waits for attempt {row.attempts + 1} of {row.max_attempts}"
        task_store.move(
            tx, [(row.id, TaskState.FAILED)], TaskState.PLANNED, reason, now,
            values={"not_before": None},
        )  # fmt: skip
    return len(rested)


def _by_share(tx: sa.Connection, names: Sequence[str]) -> list[str]:
    """Returns the queues with claimable tasks, the one furthest below its share first."""
    queue, task = compaction_queues.c, compaction_tasks.c
    active = sa.select(sa.func.count()).where(is_claimed, task.queue == queue.name)
    waits = sa.exists().where(is_planned, task.queue == queue.name)
    claimed_from = queue.state != QueueState.PAUSED.value
    query = sa.select(
        queue.name, queue.share, queue.level, active.scalar_subquery().label("active")
    ).where(waits, claimed_from)
    if names:
        query = query.where(dialect.among(tx, queue.name, names))
    rows = tx.execute(query).all()
    return [
        row.name
        for row in sorted(
            rows, key=lambda row: (Fraction(row.active, row.share), -row.level, row.name)
        )
    ]
