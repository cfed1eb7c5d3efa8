"""``arctic compaction records``: the commits, one line a snapshot."""

from collections.abc import Mapping
from typing import Annotated

import typer

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.cli.context import opened_compaction
from arctic_orchestration.compaction.commit.records import CompactionRecord
from arctic_orchestration.compaction.commit.records import records as read_records
from arctic_orchestration.compaction.views.documents import CompactionRecordDocument
from arctic_orchestration.console.display import Rows, counted, moment, print_json, seconds
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.quantities import format_bytes


def records(
    table: Annotated[str | None, typer.Option(help="Only of this table.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List commits of compaction, newest first."""
    with opened_compaction() as state, state.database.read() as tx:
        if table is not None:
            tables.table_by_name(tx, table)
        found = read_records(tx, table=table, limit=limit)
    if as_json:
        print_json({"records": CompactionRecordDocument.from_records(found)})
        return
    print_records(found, empty="no such records")


def print_records(found: list[CompactionRecord], *, empty: str | None = None) -> None:
    """Prints records as a table."""
    shown = Rows(
        None,
        *("at", "table", "snapshot", "tasks", "files", "size", "rows", "merged in", "waited"),
        "how",
        text="how",
    )
    for record in found:
        shown.add(
            moment(record.at),
            escape(record.table),
            str(record.snapshot_id),
            str(len(record.tasks)),
            f"{record.files_in} → {record.files_out}",
            f"{format_bytes(record.bytes_in)} → {format_bytes(record.bytes_out)}",
            str(record.rows),
            seconds(record.merge_seconds),
            seconds(record.waited_seconds),
            escape(_how(record)),
        )
    shown.print(empty=empty)


def _how(record: CompactionRecord) -> str:
    parts = [ways_text(record.ways)]
    if record.rows_deleted:
        parts.append(f"{counted(record.rows_deleted, 'deleted row')} left out")
    if record.delete_files_removed:
        parts.append(f"{counted(record.delete_files_removed, 'delete file')} removed")
    return ", ".join(filter(None, parts))


def ways_text(ways: Mapping[str, int]) -> str:
    """Formats the ways of merging: ``append``, or ``2 append, 1 decode``."""
    if len(ways) == 1:
        return next(iter(ways))
    return ", ".join(f"{count} {way}" for way, count in sorted(ways.items()))
