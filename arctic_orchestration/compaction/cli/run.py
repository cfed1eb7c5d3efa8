"""``arctic compaction run``: plans, merges and commits one table, in this process."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.cli.context import TableArgument, opened_compaction
from arctic_orchestration.compaction.cli.plan import ForceOption, FullOption, offer_json, offer_text
from arctic_orchestration.compaction.cli.records import print_records
from arctic_orchestration.compaction.cli.spark import ConfOption, LakeSpark
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.views.documents import CompactionRecordDocument
from arctic_orchestration.compaction.views.task_documents import CompactionTaskDocument
from arctic_orchestration.console.display import console, counted, print_json
from arctic_orchestration.console.signals import on_stop_signal
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import Console, escape
from arctic_orchestration.errors import InvalidInput

if TYPE_CHECKING:
    from arctic_orchestration.compaction.planning.table_plan import LeftAlone, TablePlan
    from arctic_orchestration.compaction.run_once import RunResult
    from arctic_orchestration.compaction.work.worker import Merge, WorkerEvent
    from arctic_orchestration.lake.merging.strategy import Way

#: the exit code of shells after Ctrl-C
_INTERRUPTED = 130


def run(
    table: TableArgument,
    force: ForceOption = False,
    full: FullOption = False,
    way: Annotated[
        str | None,
        typer.Option(
            help="decode: all rows are read and written again. append: row groups are copied "
            "where nothing is lost by that, the default."
        ),
    ] = None,
    parallelism: Annotated[
        int, typer.Option("--parallelism", "-p", min=1, help="How many tasks at once.")
    ] = 2,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan, merge and commit a table in this process.

    Tasks of the table that other workers have are waited for. Exit code 1 when something is left,
    or when files rest, are in tasks of others or are too large, and so nothing could be merged.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    with opened_compaction(makes=True) as state:
        from arctic_orchestration.compaction.run_once import compact_now

        chosen = _way(way)
        # First, so that errors are reported before anything is changed.
        Policy.of(state.table(table).properties, table)
        with LakeSpark(state.settings, conf or []) as spark, _Shown(as_json) as shown:

            def on_plan(plan: "TablePlan") -> None:
                shown.planned(plan)
                if plan.tasks:
                    # Outside of the tasks: a Spark that does not start is no failure of a task.
                    shown.show("starting Spark")
                    spark()
                    shown.show("merging")

            try:
                with on_stop_signal(_interrupt):
                    result = compact_now(
                        state.database,
                        state.catalog,
                        _merge(spark, chosen),
                        table,
                        utc_now(),
                        force=force,
                        full=full,
                        parallelism=parallelism,
                        on_plan=on_plan,
                        on_event=shown,
                        by=state.actor,
                    )
            except KeyboardInterrupt:
                shown.stop()
                Console(stderr=True).print(
                    "interrupted: the committer's next round commits what is merged"
                )
                raise typer.Exit(_INTERRUPTED) from None
    if as_json:
        print_json(_json(table, result))
    else:
        _print(table, result)
    if not _is_done(result):
        raise typer.Exit(1)


def _way(text: str | None) -> "Way | None":
    from arctic_orchestration.lake.merging.strategy import Way

    if text is None:
        return None
    if text not in list(Way):
        raise InvalidInput("--way", text, " or ".join(Way))
    return Way(text)


def _merge(spark: LakeSpark, way: "Way | None") -> "Merge":
    from arctic_orchestration.lake.merging.merge import Merged, merge
    from arctic_orchestration.lake.merging.strategy import Way

    # Appending is never forced: where it would lose something, the files are decoded.
    forced = Way.DECODE if way is Way.DECODE else None

    def merged(table: Any, group: Any, directory: str, *, target_bytes: int) -> Merged:
        return merge(spark(), table, group, directory, target_bytes=target_bytes, way=forced)

    return merged


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt


class _Shown:
    """Shows progress to a person at a terminal; receives events from several threads."""

    def __init__(self, as_json: bool) -> None:
        out = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=out,
            transient=True,
            disable=as_json or not out.is_terminal,
        )
        self._bar = self._progress.add_task("planning", total=None)
        self._failures: Callable[[str], None] = lambda text: out.print(
            f"[red]failed[/] {escape(text)}", highlight=False
        )

    def __enter__(self) -> "_Shown":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __call__(self, event: "WorkerEvent") -> None:
        if event.what.value == "claimed":
            return
        self._progress.advance(self._bar)
        if event.what.value != "merged":
            self._failures(event.text)

    def planned(self, plan: "TablePlan") -> None:
        """Shows that the plan is made and offered."""
        self._progress.update(self._bar, total=len(plan.tasks))

    def show(self, what: str) -> None:
        """Shows the present action."""
        self._progress.update(self._bar, description=what)

    def stop(self) -> None:
        """Restores the terminal."""
        self._progress.stop()


def _is_done(result: "RunResult") -> bool:
    offered = result.offered
    return (
        offered is not None
        and offered.complete
        and not result.left
        and result.trouble is None
        and not (result.counts.wrong or result.counts.conflicts)
        and (bool(result.records) or not _barred(result))
    )


def _barred(result: "RunResult") -> list["LeftAlone"]:
    """Returns the partitions that cannot be merged now, though there may be something to merge."""
    from arctic_orchestration.compaction.planning.table_plan import Left

    barred = (Left.HELD, Left.RESTING, Left.TOO_LARGE)
    return [one for one in result.plan.left_alone() if one.left in barred]


def _print(table: str, result: "RunResult") -> None:
    out = console()
    out.print(f"[bold]{escape(table)}[/]: {escape(result.plan.gain)}")
    offered = result.offered
    if offered is not None and not offered.complete:
        out.print(f"[yellow]{escape(offer_text(offered))}[/]")
    counts = result.counts
    if counts.conflicts:
        conflicts = counted(counts.conflicts, "task")
        out.print(f"[yellow]{conflicts} came too late: the table has changed; planned again[/]")
    if counts.wrong:
        out.print(f"[red]{counted(counts.wrong, 'task')} with wrong outputs, in quarantine[/]")
    if result.trouble is not None:
        out.print(f"[red]not committed:[/] {escape(result.trouble)}")
    for task in result.left:
        out.print(f"[yellow]left: task {task.id} is {task.state}:[/] {escape(task.reason)}")
    if result.records:
        print_records(list(result.records))
    elif offered is not None and not result.plan.tasks:
        barred = _barred(result)
        if barred:
            out.print("[yellow]nothing could be merged[/]")
        for left in result.plan.left_alone():
            where = counted(left.partitions, "partition")
            mark = "[yellow]left alone:[/]" if left in barred else "[dim]left alone:[/]"
            out.print(f"{mark} {where}: {escape(left.left.value)}")


def _json(table: str, result: "RunResult") -> dict[str, Any]:
    return {
        "table": table,
        "gain": result.plan.gain,
        "refused": result.plan.refused,
        "planned": len(result.plan.tasks),
        **offer_json(result.offered),
        "records": CompactionRecordDocument.from_records(result.records),
        "conflicts": result.counts.conflicts,
        "wrong": result.counts.wrong,
        "left": CompactionTaskDocument.from_records(result.left),
        "trouble": result.trouble,
    }
