"""``arctic compaction reads``: what a filter reads of a table, now and around its last merges."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arctic_orchestration.compaction.cli.context import (
    TableArgument,
    opened_compaction,
    working,
)
from arctic_orchestration.compaction.commit.records import records
from arctic_orchestration.console.display import Rows, console, moment, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.quantities import format_bytes, iso

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from arctic_orchestration.lake.scan_sizes import ScanSize


def reads(
    table: TableArgument,
    filter_: Annotated[
        str, typer.Argument(metavar="FILTER", help="In pyiceberg's notation: \"origin = 'JFK'\".")
    ],
    last: Annotated[int, typer.Option(min=0, help="Before and after so many merges.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Show how much of a table a filter reads.

    Data files are counted whose metadata does not exclude a match, without delete files. Merges are
    those with a record; snapshots may have expired.
    """
    with opened_compaction() as state:
        from arctic_orchestration.lake.scan_sizes import parse_filter, scan_size

        loaded = state.table(table)
        row_filter = parse_filter(filter_, loaded.schema())
        with state.database.read() as tx:
            merges = records(tx, table=table, limit=last)
        sizes: dict[int, ScanSize] = {}

        def size(snapshot: "Snapshot | None") -> "ScanSize | None":
            if snapshot is None:
                return None
            if snapshot.snapshot_id not in sizes:
                sizes[snapshot.snapshot_id] = scan_size(loaded, row_filter, snapshot)
            return sizes[snapshot.snapshot_id]

        def parent(snapshot: "Snapshot | None") -> "Snapshot | None":
            known = snapshot and snapshot.parent_snapshot_id
            return loaded.snapshot_by_id(known) if known else None

        with working("reading manifests"):
            now = size(loaded.current_snapshot())
            around = []
            for merge in merges:
                snapshot = loaded.snapshot_by_id(merge.snapshot_id)
                around.append((merge.at, size(parent(snapshot)), size(snapshot)))
    if as_json:
        print_json(
            {
                "table": table,
                "filter": filter_,
                "now": _document(now),
                "merges": [
                    {"at": iso(at), "before": _document(before), "after": _document(after)}
                    for at, before, after in around
                ],
            }
        )
        return
    console().print(f"{escape(table)} where {escape(filter_)}")
    shown = Rows(None, "", "files", "size", text="")
    shown.add("now", *_cells(now))
    for at, before, after in around:
        shown.add(f"after the merge of {moment(at)}", *_cells(after))
        shown.add("before it", *_cells(before))
    shown.print()


def _document(size: "ScanSize | None") -> dict[str, Any] | None:
    return None if size is None else asdict(size)


def _cells(size: "ScanSize | None") -> tuple[str, str]:
    if size is None:
        return "no snapshot", ""
    return (
        f"{size.files} of {size.all_files}",
        f"{format_bytes(size.bytes)} of {format_bytes(size.all_bytes)}",
    )
