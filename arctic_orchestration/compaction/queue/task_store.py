"""Tasks as rows: reads them, and moves them with a line of history for each move."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.queue.task import (
    ENDED,
    TASK_COLUMNS,
    WAITING,
    Move,
    Task,
    TaskState,
    check_move,
)
from arctic_orchestration.errors import InvalidInput, LakeError, NotFound, TransitionRefused
from arctic_orchestration.lake.file_groups import FileGroup
from arctic_orchestration.state import bulk_rows, dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_moves,
    compaction_tables,
    compaction_task_files,
    compaction_tasks,
    in_state,
    is_live,
    is_planned,
)

#: the minimum length of a partial task id
SHORTEST_PART = 4

_COLUMNS = [compaction_tasks.c[name] for name in TASK_COLUMNS]


def task_by_id(tx: sa.Connection, id: str) -> Task:
    """Returns the task with an id.

    Errors:
        NotFound: it does not exist, or was pruned.
    """
    found = _select(tx, compaction_tasks.c.id == id)
    if not found:
        raise NotFound(f"no compaction task {id} (see: arctic compaction tasks list)")
    return found[0]


def task_by_id_part(tx: sa.Connection, part: str) -> Task:
    """Returns the task with a partial id.

    Errors:
        NotFound: no task matches.
        InvalidInput: it is too short, or several tasks match.
    """
    wanted = part.strip().lower()
    if len(wanted) < SHORTEST_PART or not wanted.isalnum():
        raise InvalidInput("ID", part, f"a task's id, or {SHORTEST_PART} or more characters of it")
    found = _select(tx, compaction_tasks.c.id.contains(wanted, autoescape=True), limit=9)
    if not found:
        raise NotFound(f"no compaction task {part} (see: arctic compaction tasks list)")
    if len(found) > 1:
        shown = ", ".join(task.id for task in found[:8]) + (" and more" if len(found) > 8 else "")
        raise InvalidInput("ID", part, f"a part that one task has; several have it: {shown}")
    return found[0]


def tasks(
    tx: sa.Connection,
    *,
    table: str | None = None,
    states: Collection[TaskState] = (),
    limit: int | None = None,
) -> list[Task]:
    """Returns tasks, smallest rank first; without states: of all.

    Args:
        tx: the transaction.
        table: only of this table.
        states: only in these states.
        limit: the maximum number.
    """
    where: list[sa.ColumnElement[bool]] = []
    if table is not None:
        where.append(compaction_tasks.c.table_name == table)
    if states:
        where.append(compaction_tasks.c.state.in_([state.value for state in states]))
    return _select(tx, *where, limit=limit)


def group_of(tx: sa.Connection, id: str) -> FileGroup:
    """Returns the files of a task, and the deletes that applied to them when it was planned.

    Errors:
        LakeError: see :func:`read_group`.
    """
    query = sa.select(compaction_tasks.c.file_group).where(compaction_tasks.c.id == id)
    return read_group(id, tx.execute(query).scalar_one())


def live_groups(tx: sa.Connection, table: str) -> list[FileGroup]:
    """Returns the files of the live tasks of a table.

    Errors:
        LakeError: see :func:`read_group`.
    """
    col = compaction_tasks.c
    query = sa.select(col.id, col.file_group).where(col.table_name == table, is_live)
    return [read_group(id, text) for id, text in tx.execute(query)]


def read_group(id: str, text: str) -> FileGroup:
    """Returns the stored files of a task.

    Errors:
        LakeError: they cannot be read; another version of the package may have written them.
    """
    try:
        return FileGroup.from_json(text)
    except ValueError as error:
        raise LakeError(f"the stored files of task {id} cannot be read: {error}") from error


def history(tx: sa.Connection, id: str) -> list[Move]:
    """Returns the moves of a task, from its creation on."""
    query = (
        sa.select(compaction_moves)
        .where(compaction_moves.c.task_id == id)
        .order_by(compaction_moves.c.id)
    )
    return [
        Move(
            at=row.at,
            before=None if row.from_state is None else TaskState(row.from_state),
            state=TaskState(row.state),
            reason=row.reason,
            attempt_id=row.attempt_id,
        )
        for row in tx.execute(query)
    ]


def ahead_of(tx: sa.Connection, task: Task) -> int:
    """Returns how many tasks of its queue can be claimed before a waiting one."""
    col = compaction_tasks.c
    before = (col.rank < task.rank) | ((col.rank == task.rank) & (col.id < task.id))
    query = sa.select(sa.func.count()).where(is_planned, col.queue == task.queue, before)
    return int(tx.execute(query).scalar_one())


def live_paths(tx: sa.Connection, table: str) -> dict[str, str]:
    """Returns the data files of a table that live tasks own: path and task."""
    col = compaction_task_files.c
    query = sa.select(col.path, col.task_id).where(col.table_name == table)
    return {row.path: row.task_id for row in tx.execute(query)}


def move(
    tx: sa.Connection,
    tasks: Iterable[tuple[str, TaskState]],
    to: TaskState,
    reason: str,
    at: datetime,
    *,
    attempt_id: str | None = None,
    values: Mapping[str, Any] | None = None,
) -> None:
    """Moves tasks to another state, in one transaction with a line of history for each.

    The caller has ensured, by a lock or by the condition of a statement, that they are in the given
    states. Ended tasks release their files; waiting tasks wait in the present queue of their table.

    Args:
        tx: the transaction.
        tasks: ids, each with its present state.
        to: the new state.
        reason: for people.
        at: the moment of the move.
        attempt_id: the attempt that caused it.
        values: other columns of the rows.

    Errors:
        TransitionRefused: a state does not allow the move, or has changed.
    """
    moved = list(tasks)
    if not moved:
        return
    for id, state in moved:
        check_move(id, state, to)
    changes = {"state": to.value, "reason": reason, "state_at": at, **(values or {})}
    if to in ENDED:
        changes["ended_at"] = at
    if to in WAITING:
        # The table may have moved to another queue during the claim.
        changes["queue"] = _QUEUE_OF_TABLE
    ids = [id for id, _ in moved]
    for source in sorted({state for _, state in moved}):
        wanted = [id for id, state in moved if state is source]
        changed = tx.execute(
            sa.update(compaction_tasks)
            .where(dialect.among(tx, compaction_tasks.c.id, wanted), in_state(source.value))
            .values(**changes)
            .returning(compaction_tasks.c.id)
        )
        for id in sorted(set(wanted) - set(changed.scalars())):
            found = task_by_id(tx, id).state
            raise TransitionRefused(
                f"Compaction task {id} is {found} and cannot become {to} as if it were {source}"
            )
    if to in ENDED:
        tx.execute(
            sa.delete(compaction_task_files).where(
                dialect.among(tx, compaction_task_files.c.task_id, ids)
            )
        )
    note_moves(tx, ((id, state, reason) for id, state in moved), to, at, attempt_id)


_QUEUE_OF_TABLE = (
    sa.select(compaction_tables.c.queue)
    .where(compaction_tables.c.name == compaction_tasks.c.table_name)
    .scalar_subquery()
)


def note_moves(
    tx: sa.Connection,
    lines: Iterable[tuple[str, TaskState | None, str]],
    to: TaskState,
    at: datetime,
    attempt_id: str | None = None,
) -> None:
    """Writes lines of history: task, the state before (none: it was created), and the reason."""
    columns = ("task_id", "at", "from_state", "state", "reason", "attempt_id")
    rows = [
        (id, at, before.value if before else None, to.value, reason, attempt_id)
        for id, before, reason in lines
    ]
    bulk_rows.insert_rows(tx, compaction_moves, columns, rows)


def _select(
    tx: sa.Connection, *where: sa.ColumnElement[bool], limit: int | None = None
) -> list[Task]:
    query = sa.select(*_COLUMNS).where(*where)
    query = query.order_by(compaction_tasks.c.rank, compaction_tasks.c.id).limit(limit)
    return [Task.from_row(row) for row in tx.execute(query).mappings()]
