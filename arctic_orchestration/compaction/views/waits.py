"""The merge tasks and tables that wait, over all clusters: compaction belongs to all of them."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.planning.policy import DISABLED
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.views.task_waits import QueueNow, Waiting, queue_now, wait_of
from arctic_orchestration.state import dialect
from arctic_orchestration.state.compaction_tables import (
    compaction_queues,
    compaction_rests,
    compaction_tables,
    compaction_tasks,
    in_state,
    is_live,
)
from arctic_orchestration.waits import (
    NOW,
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

_task, _table = compaction_tasks.c, compaction_tables.c


@cache
def wait_rows() -> tuple[WaitRows, ...]:
    """Returns merge tasks without a worker, and tables that are due, rest or are refused.

    Causes of tasks: ``worker:QUEUE``, ``paused:QUEUE``, ``retry``, ``commit``; ``quarantined``,
    while files of the table rest. Of tables: ``refused``, ``rest``, ``files_rest``,
    ``commit_trouble``, ``draining:QUEUE`` and ``room:QUEUE``, which accept no more tasks, and
    ``plan``, for the next round of the planner.
    """
    resting = sa.select(compaction_rests.c.table_name).where(compaction_rests.c.rests_until > NOW)
    waits = (is_live, in_state("planned", "failed", "merged"))
    gone = sa.select(_table.name).where(_table.gone_at.is_not(None))
    given_up = (
        in_state("quarantined"), _task.table_name.in_(resting), _task.table_name.not_in(gone)
    )  # fmt: skip
    return (_tasks(waits), _tasks(given_up), _tables(resting))


def _tasks(where: tuple[sa.ColumnElement[bool], ...]) -> WaitRows:
    return WaitRows(
        kind=WaitKind.MERGE_TASK,
        table=compaction_tasks,
        where=where,
        keys=(_task.id,),
        id=_task.id,
        name=sa.case(
            (_task.partition == "", _task.table_name),
            else_=_task.table_name + " " + _task.partition,
        ),
        location=None,
        since=sa.case((_task.state == "planned", _task.waiting_since), else_=_task.state_at),
        cause=sa.case(
            (_task.state == "failed", "retry"),
            (_task.state == "merged", "commit"),
            (_task.state == "quarantined", "quarantined"),
            (_queue_state(_task.queue) == "paused", sa.literal("paused:") + _task.queue),
            else_=sa.literal("worker:") + _task.queue,
        ),
        reason=_task.reason,
        describe=_described_tasks,
    )


def _queue_state(name: sa.Column[Any]) -> sa.ColumnElement[str]:
    query = sa.select(compaction_queues.c.state).where(compaction_queues.c.name == name)
    return query.scalar_subquery()


def _described_tasks(
    tx: sa.Connection, rows: Sequence[WaitRow], scope: WaitScope
) -> Mapping[tuple[Any, ...], Details | Exception]:
    queues: dict[str, QueueNow] = {}

    def details(row: WaitRow) -> Details:
        task = task_store.task_by_id(tx, row.id)
        if task.state is TaskState.QUARANTINED:
            return Details(actions=_actions(task, "retry"))
        if task.queue not in queues:
            queues[task.queue] = queue_now(tx, task.queue)
        waiting = wait_of(
            tx, task, tables.table_by_name(tx, task.table), queues[task.queue], scope.now
        )
        return _of_task(waiting, row)

    return describe_each(rows, details)


def _of_task(waiting: Waiting, row: WaitRow) -> Details:
    task, cause = waiting.task, row.cause.partition(":")[0]
    held: tuple[Holder, ...] = ()
    actions = _actions(task, "cancel")
    until = Until()
    if cause == "paused":
        held = (Holder(kind="pause", id=task.queue, text=f"{task.queue} is paused"),)
        actions = (command("compaction", "queues", "resume", task.queue), *actions)
    elif waiting.held is not None:
        held = (Holder(kind="queue", id=task.queue, text=f"{task.queue}: {waiting.held.reason}"),)
        until = Until(certainty=Certainty.FORECAST, at=waiting.held.until, event="claim")
    elif waiting.claimed_by is not None:
        until = Until(certainty=Certainty.FORECAST, at=waiting.claimed_by, event="claim")
    elif task.state is TaskState.FAILED and task.not_before is not None:
        until = Until(certainty=Certainty.KNOWN, at=task.not_before, event="retry")
        actions = _actions(task, "retry", "cancel")
    return Details(held_by=held, until=until, actions=actions, reason=waiting.text)


def _actions(task: Task, *actions: str) -> tuple[str, ...]:
    explain = command("compaction", "explain", task.table)
    return (explain, *(command("compaction", "tasks", action, task.id) for action in actions))


def _tables(resting: sa.Select[Any]) -> WaitRows:
    rests, files = _table.rests_until > NOW, _table.name.in_(resting)
    # One that its property excludes waits for nothing.
    refused = _table.refused != DISABLED
    waits = sa.or_(
        refused, rests, files, _table.commit_trouble.is_not(None), _table.due_since.is_not(None)
    )
    full = _table.due_since.is_not(None) & (_table.due_since <= _table.looked_at)
    draining = _queue_state(_table.queue) == "draining"
    causes = (
        (refused, sa.literal("refused"), _table.refused),
        (rests, sa.literal("rest"), _table.rest_reason),
        (_table.commit_trouble.is_not(None), sa.literal("commit_trouble"), _table.commit_trouble),
        (full & draining, sa.literal("draining:") + _table.queue, _table.looked_reason),
        (full, sa.literal("room:") + _table.queue, _table.looked_reason),
        (_table.due_since.is_not(None), sa.literal("plan"), _table.due_reason),
    )
    rest_of_files = (
        sa.select(compaction_rests.c.reason)
        .where(compaction_rests.c.table_name == _table.name, compaction_rests.c.rests_until > NOW)
        .order_by(compaction_rests.c.path)
        .limit(1)
        .scalar_subquery()
    )
    return WaitRows(
        kind=WaitKind.TABLE,
        table=compaction_tables,
        where=(_table.gone_at.is_(None), waits),
        keys=(_table.name,),
        id=_table.name,
        name=_table.name,
        location=None,
        since=sa.func.coalesce(_table.due_since, _table.looked_at, _table.seen_at),
        cause=sa.case(*((which, cause) for which, cause, _ in causes), else_="files_rest"),
        reason=sa.func.coalesce(
            sa.case(*((which, reason) for which, _, reason in causes), else_=rest_of_files), ""
        ),
        describe=_described_tables,
    )


def _described_tables(
    tx: sa.Connection, rows: Sequence[WaitRow], scope: WaitScope
) -> Mapping[tuple[Any, ...], Details | Exception]:
    col = compaction_rests.c
    names = [row.id for row in rows]
    query = (
        sa.select(col.table_name, sa.func.max(col.rests_until, type_=col.rests_until.type))
        .where(dialect.among(tx, col.table_name, names), col.rests_until > scope.now)
        .group_by(col.table_name)
    )
    files = {row[0]: row[1] for row in tx.execute(query)}

    def details(row: WaitRow) -> Details:
        table = tables.table_by_name(tx, row.id)
        cause = row.cause.partition(":")[0]
        actions = [command("compaction", "explain", table.name)]
        until = {"rest": table.rests_until, "files_rest": files.get(table.name)}.get(cause)
        held = []
        if until is not None:
            actions.append(command("compaction", "wake", table.name))
        if cause in ("draining", "room"):
            held.append(Holder(kind="queue", id=table.queue, text=f"queue {table.queue}"))
        if cause == "draining":
            actions.append(command("compaction", "queues", "resume", table.queue))
        if until is None:
            return Details(held_by=tuple(held), actions=tuple(actions))
        ends = Until(certainty=Certainty.KNOWN, at=until, event="retry")
        return Details(held_by=tuple(held), until=ends, actions=tuple(actions))

    return describe_each(rows, details)
