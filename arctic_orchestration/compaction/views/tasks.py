"""Merge tasks for people and programs: lists of them, and the details of each."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue.task import (
    ENDED,
    LIVE,
    TASK_COLUMNS,
    WAITING,
    Task,
    TaskState,
)
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import compaction_tasks

_col = compaction_tasks.c
#: words for several states
SEVERAL = {"waiting": WAITING, "live": LIVE, "ended": ENDED, "all": tuple(TaskState)}


#: where a list goes on: the rank of a live task, or the end of another, and its id
After = tuple[int | datetime, str]


def parse_states(words: Sequence[str]) -> list[TaskState]:
    """Parses states and words for several of them.

    Errors:
        InvalidInput: another word.
    """
    states: set[TaskState] = set()
    for word in words:
        if word in SEVERAL:
            states.update(SEVERAL[word])
        elif word in list(TaskState):
            states.add(TaskState(word))
        else:
            expected = ", ".join([*(state.value for state in TaskState), *SEVERAL])
            raise InvalidInput("--state", word, f"one of {expected}")
    return [state for state in TaskState if state in states]


def tasks_by_state(tx: sa.Connection, table: str | None, queue: str | None) -> dict[TaskState, int]:
    """Counts tasks by state."""
    query = sa.select(_col.state, sa.func.count()).where(*_of(table, queue))
    return {TaskState(state): count for state, count in tx.execute(query.group_by(_col.state))}


def list_tasks(
    tx: sa.Connection,
    states: Collection[TaskState],
    *,
    table: str | None = None,
    queue: str | None = None,
    queues: Collection[str] | None = None,
    after: After | None = None,
    limit: int,
) -> list[Task]:
    """Returns live tasks in the order of their claims, then those that ended, newest first.

    Args:
        tx: the transaction.
        states: only in these.
        table: only of this table.
        queue: only of this queue.
        queues: only of these queues; None: of all.
        after: only those that follow it: see :func:`position_of`.
        limit: the maximum number.
    """
    where = _of(table, queue)
    if queues is not None:
        where.append(dialect.among(tx, _col.queue, queues))
    place, id = after if after is not None else (None, "")
    found: list[Task] = []
    live = [state.value for state in states if state in LIVE]
    if live and not isinstance(place, datetime):
        later = [] if place is None else [sa.tuple_(_col.rank, _col.id) > (place, id)]
        found = _select(tx, [*where, *later, _col.state.in_(live)], [_col.rank, _col.id], limit)
    ended = [state.value for state in states if state in ENDED]
    if ended and len(found) < limit:
        older = []
        if isinstance(place, datetime):
            older = [(_col.ended_at < place) | ((_col.ended_at == place) & (_col.id < id))]
        order = [_col.ended_at.desc(), _col.id.desc()]
        found += _select(tx, [*where, *older, _col.state.in_(ended)], order, limit - len(found))
    return found


def position_of(task: Task) -> After:
    """Returns the position of a task in lists."""
    return (task.rank if task.ended_at is None else task.ended_at), task.id


def _of(table: str | None, queue: str | None) -> list[sa.ColumnElement[bool]]:
    where: list[sa.ColumnElement[bool]] = []
    if table is not None:
        where.append(_col.table_name == table)
    if queue is not None:
        where.append(_col.queue == queue)
    return where


def _select(
    tx: sa.Connection,
    where: Sequence[sa.ColumnElement[bool]],
    order: Sequence[sa.ColumnElement[Any]],
    limit: int,
) -> list[Task]:
    query = sa.select(*(_col[name] for name in TASK_COLUMNS)).where(*where)
    rows = tx.execute(query.order_by(*order).limit(limit)).mappings()
    return [Task.from_row(row) for row in rows]
