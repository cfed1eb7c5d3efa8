"""Tables of the lake in compaction: their state, queue, and next checks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import sqlalchemy as sa
import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.cli.context import (
    Opened,
    TableArgument,
    opened_compaction,
    positive_duration,
    registered_table,
    working,
)
from arctic_orchestration.compaction.cli.file_stats import PATIENCE, ReadTable, read_tables
from arctic_orchestration.compaction.commit.records import records
from arctic_orchestration.compaction.planning.policy import DISABLED
from arctic_orchestration.compaction.queue import backoff, queues
from arctic_orchestration.compaction.queue.backoff import Rest
from arctic_orchestration.compaction.queue.task import WAITING, TaskState
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.console.display import Rows, console, counted, moment, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.quantities import format_bytes, format_duration, format_moment, iso
from arctic_orchestration.state import audit
from arctic_orchestration.state.compaction_tables import compaction_tasks, is_live

if TYPE_CHECKING:
    from arctic_orchestration.lake.manifests import TableNumbers

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="A compaction queue's name.")]


@dataclass(frozen=True, kw_only=True)
class TableView:
    """The state of a table: of its files, and in compaction."""

    name: str
    #: none: its files could not be counted, see ``trouble``
    numbers: "TableNumbers | None"
    trouble: str | None
    #: none: the planner has not found it yet
    row: CompactionTable | None
    #: live tasks by state
    tasks: Mapping[TaskState, int]
    committed_at: datetime | None
    enabled: bool
    #: resting files, earliest wake first
    resting: Sequence[Rest] = ()

    @property
    def waiting(self) -> int:
        """The number of tasks that can be claimed, now or after their retry interval."""
        return sum(self.tasks.get(state, 0) for state in WAITING)

    def reasons(self, now: datetime) -> list[str]:
        """Returns the messages about it, most urgent first."""
        row = self.row
        refused = row is not None and row.refused is not None and self.enabled
        # The reason for a refusal is often why its files cannot be counted, too.
        found = [self.trouble] if self.trouble and not refused else []
        if not self.enabled:
            found.append(f"not compacted: {DISABLED}")
        if row is None:
            return found or ["not planned yet"]
        if row.gone_at is not None:
            found.append(f"the catalog has it no more since {format_moment(row.gone_at)}")
        if row.refused is not None and self.enabled:
            found.append(f"refused: {row.refused}")
        if row.rests(now) and row.rests_until is not None:
            found.append(f"rests until {format_moment(row.rests_until)}: {row.rest_reason}")
        if row.commit_trouble is not None:
            found.append(f"not committed to: {row.commit_trouble}")
        if row.mapped_to is None and row.property_queue not in (None, row.queue):
            found.append(f"in queue {row.queue}: {row.queue_reason}")
        if self.resting:
            first, files = self.resting[0], counted(len(self.resting), "file")
            found.append(f"{files} at rest until {format_moment(first.until)}: {first.reason}")
        if row.due_since is not None:
            found.append(f"due since {format_moment(row.due_since)}: {row.due_reason}")
        if row.observed_at is not None:
            found.append(
                f"only observed, at {format_moment(row.observed_at)}: {row.observed_reason}"
            )
        if found:
            return found
        if row.looked_at is None:
            return ["not planned yet"]
        return [f"planned last at {format_moment(row.looked_at)}: {row.looked_reason}"]


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
        seen = [table_view(state, name, read.get(name, ReadTable())) for name in names]
    if as_json:
        print_json({"tables": [_json(one, now) for one in seen]})
        return
    if not seen:
        console().print("the catalog has no tables")
        return
    _print(seen, now)


def table_view(state: Opened, name: str, read: ReadTable) -> TableView:
    """Returns the view of a table that was read; of another one, with its error."""
    with state.database.read() as tx:
        row = registered_table(tx, name)
        counts = _live_tasks(tx, name)
        last = records(tx, table=name, limit=1)
        resting = backoff.resting(tx, name, utc_now())
    return TableView(
        name=name,
        numbers=read.numbers,
        trouble=read.trouble,
        row=row,
        tasks=counts,
        committed_at=last[0].at if last else None,
        enabled=read.enabled,
        resting=sorted(resting.values(), key=lambda one: (one.until, one.path)),
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
            moved = queues.map_table(tx, table, queue, now)
            audit.record(tx, state.actor, "compaction", "map", table, queue=queue, moved=moved)
            row = tables.table_by_name(tx, table)
    _print_mapped(row, moved, as_json)


def unmap(table: TableArgument, as_json: JsonOption = False) -> None:
    """Remove the queue assignment of a table.

    The table returns to the queue that its property names, or to the queue default.
    """
    with opened_compaction() as state, state.database.begin() as tx:
        moved = queues.unmap_table(tx, table, utc_now())
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
            f"end that with: arctic compaction wake {escape(table)}[/]"
        )


def wake(table: TableArgument, as_json: JsonOption = False) -> None:
    """End the backoff of a table and its files; make it due."""
    now = utc_now()
    with opened_compaction() as state, state.database.begin() as tx:
        before = tables.lock_table(tx, table)
        files = len(backoff.resting(tx, table, now))
        rested = before.rests(now) or files > 0
        tables.wake(tx, table)
        backoff.end_rests(tx, table)
        if rested:
            tables.make_due(tx, table, f"{state.actor.name} ended its rest", now)
            audit.record(tx, state.actor, "compaction", "wake", table, files=files)
    if as_json:
        print_json({"table": table, "rested": rested, "files": files})
    elif rested:
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


def numbers_json(numbers: "TableNumbers | None") -> dict[str, Any] | None:
    """Returns the storage metrics of a table for programs; the keys are stable."""
    return None if numbers is None else asdict(numbers)


def _live_tasks(tx: sa.Connection, name: str) -> dict[TaskState, int]:
    col = compaction_tasks.c
    query = sa.select(col.state, sa.func.count()).where(col.table_name == name, is_live)
    counts: dict[TaskState, int] = defaultdict(int)
    for state, count in tx.execute(query.group_by(col.state)):
        counts[TaskState(state)] = count
    return dict(counts)


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


def _json(one: TableView, now: datetime) -> dict[str, Any]:
    """Returns a table for programs; its keys are stable."""
    row = one.row
    return {
        "table": one.name,
        "numbers": numbers_json(one.numbers),
        "trouble": one.trouble,
        "enabled": one.enabled,
        "queue": row and row.queue,
        "known": row is not None,
        "due_since": iso(row.due_since) if row else None,
        "due_because": row and row.due_reason,
        "rests_until": iso(row.rests_until) if row and row.rests(now) else None,
        "resting_files": len(one.resting),
        "commit_trouble": row and row.commit_trouble,
        "rests_because": row.rest_reason if row and row.rests(now) else None,
        "refused": row and row.refused,
        "gone_at": iso(row.gone_at) if row else None,
        "looked_at": iso(row.looked_at) if row else None,
        "looked": row and row.looked_reason,
        "observed_at": iso(row.observed_at) if row else None,
        "observed": row and row.observed_reason,
        "waiting": one.waiting,
        "claimed": one.tasks.get(TaskState.CLAIMED, 0),
        "merged": one.tasks.get(TaskState.MERGED, 0),
        "last_commit_at": iso(one.committed_at),
        "next_commit_at": iso(row.next_commit_at) if row else None,
        "reasons": one.reasons(now),
    }
