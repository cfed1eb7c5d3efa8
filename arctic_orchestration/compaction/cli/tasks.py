"""Merge tasks, one group of files each: lists, shows, retries and cancels them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated

import sqlalchemy as sa
import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import control, tables
from arctic_orchestration.compaction.cli.context import Opened, opened_compaction
from arctic_orchestration.compaction.cli.task import colored, print_task
from arctic_orchestration.compaction.commit import commit_leases, commits
from arctic_orchestration.compaction.commit.commit_leases import CommitLease
from arctic_orchestration.compaction.planning.policy import HIGHEST_LEVEL
from arctic_orchestration.compaction.queue import backoff, queues, task_store
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.views.task_documents import (
    CompactionTaskDocument,
    task_details,
)
from arctic_orchestration.compaction.views.tasks import list_tasks, parse_states, tasks_by_state
from arctic_orchestration.compaction.work import attempt_lookup
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
from arctic_orchestration.errors import ArcticError, ConfigurationError, TransitionRefused
from arctic_orchestration.quantities import format_bytes, format_moment
from arctic_orchestration.waits import command

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="A task's id, or a part of it that no other has.")
]

app = typer.Typer(help="Manage merge tasks.", no_args_is_help=True)


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
    states = parse_states(state or ["live"])
    now = utc_now()
    with opened_compaction() as opened, opened.database.read() as tx:
        if table is not None:
            tables.table_by_name(tx, table)
        if queue is not None:
            queues.queue_by_name(tx, queue)
        counts = tasks_by_state(tx, table, queue)
        found = list_tasks(tx, states, table=table, queue=queue, limit=limit)
    matching = sum(counts.get(one, 0) for one in states)
    quarantined = counts.get(TaskState.QUARANTINED, 0)
    if as_json:
        print_json(
            {
                "tasks": CompactionTaskDocument.from_records(found),
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
        tried = attempt_lookup.attempts_of(tx, found.id)
        history = task_store.history(tx, found.id)
        ahead = task_store.ahead_of(tx, found) if found.state is TaskState.PLANNED else None
    if as_json:
        print_json(task_details(found, group, tried, history, ahead=ahead))
        return
    print_task(found, group, tried, history, ahead)


@app.command("retry")
def retry(id: IdArgument, as_json: JsonOption = False) -> None:
    """Retry a failed merge task at once.

    The files of a task in quarantine are planned again.
    """
    with opened_compaction() as opened, opened.database.begin() as tx:
        before = control.locked_task(tx, task_store.task_by_id_part(tx, id).id)
        after = control.retry_task(tx, before, utc_now(), opened.actor)
    if as_json:
        print_json(CompactionTaskDocument.from_record(after))
    elif before.state is TaskState.FAILED:
        console().print(escape(f"task {before.id} of {before.table} can be claimed again"))
    else:
        files = f"the files of task {before.id}"
        console().print(escape(f"{before.table}: {files} no longer rest, and are planned again"))


@app.command("prioritize")
def prioritize(
    id: IdArgument,
    level: Annotated[
        int, typer.Option(min=-HIGHEST_LEVEL, max=HIGHEST_LEVEL, help="More is earlier.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Give a planned merge task another level.

    The time that it has waited still counts. Plans leave it until a worker has claimed it.
    """
    with opened_compaction() as opened, opened.database.begin() as tx:
        before = control.locked_task(tx, task_store.task_by_id_part(tx, id).id)
        after = control.prioritize_task(tx, before, level, opened.actor)
        ahead = task_store.ahead_of(tx, after)
    if as_json:
        print_json({**CompactionTaskDocument.from_record(after).to_json(), "ahead": ahead})
        return
    console().print(
        f"task {after.id} of {escape(after.table)} has level {after.level}, before {before.level}; "
        f"{counted(ahead, 'task')} of {escape(after.queue)} precede it"
    )


@app.command("cancel")
def cancel(id: IdArgument, as_json: JsonOption = False) -> None:
    """Cancel a merge task that no worker is merging.

    Its files rest for a day, so that the next plan does not offer them again.
    """
    with opened_compaction() as opened:
        with opened.database.begin() as tx:
            found = control.locked_task(tx, task_store.task_by_id_part(tx, id).id)
            lease = _lease_for(tx, found) if found.state is TaskState.MERGED else None
            if lease is None:
                control.cancel_task(tx, found, utc_now(), opened.actor)
        if lease is not None:
            _cancel_merged(opened, found, lease)
        with opened.database.read() as tx:
            after = task_store.task_by_id(tx, found.id)
    if as_json:
        print_json(CompactionTaskDocument.from_record(after))
        return
    until = format_moment((after.ended_at or utc_now()) + backoff.CANCELED_REST)
    console().print(
        f"task {found.id} of {escape(found.table)} is canceled; its {counted(found.files, 'file')} "
        f"rest until {until}; end that with: {escape(command('compaction', 'wake', found.table))}"
    )


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
            control.record_move(tx, task, "cancel", opened.actor)
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
    except ConfigurationError:
        # It may be another catalog: the task stays.
        raise
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
