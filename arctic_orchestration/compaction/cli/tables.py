"""Tables of the lake in compaction: their state, queue, and next checks."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import control, tables
from arctic_orchestration.compaction.cli.context import (
    Opened,
    TableArgument,
    opened_compaction,
    positive_duration,
    working,
)
from arctic_orchestration.compaction.cli.file_stats import PATIENCE, ReadTable, read_tables
from arctic_orchestration.compaction.planning.policy import DISABLED
from arctic_orchestration.compaction.queue import queues, table_queues
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.compaction.views.documents import table_of_catalog
from arctic_orchestration.compaction.views.tables import TableView, table_view
from arctic_orchestration.console.display import Rows, console, counted, moment, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.quantities import format_bytes, format_duration, iso
from arctic_orchestration.state import audit
from arctic_orchestration.waits import command

if TYPE_CHECKING:
    from arctic_orchestration.lake.manifests import TableNumbers

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="A compaction queue's name.")]


def list_(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="Only of this table.")
    ] = None,
    timeout: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Wait so long for each table."),
    ] = format_duration(PATIENCE),
    as_json: JsonOption = False,
) -> None:
    """Show the tables: their files, tasks and next checks."""
    now, patience = utc_now(), positive_duration("--timeout", timeout)
    with opened_compaction() as state:
        with state.database.read() as tx:
            known = {row.name: row.gone_at for row in tables.all_tables(tx)}
        names = [table] if table is not None else sorted({*state.tables(), *known})
        there = names if table is not None else [name for name in names if not known.get(name)]
        with working("reading manifests"):
            read = read_tables(state, there, patience)
        if table is not None and (error := read[table].error) is not None:
            raise error
        seen = [read_view(state, name, read.get(name, ReadTable())) for name in names]
    if as_json:
        print_json({"tables": [table_of_catalog(one, now) for one in seen]})
        return
    if not seen:
        console().print("the catalog has no tables")
        return
    _print(seen, now)


def read_view(state: Opened, name: str, read: ReadTable) -> TableView:
    """Returns the view of a table that was read; of another one, with its error."""
    with state.database.read() as tx:
        return table_view(
            tx,
            name,
            utc_now(),
            numbers=read.numbers,
            trouble=read.trouble,
            enabled=read.enabled,
        )


def map_(table: TableArgument, queue: QueueArgument, as_json: JsonOption = False) -> None:
    """Assign a table to a queue, overriding its property.

    Its waiting tasks move to that queue.
    """
    now = utc_now()
    with opened_compaction() as state:
        with state.database.read() as tx:
            queues.queue_by_name(tx, queue)
        state.register_table(table, now)
        with state.database.begin() as tx:
            moved = table_queues.map_table(tx, table, queue, now)
            audit.record(tx, state.actor, "compaction", "map", table, queue=queue, moved=moved)
            row = tables.table_by_name(tx, table)
    _print_mapped(row, moved, as_json)


def unmap(table: TableArgument, as_json: JsonOption = False) -> None:
    """Remove the queue assignment of a table.

    The table returns to the queue that its property names, or to the queue default.
    """
    with opened_compaction() as state, state.database.begin() as tx:
        moved = table_queues.unmap_table(tx, table, utc_now())
        row = tables.table_by_name(tx, table)
        audit.record(tx, state.actor, "compaction", "unmap", table, queue=row.queue, moved=moved)
    _print_mapped(row, moved, as_json)


def due(
    table: TableArgument,
    reason: Annotated[str, typer.Option(help="Why; people read it.")] = "requested manually",
    as_json: JsonOption = False,
) -> None:
    """Make a table due for the next round of the planner."""
    now = utc_now()
    with opened_compaction() as state:
        state.register_table(table, now)
        with state.database.begin() as tx:
            tables.make_due(tx, table, reason, now)
            audit.record(tx, state.actor, "compaction", "due", table, reason=reason)
            row = tables.table_by_name(tx, table)
    if as_json:
        print_json(
            {
                "table": table,
                "due_since": iso(row.due_since),
                "due_because": row.due_reason,
                "rests_until": iso(row.rests_until) if row.rests(now) else None,
            }
        )
        return
    out = console()
    out.print(f"{escape(table)} is due: the next round plans it")
    if row.rests(now):
        out.print(
            f"[yellow]but not before {moment(row.rests_until)}: it rests; "
            f"end that with: {escape(command('compaction', 'wake', table))}[/]"
        )


def wake(table: TableArgument, as_json: JsonOption = False) -> None:
    """End the backoff of a table and its files; make it due."""
    with opened_compaction() as state, state.database.begin() as tx:
        files = control.wake_table(tx, table, utc_now(), state.actor)
    if as_json:
        print_json({"table": table, "rested": files is not None, "files": files or 0})
    elif files is not None:
        console().print(f"{escape(table)} no longer rests: the next round plans it")
    else:
        console().print(f"{escape(table)} does not rest; nothing was changed")


def queue_text(row: CompactionTable) -> str:
    """Returns the queue of a table, and the reason."""
    return f"{row.queue} ({row.queue_reason})"


def numbers_text(numbers: "TableNumbers") -> str:
    """Formats the storage metrics of a table on one line."""
    if not numbers.files:
        return "none: the table is empty"
    parts = [
        f"{counted(numbers.files, 'file')} of {format_bytes(numbers.bytes)}",
        counted(numbers.partitions, "partition"),
        f"{numbers.small_files} small",
        counted(numbers.delete_files, "delete file"),
        f"a full scan opens {numbers.read_amplification:.1f} × the files it needs",
    ]
    return ", ".join(parts)


def _print(seen: Sequence[TableView], now: datetime) -> None:
    shown = Rows(
        counted(len(seen), "table"),
        *("table", "queue", "files", "small", "deletes", "size", "reads", "tasks", "last commit"),
        "",
        text="",
    )
    for one in seen:
        numbers = one.numbers
        urgent = one.trouble is not None or (
            one.row is not None and (one.row.refused not in (None, DISABLED) or one.row.rests(now))
        )
        reasons = escape("; ".join(one.reasons(now)))
        shown.add(
            escape(one.name),
            escape(one.row.queue) if one.row else "",
            str(numbers.files) if numbers else "",
            str(numbers.small_files) if numbers else "",
            str(numbers.delete_files) if numbers else "",
            format_bytes(numbers.bytes) if numbers else "",
            f"{numbers.read_amplification:.1f} ×" if numbers else "",
            tasks_text(one),
            moment(one.committed_at),
            f"[yellow]{reasons}[/]" if urgent else reasons,
        )
    shown.print()


def tasks_text(one: TableView) -> str:
    """Formats the number of live tasks of a table, by what they wait for."""
    counts = (
        (one.waiting, "waiting"),
        (one.tasks.get(TaskState.CLAIMED, 0), "claimed"),
        (one.tasks.get(TaskState.MERGED, 0), "merged"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def _print_mapped(row: CompactionTable, moved: int, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "table": row.name,
                "queue": row.queue,
                "because": row.queue_reason,
                "moved": moved,
            }
        )
        return
    tasks = f"{counted(moved, 'waiting task')} moved" if moved else "no task had to move"
    console().print(escape(f"{row.name} is in queue {queue_text(row)}; {tasks}"))
