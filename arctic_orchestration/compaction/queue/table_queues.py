"""The mapping of tables to queues.

A table belongs to the queue that a person mapped it to, else to the queue in its property, else to
``default``.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import queues, task_store
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.tables import CompactionTable, lock_table, make_due, update
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_queues,
    compaction_tables,
    compaction_tasks,
    is_waiting,
)


def map_table(tx: sa.Connection, table: str, queue: str, now: datetime) -> int:
    """Maps a table to a queue manually, which overrides its property.

    Waiting tasks move with their age, even into a full queue; claimed and merged tasks stay in the
    queue from which they were claimed; if they wait again, they follow at the table's next check.

    Returns:
        the number of moved tasks.

    Errors:
        NotFound: no such table, or no such queue.
    """
    found = lock_table(tx, table)
    return _assign(tx, found, queue, found.property_queue, now, {})


def unmap_table(tx: sa.Connection, table: str, now: datetime) -> int:
    """Returns a table to the queue in its property, else to ``default``.

    Returns:
        the number of moved waiting tasks.

    Errors:
        NotFound: no such table.
    """
    found = lock_table(tx, table)
    return _assign(tx, found, None, found.property_queue, now, {})


def see_table(
    tx: sa.Connection, table: str, *, queue: str | None, level: int, now: datetime
) -> CompactionTable:
    """Records the catalog's facts about a table, and locks its row until the transaction ends.

    A new table is registered; waiting tasks of a table move if its property names another queue
    than before.

    Args:
        tx: the transaction.
        table: its name in the catalog.
        queue: the queue in its property; none: it has none.
        level: the level in its property.
        now: when it was seen.
    """
    new = dialect.insert(tx, compaction_tables).values(
        name=table, queue=queues.DEFAULT, queue_reason="", seen_at=now
    )
    tx.execute(new.on_conflict_do_nothing())
    found = lock_table(tx, table)
    seen: dict[str, Any] = {"level": level, "seen_at": now, "gone_at": None}
    _assign(tx, found, found.mapped_to, queue, now, seen)
    if found.gone_at is not None:
        # Its waiting tasks were canceled, and it may be as it was when it was planned last.
        make_due(tx, table, "the catalog has it again", now)
    elif found.looked_at is not None and found.level != level:
        # Waiting tasks have the level of their plan until the next one.
        make_due(tx, table, f"its level is {level}", now)
    return lock_table(tx, table)


def _assign(
    tx: sa.Connection,
    table: CompactionTable,
    mapped_to: str | None,
    property: str | None,
    now: datetime,
    seen: Mapping[str, Any],
) -> int:
    """Updates the queue of a locked table, and moves its waiting tasks there."""
    queue, reason = _resolved(tx, mapped_to, property)
    if (queue, reason) != (table.queue, table.queue_reason):
        # Locks both queues against deletion and counting while tasks move.
        names = sorted({queue, table.queue, queues.DEFAULT})
        held = sa.select(compaction_queues.c.name).where(compaction_queues.c.name.in_(names))
        held = held.order_by(compaction_queues.c.name).with_for_update(key_share=True)
        tx.execute(held).all()
        queue, reason = _resolved(tx, mapped_to, property)
    update(
        tx, table.name, mapped_to=mapped_to, property_queue=property, queue=queue,
        queue_reason=reason, **seen,
    )  # fmt: skip
    # Also tasks that were claimed when the table moved, and wait again.
    col = compaction_tasks.c
    strayed = (
        sa.select(col.id, col.state, col.queue)
        .where(col.table_name == table.name, is_waiting, col.queue != queue)
        .order_by(col.id)
        .with_for_update(key_share=True)
    )
    moved = tx.execute(strayed).all()
    if moved:
        ids = [row.id for row in moved]
        tx.execute(
            sa.update(compaction_tasks).where(dialect.among(tx, col.id, ids)).values(queue=queue)
        )
    for state in sorted({row.state for row in moved}):
        same = TaskState(state)
        lines = [
            (row.id, same, f"moved from queue {row.queue} to queue {queue}: {reason}")
            for row in moved
            if row.state == state
        ]
        task_store.note_moves(tx, lines, same, now)
    return len(moved)


def _resolved(tx: sa.Connection, mapped_to: str | None, property: str | None) -> tuple[str, str]:
    if mapped_to is not None:
        queues.queue_by_name(tx, mapped_to)
        return mapped_to, "mapped manually"
    if property is None:
        return queues.DEFAULT, "no queue is named"
    query = sa.select(compaction_queues.c.name).where(compaction_queues.c.name == property)
    if tx.execute(query).scalar() is None:
        return queues.DEFAULT, f"the table's property names queue {property}, which does not exist"
    return property, "named by the table's property"
