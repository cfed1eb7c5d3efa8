"""``arctic compaction plan``: which files would be merged, the effect, and the reasons."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.cli.context import (
    Opened,
    TableArgument,
    opened_compaction,
    working,
)
from arctic_orchestration.compaction.cli.task import print_files
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.table_plan import LeftAlone, TablePlan
from arctic_orchestration.compaction.queue.offers import Offered
from arctic_orchestration.compaction.views.documents import PlanDocument
from arctic_orchestration.console.display import Rows, console, counted, moment, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.quantities import format_bytes

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from arctic_orchestration.lake.sort_gain import SortGain

#: the maximum number of tasks shown with their files
_TASKS_SHOWN = 20
#: the maximum number of their files
_FILES_SHOWN = 10

ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Whatever can be better is made better, also below thresholds."),
]


FullOption = Annotated[
    bool, typer.Option("--full", help="All files are rewritten, and sorted; implies --force.")
]


def plan(
    table: TableArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only shows it; nothing is offered.")
    ] = False,
    force: ForceOption = False,
    full: FullOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan a table and offer the plan to its queue.

    The planner's next plan of the table replaces what no worker has claimed by then, unless it was
    forced.
    """
    now = utc_now()
    with opened_compaction(makes=True) as state:
        # First, so that an unknown name lists the existing ones.
        loaded = state.table(table)
        Policy.of(loaded.properties, table)
        with working("reading manifests"):
            if dry_run:
                made, offered = plan_now(state, table, now, force=force, full=full), None
            else:
                from arctic_orchestration.compaction.run_once import offer_now

                made, offered = offer_now(
                    state.database, state.catalog, table, now, force=force, full=full,
                    by=state.actor,
                )  # fmt: skip
            gain = _sort_gain(loaded, made)
    if as_json:
        document = {"table": table, "dry_run": dry_run, **PlanDocument.from_record(made).to_json()}
        document["sort"] = None if gain is None else asdict(gain)
        print_json({**document, **offer_json(offered)})
        return
    print_plan(table, made)
    if gain is not None:
        reads_now, reads_then = format_bytes(gain.reads_now), format_bytes(gain.reads_then)
        console().print()
        console().print(
            f"[bold]sorted[/]: about {gain.cpu} times the CPU of a merge that only decodes. A "
            f"filter on one value of {escape(gain.column)} reads about {reads_now} now, and "
            f"{reads_then} then; arctic compaction reads measures any filter"
        )
    if offered is not None:
        console().print()
        console().print(escape(offer_text(offered)))


def plan_now(
    state: Opened, table: str, now: datetime, *, force: bool = False, full: bool = False
) -> TablePlan:
    """Returns what would be merged in a table now; writes nothing.

    Errors:
        NotFound: the catalog does not have the table.
        InvalidDefinition: a property of the table is invalid.
        LakeError: the catalog or a manifest cannot be read.
    """
    from arctic_orchestration.compaction.planning.table_planner import plan_table

    return plan_table(state.database, state.catalog, table, now, forced=force or full, full=full)


def _sort_gain(table: "Table", made: TablePlan) -> "SortGain | None":
    """Returns the effect of sorting what is planned; None: it is not sorted by the property."""
    from arctic_orchestration.lake.clustering import clustering_of
    from arctic_orchestration.lake.file_sizes import outputs_wanted
    from arctic_orchestration.lake.sort_gain import SortedTask, sort_gain

    by = clustering_of(table) if made.tasks else None
    if by is None or made.snapshot_id is None:
        return None
    # The table may have been written to since it was loaded.
    snapshot = table.snapshot_by_id(made.snapshot_id)
    snapshot = snapshot or table.refresh().snapshot_by_id(made.snapshot_id)
    if snapshot is None:
        return None
    target = Policy.of(table.properties, ".".join(table.name())).target_size
    tasks = []
    for task in made.tasks:
        size = sum(file.size for file in task.group.files)
        outputs = outputs_wanted(size, target, files=len(task.group.files))
        paths = frozenset(file.path for file in task.group.files)
        tasks.append(SortedTask(paths=paths, bytes=size, outputs=outputs))
    return sort_gain(table, by, snapshot, tasks)


def print_plan(table: str, plan: TablePlan) -> None:
    """Prints a plan: its tasks with their files, and what is left alone."""
    out = console()
    out.print(f"[bold]{escape(table)}[/]: {escape(plan.gain)}")
    for number, task in enumerate(plan.tasks[:_TASKS_SHOWN], 1):
        out.print()
        of = f" of {escape(task.partition)}" if task.partition else ""
        out.print(f"[bold]{number}. {task.kind} merge{of}[/]: {escape(task.gain)}")
        out.print(f"[dim]because[/] {escape(task.reason)}")
        print_files(task.group.files, None, most=_FILES_SHOWN)
    more = len(plan.tasks) - _TASKS_SHOWN
    if more > 0:
        out.print(f"[dim]and {counted(more, 'task')} more: --json has all of them[/]")
    left = plan.left_alone()
    if left:
        out.print()
        print_left_alone(left)
    if plan.recheck_at is not None:
        out.print(f"[dim]with the same files, another plan at the earliest at[/] "
                  f"{moment(plan.recheck_at)}")  # fmt: skip


def print_left_alone(left: Sequence[LeftAlone]) -> None:
    """Prints the partitions without tasks, by cause."""
    shown = Rows("left alone", "partitions", "files", "why", text="why")
    for one in left:
        shown.add(str(one.partitions), str(one.files), escape(left_text(one)))
    shown.print()


def left_text(one: LeftAlone) -> str:
    """Returns why partitions are left alone, with the first of them."""
    examples = "; ".join(one.examples)
    return f"{one.left.value} ({examples})" if examples else one.left.value


def offer_text(offered: Offered) -> str:
    """Returns the result of an offer, on one line."""
    if offered.stale:
        return "nothing is offered: another plan or a commit was first; plan again"
    parts = [f"{counted(len(offered.taken), 'task')} offered"]
    if offered.kept:
        parts.append(f"{len(offered.kept)} waited already")
    if offered.superseded:
        parts.append(f"{len(offered.superseded)} replaced")
    if offered.blocked:
        size = format_bytes(sum(task.bytes for task in offered.blocked))
        parts.append(f"{len(offered.blocked)} of {size} found no room: the table stays due")
    if offered.busy:
        parts.append(f"{len(offered.busy)} have files of tasks under way")
    return ", ".join(parts)


def offer_json(offered: Offered | None) -> dict[str, Any]:
    """Returns the result of an offer for programs; its keys are stable."""
    if offered is None:
        return {"offered": None}
    return {
        "offered": {
            "taken": list(offered.taken),
            "kept": list(offered.kept),
            "superseded": list(offered.superseded),
            "blocked": len(offered.blocked),
            "busy": len(offered.busy),
            "stale": offered.stale,
        }
    }
