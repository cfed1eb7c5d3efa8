"""``arctic compaction explain``: the state of one table, as a tree."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from rich.tree import Tree

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.cli.context import (
    Opened,
    TableArgument,
    opened_compaction,
    working,
)
from arctic_orchestration.compaction.cli.file_stats import read_tables
from arctic_orchestration.compaction.cli.plan import left_text, plan_now
from arctic_orchestration.compaction.cli.policy import Line, policy_lines
from arctic_orchestration.compaction.cli.tables import (
    numbers_text,
    queue_text,
    read_view,
    tasks_text,
)
from arctic_orchestration.compaction.cli.task import colored
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.table_plan import TablePlan
from arctic_orchestration.compaction.queue.task import Task
from arctic_orchestration.compaction.views.documents import PlanDocument, details_document
from arctic_orchestration.compaction.views.table_details import TableDetails, table_details
from arctic_orchestration.compaction.views.task_waits import commit_text
from arctic_orchestration.console.display import console, counted, print_json, short_id
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import ArcticError
from arctic_orchestration.quantities import format_bytes, format_duration, format_moment, iso

#: the maximum number of tasks shown of a plan, and in quarantine
_SHOWN = 8
_OPEN, _SHUT, _WAITS = "[green]✓[/]", "[red]✗[/]", "[yellow]…[/]"


@dataclass(frozen=True, kw_only=True)
class ExplainedTable(TableDetails):
    """The state of a table."""

    #: none: its properties are invalid
    policy: Policy | None
    lines: Sequence[Line]
    #: none: it cannot be planned
    plan: TablePlan | None
    #: why there is no policy, or no plan
    problem: str | None

    def due_text(self, now: datetime) -> tuple[str, str]:
        """Returns whether it is checked, and the reason: a mark, and a sentence."""
        row = self.seen.row
        if row is None:
            return _WAITS, "the planner has not found it yet: its next rounds do"
        if row.gone_at is not None:
            return _SHUT, f"the catalog has it no more since {format_moment(row.gone_at)}"
        if row.rests(now) and row.rests_until is not None:
            return _SHUT, (
                f"rests until {format_moment(row.rests_until)}, for the "
                f"{_ordinal(row.failures)} time without a commit: {row.rest_reason}"
            )
        if row.due_since is not None:
            return _OPEN, f"due since {format_moment(row.due_since)}: {row.due_reason}"
        if row.looked_at is None:
            return _WAITS, "not planned yet"
        text = f"not due: planned last at {format_moment(row.looked_at)}: {row.looked_reason}"
        return _WAITS, f"{text}; {self._again()}"

    def _again(self) -> str:
        often = format_duration(self.policy.check_interval) if self.policy else "now and then"
        text = f"its metadata is read every {often}" if self.policy else f"it is read {often}"
        if self.plan is not None and self.plan.recheck_at is not None:
            text += (
                ", and it is planned again with a new snapshot, or at "
                f"{format_moment(self.plan.recheck_at)}"
            )
        return text


def explain(
    table: TableArgument,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="So many live tasks at most.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """Explain why a table is compacted or not."""
    now = utc_now()
    with opened_compaction() as state, working("reading manifests"):
        explained = explained_table(state, table, now, limit)
    if as_json:
        print_json(explanation_json(explained, now))
    else:
        print_explanation(explained, now)


def explained_table(state: Opened, name: str, now: datetime, limit: int) -> ExplainedTable:
    """Returns the present state of a table.

    Errors:
        NotFound: the catalog does not have the table.
        LakeError: the catalog does not answer.
    """
    properties = state.table(name).properties
    policy, lines, plan, problem = None, [], None, None
    try:
        policy = Policy.of(properties, name)
        lines = policy_lines(policy, properties)
        plan = plan_now(state, name, now)
    except ArcticError as error:
        problem = str(error)
    seen = read_view(state, name, read_tables(state, [name])[name])
    with state.database.read() as tx:
        details = table_details(tx, seen, now, limit)
    return ExplainedTable(**vars(details), policy=policy, lines=lines, plan=plan, problem=problem)


def print_explanation(explained: ExplainedTable, now: datetime) -> None:
    """Prints the state of a table as a tree."""
    seen = explained.seen
    tree = Tree(f"[bold]{escape(seen.name)}[/]  {escape(seen.reasons(now)[0])}")
    _add_policy(tree, explained)
    if seen.numbers is not None:
        tree.add(f"[bold]files[/] {escape(numbers_text(seen.numbers))}")
    elif seen.trouble is not None:
        tree.add(f"[bold]files[/] [red]{escape(seen.trouble)}[/]")
    mark, text = explained.due_text(now)
    tree.add(f"[bold]due[/] {mark} {escape(text)}")
    _add_plan(tree, explained)
    _add_queue(tree, explained)
    _add_tasks(tree, explained)
    _add_quarantined(tree, explained.quarantined)
    _add_commits(tree, explained, now)
    if explained.upkeep is not None:
        tree.add(f"[bold]upkeep[/] {escape(explained.upkeep)}")
    console().print(tree)


def _add_policy(tree: Tree, explained: ExplainedTable) -> None:
    if explained.policy is None:
        tree.add(f"[bold]policy[/] {_SHUT} {escape(explained.problem or '')}")
        return
    named = [line for line in explained.lines if line.property is not None]
    source = {0: "all by default", 1: "1 property of the table, the rest by default"}.get(
        len(named), f"{len(named)} properties of the table, the rest by default"
    )
    branch = tree.add(f"[bold]policy[/] {source}")
    for line in named:
        branch.add(f"{escape(line.value)} [dim]{escape(line.property or '')}[/]")
    rest = [f"{line.name} {line.value}" for line in explained.lines if line.property is None]
    branch.add(f"[dim]by default: {escape(', '.join(rest))}[/]")


def _add_plan(tree: Tree, explained: ExplainedTable) -> None:
    plan = explained.plan
    if plan is None:
        if explained.policy is not None:
            tree.add(f"[bold]plan[/] {_SHUT} {escape(explained.problem or '')}")
        return
    mark = _SHUT if plan.refused is not None else _OPEN if plan.tasks else _WAITS
    branch = tree.add(f"[bold]planned now[/] {mark} {escape(plan.gain)}")
    planned = [one for one in plan.partitions if one.tasks]
    for one in planned[:_SHOWN]:
        name = f"{one.name}: " if one.name else ""
        notes = "".join(f"; {note}" for note in one.notes)
        branch.add(
            escape(
                f"{name}{one.kind}, {one.merged_files} of {counted(one.files, 'file')} in "
                f"{counted(one.tasks, 'task')}: {one.reason}{notes}"
            )
        )
    if len(planned) > _SHOWN:
        more = counted(len(planned) - _SHOWN, "partition")
        branch.add(f"[dim]and {more} more: arctic compaction plan --dry-run[/]")
    for left in plan.left_alone():
        where = counted(left.partitions, "partition")
        branch.add(
            f"[dim]left alone:[/] {where} of {counted(left.files, 'file')}: "
            f"{escape(left_text(left))}"
        )


def _add_queue(tree: Tree, explained: ExplainedTable) -> None:
    row, queue = explained.seen.row, explained.queue
    if row is None or queue is None:
        return
    workers = (
        f"{counted(len(queue.workers), 'worker')} with {counted(queue.slots, 'slot')}"
        if queue.workers
        else "no worker serves it"
    )
    tree.add(escape_bold("queue", f"{queue_text(row)}, the table's level {row.level}; {workers}"))


def _add_tasks(tree: Tree, explained: ExplainedTable) -> None:
    live = sum(explained.seen.tasks.values())
    if not live:
        tree.add("[bold]tasks[/] none is live")
        return
    branch = tree.add(f"[bold]tasks[/] {tasks_text(explained.seen)}")
    for one in explained.waiting:
        task = one.task
        of = f" {escape(task.partition)}" if task.partition else ""
        leaf = branch.add(f"{short_id(task.id)} {colored(task.state)}{of}: {escape(task.gain)}")
        leaf.add(escape(one.text))
    if live > len(explained.waiting):
        branch.add(f"[dim]and {live - len(explained.waiting)} more: --limit {live}[/]")


def _add_quarantined(tree: Tree, quarantined: Sequence[Task]) -> None:
    if not quarantined:
        return
    branch = tree.add(f"[bold]in quarantine[/] [red]{counted(len(quarantined), 'task')}[/]")
    for task in quarantined[:_SHOWN]:
        of = f" {escape(task.partition)}" if task.partition else ""
        leaf = branch.add(f"{short_id(task.id)}{of}, since {format_moment(task.state_at)}")
        leaf.add(escape(task.reason))
    if len(quarantined) > _SHOWN:
        branch.add(f"[dim]and {len(quarantined) - _SHOWN} more: --state quarantined[/]")


def _add_commits(tree: Tree, explained: ExplainedTable, now: datetime) -> None:
    last, row = explained.last, explained.seen.row
    parts = ["none yet"]
    if last is not None:
        parts = [
            f"the last at {format_moment(last.at)}: {last.files_in} files → {last.files_out}, "
            f"{format_bytes(last.bytes_in)} → {format_bytes(last.bytes_out)}"
        ]
    if row is not None:
        parts.append(commit_text(row, now))
        if row.commit_trouble is not None:
            parts.append(f"the last attempt failed: {row.commit_trouble}")
    if explained.policy is not None and explained.policy.commit_interval > timedelta(0):
        parts.append(f"{format_duration(explained.policy.commit_interval)} apart at least")
    tree.add(escape_bold("commits", "; ".join(parts)))


def escape_bold(name: str, text: str) -> str:
    """Formats a line of the tree."""
    return f"[bold]{name}[/] {escape(text)}"


def explanation_json(explained: ExplainedTable, now: datetime) -> dict[str, Any]:
    """Returns the state of a table for programs; its keys are stable."""
    seen, row = explained.seen, explained.seen.row
    return {
        "table": seen.name,
        "reasons": seen.reasons(now),
        "problem": explained.problem,
        "policy": [
            {"name": line.name, "value": line.value, "property": line.property}
            for line in explained.lines
        ],
        "numbers": seen.numbers and asdict(seen.numbers),
        "trouble": seen.trouble,
        "due": explained.due_text(now)[1],
        "due_since": iso(row.due_since) if row else None,
        "rests_until": iso(row.rests_until) if row and row.rests(now) else None,
        "refused": row and row.refused,
        "plan": explained.plan and PlanDocument.from_record(explained.plan),
        **details_document(explained).to_json(),
        "next_commit_at": iso(row.next_commit_at) if row else None,
        "commit_trouble": row and row.commit_trouble,
    }


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ends.get(number % 10, 'th')}"
