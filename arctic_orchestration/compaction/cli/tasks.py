"""Merge tasks, one group of files each: lists, shows, retries and cancels them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, Any

import sqlalchemy as sa
import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.cli.context import Opened, opened_compaction
from arctic_orchestration.compaction.cli.task import colored, print_task, task_document
from arctic_orchestration.compaction.commit import commit_leases, commits
from arctic_orchestration.compaction.commit.commit_leases import CommitLease
from arctic_orchestration.compaction.queue import backoff, queues, task_store
from arctic_orchestration.compaction.queue.task import (
    ENDED,
    LIVE,
    TASK_COLUMNS,
    WAITING,
    Task,
    TaskState,
)
from arctic_orchestration.compaction.work import attempts
from arctic_orchestration.console.display import (
    Rows,
    console,
    counted,
    moment,
    print_json,
    short_id,
    span,
)
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.errors import ArcticError, InvalidInput, TransitionRefused
from arctic_orchestration.quantities import format_bytes, format_moment, iso
from arctic_orchestration.state import audit
from arctic_orchestration.state.audit import Actor
from arctic_orchestration.state.compaction_tables import compaction_tasks

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="A task's id, or a part of it that no other has.")
]

app = typer.Typer(help="Manage merge tasks.", no_args_is_help=True)

#: words for several states
_SEVERAL = {"waiting": WAITING, "live": LIVE, "ended": ENDED, "all": tuple(TaskState)}


@app.command("list")
def list_(
    table: Annotated[str | None, typer.Option(help="Only of this table.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only of this queue.")] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            help="Only in this state, or: waiting, live (default), ended, all; repeatable."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List merge tasks in the order of their claims.

    Tasks that ended follow, newest first.
    """
    states = _states(state or ["live"])
    now = utc_now()
    with opened_compaction() as opened, opened.database.read() as tx:
        if table is not None:
            tables.table_by_name(tx, table)
        if queue is not None:
            queues.queue_by_name(tx, queue)
        counts = _counts(tx, table, queue)
        found = _found(tx, states, table, queue, limit)
    matching = sum(counts.get(one, 0) for one in states)
    quarantined = counts.get(TaskState.QUARANTINED, 0)
    if as_json:
        print_json(
            {
                "tasks": [task_json(task) for task in found],
                "more": matching - len(found),
                "quarantined": quarantined,
            }
        )
        return
    if found:
        _print(found, counts, states, now)
        if matching > len(found):
            console().print(f"[dim]and {matching - len(found)} more: --limit {matching}[/]")
    else:
        console().print("no such tasks")
    if quarantined and TaskState.QUARANTINED not in states:
        console().print(
            f"[yellow]{counted(quarantined, 'task')} in quarantine: --state quarantined[/]"
        )


@app.command("show")
def show(id: IdArgument, as_json: JsonOption = False) -> None:
    """Show a merge task: files, reason, attempts, history."""
    with opened_compaction() as opened, opened.database.read() as tx:
        found = task_store.task_by_id_part(tx, id)
        group = task_store.group_of(tx, found.id)
        tried = attempts.attempts_of(tx, found.id)
        history = task_store.history(tx, found.id)
        ahead = task_store.ahead_of(tx, found) if found.state is TaskState.PLANNED else None
    if as_json:
        print_json({**task_json(found), "ahead": ahead, **task_document(group, tried, history)})
        return
    print_task(found, group, tried, history, ahead)


@app.command("retry")
def retry(id: IdArgument, as_json: JsonOption = False) -> None:
    """Retry a failed merge task at once.

    The files of a task in quarantine are planned again.
    """
    now = utc_now()
    with opened_compaction() as opened, opened.database.begin() as tx:
        found = _locked(tx, id)
        if found.state is TaskState.FAILED:
            reason = f"attempt {found.attempts + 1} of {found.max_attempts} at once: requested by "
            reason += opened.actor.name
            moved = [(found.id, found.state)]
            task_store.move(tx, moved, TaskState.PLANNED, reason, now, values={"not_before": None})
            message = f"task {found.id} of {found.table} can be claimed again"
        elif found.state is TaskState.QUARANTINED:
            tables.wake(tx, found.table)
            due = f"task {found.id} is retried, requested by {opened.actor.name}"
            files = task_store.group_of(tx, found.id).files
            backoff.end_rests(tx, found.table, [file.path for file in files])
            tables.make_due(tx, found.table, due, now)
            message = (
                f"{found.table}: the files of task {found.id} no longer rest, and are planned again"
            )
        else:
            raise TransitionRefused(
                f"Compaction task {found.id} is {found.state}; only failed or "
                "quarantined tasks can be retried; nothing was changed"
            )
        details = {"table": found.table, "state": found.state.value}
        audit.record(tx, opened.actor, "compaction", "tasks retry", found.id, **details)
        after = task_store.task_by_id(tx, found.id)
    if as_json:
        print_json(task_json(after))
    else:
        console().print(escape(message))


@app.command("cancel")
def cancel(id: IdArgument, as_json: JsonOption = False) -> None:
    """Cancel a merge task that no worker is merging.

    Its files rest for a day, so that the next plan does not offer them again.
    """
    with opened_compaction() as opened:
        with opened.database.begin() as tx:
            found = _locked(tx, id)
            lease = _lease_for(tx, found) if found.state is TaskState.MERGED else None
            if lease is None:
                _cancel_waiting(tx, found, opened.actor)
        if lease is not None:
            _cancel_merged(opened, found, lease)
        with opened.database.read() as tx:
            after = task_store.task_by_id(tx, found.id)
    if as_json:
        print_json(task_json(after))
        return
    until = format_moment((after.ended_at or utc_now()) + backoff.CANCELED_REST)
    console().print(
        f"task {found.id} of {escape(found.table)} is canceled; its {counted(found.files, 'file')} "
        f"rest until {until}; end that with: arctic compaction wake {escape(found.table)}"
    )


def _cancel_waiting(tx: sa.Connection, task: Task, by: Actor) -> None:
    if task.state not in WAITING:
        raise TransitionRefused(
            f"Compaction task {task.id} is {task.state}; what can be canceled waits: it is "
            "planned, failed or merged; nothing was changed"
        )
    now = utc_now()
    # Before the task ends, which releases its files.
    reason = f"canceled by {by.name}"
    why = f"task {task.id}: {reason}"
    backoff.rest_files_of(tx, task, why, now, length=backoff.CANCELED_REST)
    task_store.move(
        tx, [(task.id, task.state)], TaskState.CANCELED, reason, now,
        values={"not_before": None},
    )  # fmt: skip
    _audit_cancel(tx, task, by)


def _audit_cancel(tx: sa.Connection, task: Task, by: Actor) -> None:
    details = {"table": task.table, "state": task.state.value}
    audit.record(tx, by, "compaction", "tasks cancel", task.id, **details)


def _lease_for(tx: sa.Connection, task: Task) -> CommitLease:
    """Acquires the commit lease of a task's table, so that no committer publishes it meanwhile."""
    row = tables.table_by_name(tx, task.table)
    lease = commit_leases.take_commit_lease(tx, task.table, "a person")
    if lease is None:
        raise TransitionRefused(
            f"Compaction task {task.id} is merged, and {row.commit_owner} commits to {task.table} "
            f"until {moment(row.commit_expires_at)} at the latest: try again then; nothing was "
            "changed"
        )
    return lease


def _cancel_merged(opened: Opened, task: Task, lease: CommitLease) -> None:
    with opened.database.read() as tx:
        trouble = tables.table_by_name(tx, task.table).commit_trouble
    try:
        _require_uncommitted(opened, task)
        with opened.database.begin() as tx:
            commits.cancel_merged(tx, task.id, f"canceled by {opened.actor.name}", lease)
            _audit_cancel(tx, task, opened.actor)
    finally:
        with opened.database.begin() as tx:
            commit_leases.end_commit_lease(tx, lease, trouble=trouble)


def _require_uncommitted(opened: Opened, task: Task) -> None:
    """Checks that no snapshot names a merged task: a committer may have died after its commit.

    If the table cannot be read, this is unknown; then the cleaner decides, which removes no file of
    a snapshot.
    """
    from arctic_orchestration.lake.replacing.applied_replacements import tasks_of

    try:
        table = opened.table(task.table)
    except ArcticError as error:
        text = f"whether a snapshot has it already is not known: {error}"
        Console(stderr=True, highlight=False).print(escape(text, lines=True))
        return
    for snapshot in table.metadata.snapshots:
        if task.id in tasks_of(snapshot):
            raise TransitionRefused(
                f"Compaction task {task.id} is in snapshot {snapshot.snapshot_id} already, which "
                "the committer's next round writes down; nothing was changed"
            )


def task_json(task: Task) -> dict[str, Any]:
    """Returns a task for programs; its keys are stable."""
    return {
        "task": task.id,
        "table": task.table,
        "queue": task.queue,
        "kind": task.kind.value,
        "state": task.state.value,
        "reason": task.reason,
        "state_at": iso(task.state_at),
        "partition": task.partition,
        "files": task.files,
        "delete_files": task.delete_files,
        "small_files": task.small_files,
        "bytes": task.bytes,
        "rows": task.rows,
        "planned_because": task.planned_reason,
        "gain": task.gain,
        "level": task.level,
        "waiting_since": iso(task.waiting_since),
        "not_before": iso(task.not_before),
        "attempts": task.attempts,
        "max_attempts": task.max_attempts,
        "snapshot_id": task.snapshot_id,
        "ended_at": iso(task.ended_at),
    }


def _locked(tx: sa.Connection, part: str) -> Task:
    """Returns the task, read again under a lock."""
    found = task_store.task_by_id_part(tx, part)
    tables.lock_table(tx, found.table)
    return task_store.task_by_id(tx, found.id)


def _states(words: Sequence[str]) -> list[TaskState]:
    states: set[TaskState] = set()
    for word in words:
        if word in _SEVERAL:
            states.update(_SEVERAL[word])
        elif word in list(TaskState):
            states.add(TaskState(word))
        else:
            expected = ", ".join([*(state.value for state in TaskState), *_SEVERAL])
            raise InvalidInput("--state", word, f"one of {expected}")
    return [state for state in TaskState if state in states]


def _where(table: str | None, queue: str | None) -> list[sa.ColumnElement[bool]]:
    col = compaction_tasks.c
    where: list[sa.ColumnElement[bool]] = []
    if table is not None:
        where.append(col.table_name == table)
    if queue is not None:
        where.append(col.queue == queue)
    return where


def _counts(tx: sa.Connection, table: str | None, queue: str | None) -> dict[TaskState, int]:
    col = compaction_tasks.c
    query = sa.select(col.state, sa.func.count()).where(*_where(table, queue))
    return {TaskState(state): count for state, count in tx.execute(query.group_by(col.state))}


def _found(
    tx: sa.Connection,
    states: Collection[TaskState],
    table: str | None,
    queue: str | None,
    limit: int,
) -> list[Task]:
    live = [state for state in states if state in LIVE]
    found = task_store.tasks(tx, table=table, queue=queue, states=live, limit=limit) if live else []
    ended = [state.value for state in states if state in ENDED]
    if ended and len(found) < limit:
        col = compaction_tasks.c
        query = (
            sa.select(*(col[name] for name in TASK_COLUMNS))
            .where(*_where(table, queue), col.state.in_(ended))
            .order_by(col.ended_at.desc(), col.id.desc())
            .limit(limit - len(found))
        )
        found += [Task.from_row(row) for row in tx.execute(query).mappings()]
    return found


def _print(
    found: Sequence[Task],
    counts: dict[TaskState, int],
    states: Collection[TaskState],
    now: datetime,
) -> None:
    summary = ", ".join(f"{counts[state]} {state}" for state in states if counts.get(state))
    shown = Rows(
        summary,
        *("task", "table", "partition", "queue", "kind", "state", "files", "size", "age", "reason"),
        text="reason",
    )
    for task in found:
        until = task.ended_at or now
        shown.add(
            short_id(task.id),
            escape(task.table),
            escape(task.partition),
            escape(task.queue),
            task.kind.value,
            colored(task.state),
            str(task.files) + (f"+{task.delete_files}" if task.delete_files else ""),
            format_bytes(task.bytes),
            span(task.waiting_since, until) if task.ended_at is None else moment(task.ended_at),
            escape(task.reason),
        )
    shown.print()
