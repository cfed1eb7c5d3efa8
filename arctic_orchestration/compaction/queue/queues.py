"""Queues of merge tasks, and the mapping of tables to queues.

A named queue gives its tables room of their own (*capacity*: the maximum number of live tasks), a
*level* and a *share* of the workers that serve several queues. The queue ``default`` always exists.
A table belongs to the queue that a person mapped it to, else to the queue in its property, else to
``default``.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.budget import held_queues, hours_window
from arctic_orchestration.compaction.queue.queue import (
    ALWAYS,
    CAPACITY,
    CompactionQueue,
    QueueCounts,
    QueueState,
)
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.tables import CompactionTable, lock_table
from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_queues,
    compaction_tables,
    compaction_tasks,
    is_live,
    is_waiting,
)

__all__ = ["ALWAYS", "CAPACITY", "CompactionQueue", "QueueCounts", "QueueState"]

DEFAULT = "default"
#: the range of levels, in both directions
HIGHEST_LEVEL = 1000
#: the maximum value of the column
_LARGEST = 1_000_000_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SPARK = re.compile(r"spark\.[^\s=]+")
_NAME_EXPECTED = "a name of 1 to 40 of A-Z a-z 0-9 _ -, beginning with a letter or digit"


def add_queue(tx: sa.Connection, queue: CompactionQueue, now: datetime) -> None:
    """Adds a queue.

    Tables whose property already names it move to it at their next check.

    Errors:
        InvalidInput: the name is taken or empty, or a number is out of range.
    """
    if not isinstance(queue.name, str) or not _NAME.fullmatch(queue.name):
        raise InvalidInput("name", queue.name, _NAME_EXPECTED)
    _check(queue)
    new = dialect.insert(tx, compaction_queues).values(created_at=now, **_values(queue))
    if tx.execute(new.on_conflict_do_nothing()).rowcount != 1:
        raise InvalidInput("name", queue.name, "a name that no compaction queue has yet")


def update_queue(
    tx: sa.Connection,
    name: str,
    *,
    capacity: int | None = None,
    level: int | None = None,
    share: int | None = None,
    max_workers: int | None = None,
    min_workers: int | None = None,
    execution_timeout_seconds: int | None = None,
    hours: str | None = None,
    budget: float | None = None,
    application: Mapping[str, str] | None = None,
    session: bool = False,
) -> CompactionQueue:
    """Changes the given settings. A capacity below the present number of tasks removes none.

    Args:
        application: workers start applications with these Spark properties.
        session: workers use the session of their code location again.

    Errors:
        NotFound: no such queue; lists the existing ones.
        InvalidInput: a number is out of range, or the hours are none; nothing is changed.
    """
    given = {
        "capacity": capacity,
        "level": level,
        "share": share,
        "max_workers": max_workers,
        "min_workers": min_workers,
        "execution_timeout_seconds": execution_timeout_seconds,
        "hours": hours,
        "budget": budget,
        "application": application,
    }
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if session:
        changes["application"] = None
    queue = replace(lock_queue(tx, name), **changes)
    _check(queue)
    tx.execute(
        sa.update(compaction_queues)
        .where(compaction_queues.c.name == name)
        .values(**_values(queue))
    )
    return queue


def set_state(tx: sa.Connection, name: str, state: QueueState) -> QueueState:
    """Pauses, drains or resumes a queue.

    Returns:
        the state before.

    Errors:
        NotFound: no such queue; lists the existing ones.
    """
    before = lock_queue(tx, name).state
    here = compaction_queues
    tx.execute(sa.update(here).where(here.c.name == name).values(state=state.value))
    return before


def delete_queue(tx: sa.Connection, name: str) -> None:
    """Deletes a queue that has neither live tasks nor tables.

    Errors:
        NotFound: no such queue.
        InvalidInput: it is ``default``, or has tables or tasks, which are named or counted.
    """
    if name == DEFAULT:
        raise InvalidInput("name", name, "another queue: default is always there")
    # The key too: a concurrent mapping of a table waits, and then does not find the queue.
    _one(tx, name, sa.select(compaction_queues).with_for_update())
    col = compaction_tables.c
    query = sa.select(col.name, col.mapped_to)
    query = query.where((col.queue == name) | (col.mapped_to == name)).order_by(col.name)
    found = tx.execute(query).all()
    mapped = [table for table, mapped_to in found if mapped_to == name]
    named = [table for table, mapped_to in found if mapped_to != name]
    uses = []
    if mapped:
        uses.append(f"mapped to it: {_shown(mapped)} (unmap them, or map them elsewhere)")
    if named:
        uses.append(f"named by their property: {_shown(named)} (change it, or map them elsewhere)")
    if uses:
        raise InvalidInput("name", name, f"a queue without tables; {'; '.join(uses)}")
    counts = _states(tx, name).get(name)
    if counts:
        shown = ", ".join(f"{count} {state}" for state, count in counts.items())
        raise InvalidInput("name", name, f"a queue without live tasks; it has: {shown}")
    tx.execute(sa.delete(compaction_queues).where(compaction_queues.c.name == name))


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def queues(tx: sa.Connection) -> list[CompactionQueue]:
    """Returns all queues, highest level first, then by name."""
    col = compaction_queues.c
    query = sa.select(compaction_queues).order_by(col.level.desc(), col.name)
    return [_from_row(row) for row in tx.execute(query).mappings()]


def queue_by_name(tx: sa.Connection, name: str) -> CompactionQueue:
    """Returns the queue with a name.

    Errors:
        NotFound: no such queue; lists the existing ones.
    """
    return _one(tx, name, sa.select(compaction_queues))


def lock_queue(tx: sa.Connection, name: str) -> CompactionQueue:
    """Like :func:`queue_by_name`; locks the queue for offers until the transaction ends."""
    # Not a lock of the key: registering a table refers to it meanwhile, and need not wait.
    return _one(tx, name, sa.select(compaction_queues).with_for_update(key_share=True))


def counted(tx: sa.Connection) -> list[QueueCounts]:
    """Returns all queues with their counts, in the order of :func:`queues`."""
    states = _states(tx)
    query = sa.select(compaction_tables.c.queue, sa.func.count()).group_by(
        compaction_tables.c.queue
    )
    tables: dict[str, int] = {row[0]: row[1] for row in tx.execute(query)}
    held = held_queues(tx, dialect.database_time(tx))
    return [
        QueueCounts(
            queue=queue,
            held=held[queue.name].reason if queue.name in held else None,
            states=states.get(queue.name, {}),
            tables=tables.get(queue.name, 0),
        )
        for queue in queues(tx)
    ]


def room_in(tx: sa.Connection, queue: CompactionQueue) -> int:
    """Returns how much room a locked queue has, counted from its rows; none if it drains."""
    if queue.state is QueueState.DRAINING:
        return 0
    query = sa.select(sa.func.count()).where(is_live, compaction_tasks.c.queue == queue.name)
    return max(queue.capacity - int(tx.execute(query).scalar_one()), 0)


def queues_with_room(tx: sa.Connection) -> frozenset[str]:
    """Returns the names of the queues with room; locks nothing."""
    col = compaction_queues.c
    live = sa.select(sa.func.count()).where(is_live, compaction_tasks.c.queue == col.name)
    query = sa.select(col.name).where(
        col.capacity > live.scalar_subquery(), col.state != QueueState.DRAINING.value
    )
    return frozenset(tx.execute(query).scalars())


def queue_of(tx: sa.Connection, table: str, property: str | None) -> tuple[str, str]:
    """Returns the queue of a table, and why it is that queue.

    Args:
        tx: the transaction.
        table: its name; an unknown table has no mapping.
        property: the queue in the table's property; none: it names none.
    """
    query = sa.select(compaction_tables.c.mapped_to).where(compaction_tables.c.name == table)
    return _resolved(tx, tx.execute(query).scalar(), property)


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
        name=table, queue=DEFAULT, queue_reason="", seen_at=now
    )
    tx.execute(new.on_conflict_do_nothing())
    found = lock_table(tx, table)
    seen: dict[str, Any] = {"level": level, "seen_at": now, "gone_at": None}
    _assign(tx, found, found.mapped_to, queue, now, seen)
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
        names = sorted({queue, table.queue, DEFAULT})
        held = sa.select(compaction_queues.c.name).where(compaction_queues.c.name.in_(names))
        held = held.order_by(compaction_queues.c.name).with_for_update(key_share=True)
        tx.execute(held).all()
        queue, reason = _resolved(tx, mapped_to, property)
    tx.execute(
        sa.update(compaction_tables)
        .where(compaction_tables.c.name == table.name)
        .values(mapped_to=mapped_to, property_queue=property, queue=queue, queue_reason=reason,
                **seen)
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
        queue_by_name(tx, mapped_to)
        return mapped_to, "mapped manually"
    if property is None:
        return DEFAULT, "no queue is named"
    query = sa.select(compaction_queues.c.name).where(compaction_queues.c.name == property)
    if tx.execute(query).scalar() is None:
        return DEFAULT, f"the table's property names queue {property}, which does not exist"
    return property, "named by the table's property"


def _states(tx: sa.Connection, queue: str | None = None) -> dict[str, dict[TaskState, int]]:
    """Returns live tasks by queue and state."""
    col = compaction_tasks.c
    query = sa.select(col.queue, col.state, sa.func.count()).where(is_live)
    if queue is not None:
        query = query.where(col.queue == queue)
    found: dict[str, dict[TaskState, int]] = {}
    for name, state, count in tx.execute(query.group_by(col.queue, col.state)):
        found.setdefault(name, {})[TaskState(state)] = count
    return {name: dict(sorted(states.items())) for name, states in found.items()}


def _one(tx: sa.Connection, name: str, query: sa.Select[Any]) -> CompactionQueue:
    row = tx.execute(query.where(compaction_queues.c.name == name)).mappings().one_or_none()
    if row is None:
        known = ", ".join(sorted(queue.name for queue in queues(tx)))
        raise NotFound(f"no compaction queue {name}; there is: {known}")
    return _from_row(row)


def _from_row(row: Mapping[Any, Any]) -> CompactionQueue:
    values = {field.name: row[field.name] for field in fields(CompactionQueue)}
    application = row["application"]
    values["application"] = None if application is None else json.loads(application)
    return CompactionQueue(**{**values, "state": QueueState(row["state"])})


def _values(queue: CompactionQueue) -> dict[str, Any]:
    values = {field.name: getattr(queue, field.name) for field in fields(queue)}
    if queue.application is not None:
        values["application"] = json.dumps(queue.application, sort_keys=True)
    return values


def _check(queue: CompactionQueue) -> None:
    ranges = {
        "capacity": (1, _LARGEST),
        "level": (-HIGHEST_LEVEL, HIGHEST_LEVEL),
        "share": (1, _LARGEST),
        "max_workers": (0, _LARGEST),
        "min_workers": (0, _LARGEST),
        "execution_timeout_seconds": (1, _LARGEST),
    }
    for name, (least, most) in ranges.items():
        value = getattr(queue, name)
        if type(value) is not int or not least <= value <= most:
            raise InvalidInput(name, value, f"a whole number, {least} to {most}")
    if queue.min_workers > queue.max_workers:
        raise InvalidInput(
            "min_workers", queue.min_workers, f"at most max_workers, {queue.max_workers}"
        )
    for name, value in (queue.application or {}).items():
        if not _SPARK.fullmatch(name):
            raise InvalidInput("application", f"{name}={value}", "properties spark.NAME=VALUE")
    budget = queue.budget
    if type(budget) not in (int, float) or not (budget == 0 or 0.001 <= budget <= _LARGEST):
        raise InvalidInput("budget", budget, f"a number, 0.001 to {_LARGEST}, or 0: no limit")
    hours_window(queue.hours)
