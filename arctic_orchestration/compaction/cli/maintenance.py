"""The upkeep of one table: ``expire-snapshots``, ``remove-orphans`` and ``rewrite-manifests``."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.cli.context import (
    Opened,
    TableArgument,
    age_option,
    opened_compaction,
    positive_duration,
    working,
)
from arctic_orchestration.console.display import Rows, console, counted, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.quantities import format_bytes, iso
from arctic_orchestration.state import audit
from arctic_orchestration.state.dialect import not_ahead

if TYPE_CHECKING:
    from arctic_orchestration.lake.upkeep.maintenance import FailedRemoval, RemovedFile

#: the maximum number of files listed for people
_SHOWN = 20

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Says what would go; nothing goes.")]


def expire_snapshots(
    table: TableArgument,
    older_than: Annotated[str, typer.Option(help="Snapshots of that age go: 7d, 12h.")],
    keep_last: Annotated[
        int | None, typer.Option(help="So many of a branch stay; default: the table's property.")
    ] = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Expire old snapshots and remove their files.

    Snapshots from which a live task was planned stay, and the files that live tasks know.
    """
    age = age_option("--older-than", older_than)
    if keep_last is not None and keep_last < 1:
        raise InvalidInput("--keep-last", keep_last, "a whole number, 1 or more")
    with opened_compaction() as state:
        from arctic_orchestration.compaction.upkeep import Protection, planned_from
        from arctic_orchestration.lake.upkeep.maintenance import expire_snapshots as expire

        loaded = state.table(table)
        with state.database.read() as tx:
            keep = planned_from(tx, table)
            now = not_ahead(tx, utc_now())
        if not dry_run:
            _audit(state, "expire-snapshots", table, older_than=older_than, keep_last=keep_last)
        with working("reading manifests"):
            expired = expire(
                loaded,
                older_than=now - age,
                keep_last=keep_last,
                dry_run=dry_run,
                keep=keep,
                protected=Protection(state.database, table),
                now=now,
            )
    if as_json:
        print_json(
            {
                "table": table,
                "dry_run": dry_run,
                "older_than": iso(now - age),
                "snapshots": list(expired.snapshot_ids),
                "refs": list(expired.refs),
                **_files_json(expired.files, expired.failed),
            }
        )
    else:
        would = "would be forgotten" if dry_run else "forgotten"
        expired_text = counted(len(expired.snapshot_ids), "snapshot")
        if expired.refs:
            expired_text += f" and the refs {', '.join(expired.refs)}"
        console().print(escape(f"{table}: {expired_text} {would}"))
        _print_files(expired.files, expired.failed, dry_run)
    if expired.failed:
        raise typer.Exit(1)


def remove_orphans(
    table: TableArgument,
    older_than: Annotated[str, typer.Option(help="Files of that age go: 3d; at least 1d.")],
    any_age: Annotated[
        bool,
        typer.Option("--any-age", help="Also less than 1d; only without writers of the table."),
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove files that no snapshot and no live task knows."""
    age = positive_duration("--older-than", older_than)
    with opened_compaction() as state:
        from arctic_orchestration.compaction.upkeep import Protection
        from arctic_orchestration.lake.upkeep.maintenance import remove_orphans as remove
        from arctic_orchestration.lake.upkeep.orphans import SAFE_AGE

        if age < SAFE_AGE and not any_age:
            expected = "1d or more, or --any-age without writers of the table"
            raise InvalidInput("--older-than", older_than, expected)
        loaded = state.table(table)
        with state.database.read() as tx:
            now = not_ahead(tx, utc_now())
        if not dry_run:
            _audit(state, "remove-orphans", table, older_than=older_than, any_age=any_age)
        with working("listing files"):
            orphans = remove(
                loaded,
                older_than=now - age,
                dry_run=dry_run,
                any_age=any_age,
                protected=Protection(state.database, table),
                now=now,
            )
    if as_json:
        print_json(
            {
                "table": table,
                "dry_run": dry_run,
                "older_than": iso(now - age),
                "too_young": orphans.young,
                "of_live_tasks": orphans.protected,
                **_files_json(orphans.files, orphans.failed),
            }
        )
    else:
        console().print(escape(f"{table}: {_orphans_text(orphans.young, orphans.protected)}"))
        _print_files(orphans.files, orphans.failed, dry_run)
    if orphans.failed:
        raise typer.Exit(1)


def rewrite_manifests(
    table: TableArgument,
    fewest: Annotated[
        int, typer.Option(help="Of fewer small ones of a kind, all stay.", metavar="N")
    ] = 2,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Merge small manifests: scans open fewer files.

    Small is below half of the table's commit.manifest.target-size-bytes. Files and rows stay.
    """
    if fewest < 2:
        raise InvalidInput("--fewest", fewest, "a whole number, 2 or more")
    with opened_compaction() as state:
        from arctic_orchestration.lake.upkeep.manifest_rewriting import rewrite_manifests as rewrite

        loaded = state.table(table)
        if not dry_run:
            _audit(state, "rewrite-manifests", table, fewest=fewest)
        with working("reading manifests"):
            done = rewrite(loaded, fewest=fewest, dry_run=dry_run)
    if as_json:
        print_json(
            {
                "table": table,
                "dry_run": dry_run,
                "manifests": done.before,
                "merged": done.merged,
                "written": done.written,
                "snapshot": done.snapshot_id,
            }
        )
        return
    text = f"{done.merged} of {counted(done.before, 'manifest')}"
    would = "would be merged" if dry_run else "merged"
    into = "" if done.snapshot_id is None else f" into {done.written}"
    console().print(escape(f"{table}: {text} {would}{into}"))


def _audit(state: Opened, action: str, table: str, **details: Any) -> None:
    """Records the command before it removes anything: no transaction covers both."""
    with state.database.begin() as tx:
        audit.record(tx, state.actor, "compaction", action, table, **details)


def _orphans_text(young: int, protected: int) -> str:
    left = []
    if young:
        left.append(f"{counted(young, 'file')} unknown but too young, left alone")
    if protected:
        left.append(f"{counted(protected, 'file')} of live tasks left alone")
    return "; ".join(left) or "no unknown file was left alone"


def _print_files(
    files: "Sequence[RemovedFile]", failed: "Sequence[FailedRemoval]", dry_run: bool
) -> None:
    out = console()
    done = "would be removed" if dry_run else "removed"
    kinds: dict[str, int] = defaultdict(int)
    for file in files:
        kinds[file.kind.value] += 1
    by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    size = format_bytes(sum(file.size or 0 for file in files))
    text = f"{counted(len(files), 'file')} of {size} {done}"
    out.print(f"{text}: {by_kind}" if by_kind else text)
    if files and dry_run:
        shown = Rows(None, "size", "kind", "path", text="path")
        for file in files[:_SHOWN]:
            size = "" if file.size is None else format_bytes(file.size)
            shown.add(size, file.kind.value, escape(file.path))
        shown.print()
        if len(files) > _SHOWN:
            out.print(f"[dim]and {len(files) - _SHOWN} more: --json has all of them[/]")
    for failure in failed:
        out.print(f"[red]not removed:[/] {escape(failure.path)}: {escape(failure.reason)}")


def _files_json(
    files: "Iterable[RemovedFile]", failed: "Iterable[FailedRemoval]"
) -> dict[str, Any]:
    return {
        "files": [
            {"path": file.path, "kind": file.kind.value, "bytes": file.size} for file in files
        ],
        "failed": [{"path": one.path, "reason": one.reason} for one in failed],
    }
