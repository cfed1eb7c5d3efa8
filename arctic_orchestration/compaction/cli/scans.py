"""``arctic compaction scans``: a table's scans in Spark's event logs, and what order suits them."""

import contextlib
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import track

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.cli.context import Lake, TableArgument, age_option
from arctic_orchestration.console.display import Rows, console, counted, moment, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.lake.sort_columns import parse_clustering
from arctic_orchestration.quantities import format_bytes, iso
from arctic_orchestration.settings import Settings

if TYPE_CHECKING:
    from arctic_orchestration.lake.spark_scans import SparkScan, SparkScans

_SORT = "arctic.compaction.sort"
#: of a filter, in characters
_LONGEST = 200


def scans(
    table: TableArgument,
    logs: Annotated[
        str,
        typer.Argument(metavar="LOGS", help="Spark's event log, or their directory; also s3://…"),
    ],
    since: Annotated[str, typer.Option(help="Scans of that age or less count: 7d, 12h.")] = "30d",
    last: Annotated[int, typer.Option(min=0, help="Show so many scans.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show the scans of a table in Spark's event logs.

    Of scans by Iceberg's runtime: their filters, the data files and bytes that each one read, and
    the order of rows that suits them.
    """
    from arctic_orchestration.lake.spark_scans import bytes_by_column, spark_scans, suggested_sort

    begin = utc_now() - age_option("--since", since)
    loaded = Lake(Settings.from_environment()).table(table)
    out = Console(stderr=True)
    progress = partial(
        track, description="reading Spark's event logs", console=out, transient=True,
        disable=not out.is_terminal,
    )  # fmt: skip
    found = spark_scans(loaded, logs, begin, progress)
    read = bytes_by_column(found.scans)
    count = {name: sum(name in scan.columns for scan in found.scans) for name in read}
    suggested = suggested_sort(loaded, found.scans)
    now = loaded.properties.get(_SORT)
    newest = found.scans[::-1][:last]
    if as_json:
        print_json(
            {
                "table": table,
                "logs": found.logs,
                "unread": found.unread,
                "scans": len(found.scans),
                "columns": [
                    {"column": name, "scans": count[name], "bytes": number}
                    for name, number in read.most_common()
                ],
                "last": [_document(scan) for scan in newest],
                "sort": {"now": now, "suggested": suggested},
            }
        )
        return
    out = console()
    _print_summary(table, found)
    if not found.scans:
        return
    columns = Rows(None, "compared column", "scans", "bytes read", text="compared column")
    for name, number in read.most_common():
        columns.add(escape(name), str(count[name]), format_bytes(number))
    out.print()
    columns.print()
    out.print()
    shown = Rows(None, "last scans", "files", "size", "filter", text="filter")
    for scan in newest:
        shown.add(moment(scan.at), _of(scan), _size(scan), escape(_filter(scan)))
    shown.print()
    out.print()
    if suggested is None:
        out.print("these scans compare no column that files can be sorted by")
    elif _is_same(now, suggested):
        out.print(f"{_SORT} suits them: {escape(str(now))}")
    else:
        unset = "not set" if loaded.sort_order().is_unsorted else "not set, the table has an order"
        out.print(
            f"[bold]{_SORT}[/] is {escape(now or unset)}; what these scans compare suggests "
            f"[bold]{escape(suggested)}[/]. arctic compaction plan shows its cost once it is set"
        )


def _print_summary(table: str, found: "SparkScans") -> None:
    out = console()
    span = ""
    if found.scans:
        span = f", from {moment(found.scans[0].at)} to {moment(found.scans[-1].at)}"
    out.print(
        f"{counted(len(found.scans), 'scan')} of {escape(table)} in "
        f"{counted(found.logs, 'log')}{span}"
    )
    for reason in found.unread:
        out.print(f"[dim]not read to its end:[/] {escape(reason)}")


def _is_same(now: str | None, suggested: str) -> bool:
    """Whether rows are sorted by these columns; their direction does not matter to filters."""
    with contextlib.suppress(ValueError):
        return _columns(now or "never") == _columns(suggested)
    return False


def _columns(text: str) -> tuple[bool, list[str]] | None:
    found = parse_clustering(text)
    return None if found is None else (found.z_order, [column.name for column in found.columns])


def _filter(scan: "SparkScan") -> str:
    text = scan.filter or "none"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _of(scan: "SparkScan") -> str:
    if scan.files is None:
        return ""
    return f"{scan.files} of {scan.files + (scan.skipped or 0)}"


def _size(scan: "SparkScan") -> str:
    return "" if scan.bytes is None else format_bytes(scan.bytes)


def _document(scan: "SparkScan") -> dict[str, Any]:
    return {**asdict(scan), "at": iso(scan.at), "columns": sorted(scan.columns)}
