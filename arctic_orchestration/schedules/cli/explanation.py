"""Prints an explanation as a tree."""

from collections.abc import Sequence

from rich.tree import Tree

from arctic_orchestration.console.display import Rows, colored, console, counted, moment
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.quantities import format_bytes
from arctic_orchestration.schedules.jobs import WAITING
from arctic_orchestration.schedules.triggers import Arrivals
from arctic_orchestration.schedules.views.explanation import ConstraintNode, Explanation, Move
from arctic_orchestration.schedules.views.texts import one_line
from arctic_orchestration.schedules.views.trigger_tree import TriggerNode

_MARKS = {
    None: "[dim]·[/]",
    "admit": "[green]✓[/]",
    "hold": "[yellow]…[/]",
    "cancel": "[red]✗[/]",
}


def print_explanation(explained: Explanation) -> None:
    """Prints the tree of trigger and constraints, then the history."""
    stored, job = explained.schedule, explained.job
    status = colored(stored.status.value)
    if stored.suspended:
        status += f" ({stored.schedule.suspend_mode})"
    tree = Tree(f"[bold]{escape(stored.name)}[/]  {status}, version {stored.version}")
    tree.add(escape(explained.summary))
    for text in explained.unknown:
        tree.add(f"[red]does not match the code:[/] {escape(text)}")
    for text in explained.cycles:
        tree.add(f"[yellow]cycle:[/] {escape(text)}")
    if job is not None:
        since = f"{colored(job.state.value)} job {job.id}, made {moment(job.created_at)}"
        tree.add(since + (f", priority {job.priority}" if job.priority else ""))
    if explained.partition is not None:
        kind = "group" if stored.schedule.partitions == "none" else "target partition"
        tree.add(f"[bold]{kind}[/] {escape(explained.partition)}")
    if explained.trigger is None:
        tree.add("[dim]trigger: of another version of the schedule[/]")
    else:
        _add_trigger(tree, explained.trigger, "[bold]trigger[/] ")
    branch = tree.add("[bold]constraints[/]" + ("" if explained.constraints else " none"))
    for constraint in explained.constraints:
        _add_constraint(branch, constraint)
    if explained.timeout:
        tree.add(f"[bold]timeout[/] {escape(explained.timeout)}")
    if (
        job is not None
        and job.state in WAITING
        and job.next_check_at not in (None, job.deadline_at)
    ):
        tree.add(f"[bold]next check[/] {moment(job.next_check_at)}")
    if explained.partitions:
        more = f" and {explained.more_partitions} more" if explained.more_partitions else ""
        tree.add(f"[bold]partitions[/] {escape(', '.join(explained.partitions))}{more}")
    if explained.events:
        tree.add(f"[bold]events[/] {explained.events}")
    if explained.others_waiting:
        tree.add(f"{counted(explained.others_waiting, 'other job')} of the schedule waiting")
    console().print(tree)
    if explained.history:
        print_history(explained.history)


def print_history(history: Sequence[Move]) -> None:
    """Prints the moves of a job."""
    shown = Rows("history", "at", "from", "to", "by", "reason", text="reason")
    for move in history:
        before = "" if move.before == move.state else colored(move.before)
        after = "" if move.before == move.state else colored(move.state)
        shown.add(moment(move.at), before, after, escape(move.actor), escape(move.reason))
    shown.print()


def _add_trigger(tree: Tree, node: TriggerNode, title: str = "") -> None:
    mark = "[green]✓[/]" if node.satisfied else "[yellow]…[/]"
    branch = tree.add(f"{title}{mark} {escape(one_line(node.form))}")
    # If only "and" or only "or" joins the children, their reasons say it all.
    own = not node.children or bool(node.form[node.kind])
    if own:
        branch.add(escape(node.reason))
    if node.arrivals is not None and node.arrivals.events:
        branch.add(f"[dim]{escape(_arrived(node.arrivals))}[/]")
    if node.next_tick_at is not None:
        branch.add(f"[dim]next tick {moment(node.next_tick_at)}[/]")
    if node.recheck_at is not None and own:
        branch.add(f"[dim]next check {moment(node.recheck_at)}[/]")
    for child in node.children:
        _add_trigger(branch, child)


def _add_constraint(tree: Tree, node: ConstraintNode) -> None:
    branch = tree.add(f"{_MARKS.get(node.decision, '?')} {escape(one_line(node.form))}")
    decision = f"{colored(node.decision)}: " if node.decision else ""
    branch.add(decision + escape(node.reason))
    if node.recheck_at is not None:
        branch.add(f"[dim]next check {moment(node.recheck_at)}[/]")


def _arrived(arrivals: Arrivals) -> str:
    """Returns the arrivals at a leaf, on one line."""
    parts = [counted(arrivals.events, "event")]
    if arrivals.bytes:
        parts.append(format_bytes(arrivals.bytes))
    if arrivals.first_at == arrivals.last_at:
        return f"{', '.join(parts)} at {moment(arrivals.first_at)}"
    return f"{', '.join(parts)} from {moment(arrivals.first_at)} to {moment(arrivals.last_at)}"
