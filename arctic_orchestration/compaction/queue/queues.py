"""Queues of merge tasks.

A named queue gives its tables room of their own (*capacity*: the maximum number of live tasks), a
*level* and a *share* of the workers that serve several queues. The queue ``default`` always exists.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue.budget import held_queues, hours_window
from arctic_orchestration.compaction.queue.queue import (
    ALWAYS,
    CAPACITY,
    CompactionQueue,
    QueueCounts,
    QueueState,
)
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_queues,
    compaction_tables,
    compaction_tasks,
    is_live,
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


def update_queue(tx: sa.Connection, name: str, **changes: Any) -> CompactionQueue:
    """Changes settings of a queue. A capacity below the present number of tasks removes none.

    Args:
        tx: the transaction.
        name: its name.
        changes: fields of :class:`CompactionQueue`.

    Errors:
        NotFound: no such queue; lists the existing ones.
        InvalidInput: a number is out of range, or the hours are none; nothing is changed.
    """
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
