"""One merge task, for people and programs."""

from collections.abc import Sequence
from enum import StrEnum

from arctic_orchestration.compaction.queue.task import Move, Task, TaskState
from arctic_orchestration.compaction.work.attempt import Attempt
from arctic_orchestration.console.display import Rows, console, counted, moment, span
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.lake.file_groups import FileGroup, LiveFile
from arctic_orchestration.quantities import format_bytes

#: the maximum number of a task's files listed for people
_FILES_SHOWN = 20

_COLORS = {
    "planned": "cyan",
    "claimed": "blue",
    "live": "blue",
    "merged": "blue",
    "committed": "green",
    "failed": "red",
    "lost": "red",
    "quarantined": "red",
    "superseded": "magenta",
    "canceled": "magenta",
    "released": "magenta",
    "dropped": "magenta",
}


def colored(state: StrEnum) -> str:
    """Formats the state of a task or of an attempt as markup."""
    return f"[{_COLORS[state.value]}]{state.value}[/]"


def print_task(
    task: Task,
    group: FileGroup,
    attempts: Sequence[Attempt],
    history: Sequence[Move],
    ahead: int | None,
) -> None:
    """Prints a task: facts, attempts, files and history."""
    out = console()
    partition = f" of {task.partition}" if task.partition else ""
    what = f"of {task.table}: {task.kind} merge{partition}"
    out.print(f"[bold]task {task.id}[/] {escape(what)}")
    out.print(f"{colored(task.state)}: {escape(task.reason)}")
    facts = {
        "planned because": task.planned_reason,
        "gain": task.gain,
        "reads": f"{counted(task.rows, 'row')}, {format_bytes(task.bytes)}",
        "queue": f"{task.queue}, level {task.level}",
        "waits since": moment(task.waiting_since) if task.is_live else "",
        "ahead of it": "" if ahead is None else counted(ahead, "task"),
        "again at": moment(task.not_before) if task.state is TaskState.FAILED else "",
        "attempts": f"{task.attempts} of {task.max_attempts}",
        "planned from": f"snapshot {group.snapshot_id}",
        "committed in": f"snapshot {task.snapshot_id}" if task.snapshot_id is not None else "",
        "ended": moment(task.ended_at),
    }
    for name, value in facts.items():
        if value:
            out.print(f"[dim]{name:<16}[/]{escape(value)}")
    _print_attempts(attempts)
    _print_files(group)
    _print_history(history)


def print_files(files: Sequence[LiveFile], title: str | None, *, most: int = _FILES_SHOWN) -> None:
    """Prints data files as a table, only the first ones if there are many."""
    shown = Rows(title, "size", "rows", "deletes", "path", text="path")
    for file in files[:most]:
        shown.add(
            format_bytes(file.size),
            str(file.rows),
            str(len(file.deletes) or ""),
            escape(file.path),
        )
    shown.print()
    if len(files) > most:
        console().print(f"[dim]and {len(files) - most} more[/]")


def _print_files(group: FileGroup) -> None:
    console().print()
    deletes = group.delete_files
    title = counted(len(group.files), "data file")
    print_files(group.files, title)
    if not deletes:
        return
    console().print()
    shown = Rows(counted(len(deletes), "delete file"), "size", "rows", "kind", "path", text="path")
    for one in deletes[:_FILES_SHOWN]:
        shown.add(format_bytes(one.size), str(one.rows), one.kind.value, escape(one.path))
    shown.print()
    if len(deletes) > _FILES_SHOWN:
        console().print(f"[dim]and {len(deletes) - _FILES_SHOWN} more[/]")


def _print_attempts(attempts: Sequence[Attempt]) -> None:
    if not attempts:
        return
    console().print()
    shown = Rows(
        counted(len(attempts), "attempt"),
        *("attempt", "claimed", "took", "state", "worker", "files", "what came of it"),
        text="what came of it",
    )
    for attempt in attempts:
        until = attempt.ended_at
        outputs = attempt.outputs
        reason = attempt.reason
        if until is None:
            reason = f"its lease holds until {moment(attempt.expires_at)}"
        elif attempt.way:
            reason = f"{attempt.way}: {attempt.because}"
        shown.add(
            str(attempt.token),
            moment(attempt.claimed_at),
            span(attempt.claimed_at, until) if until else "",
            colored(attempt.state),
            escape(attempt.worker),
            "" if outputs is None else f"{len(outputs)} of {_bytes(attempt)}",
            escape(reason),
        )
    shown.print()


def _print_history(history: Sequence[Move]) -> None:
    console().print()
    shown = Rows("history", "at", "state", "reason", text="reason")
    for move in history:
        shown.add(moment(move.at), colored(move.state), escape(move.reason))
    shown.print()


def _bytes(attempt: Attempt) -> str:
    return format_bytes(sum(output.size for output in attempt.outputs or ()))
