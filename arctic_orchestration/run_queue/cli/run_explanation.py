"""Explains one run, queued or not, as a tree."""

from datetime import datetime

from rich.tree import Tree

from arctic_orchestration.console.display import colored, console, moment
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.run_queue.dagster.run_details import RunDetails, span
from arctic_orchestration.run_queue.explanation import RunExplanation

_SHUT, _OPEN = "[yellow]…[/]", "[green]✓[/]"


def print_explanation(seen: RunDetails, now: datetime) -> None:
    """Prints a run's details as a tree."""
    of = f" of {escape(seen.location)}" if seen.location else ""
    tree = Tree(f"[bold]run {seen.run_id}[/]  {escape(seen.job)}{of}  {_status(seen.status)}")
    tree.add(escape(seen.summary))
    if seen.problem:
        tree.add(f"[red]problem[/] {escape(seen.problem)}")
    if seen.reported is not None:
        held = seen.queued.wait if seen.queued else None
        since = moment(seen.reported.since)
        if held is not None and held.gate == seen.reported.gate:
            tree.add(f"[bold]reported[/] since {since}")
        else:
            tree.add(f"[bold]last reported[/] at {since}: {escape(seen.reported.reason)}")
    explained = seen.queued
    if explained is None:
        tree.add(f"[bold]queued[/] {moment(seen.queued_at)}" + _waited(seen))
    else:
        tree.add(
            f"[bold]queued[/] {moment(seen.queued_at)}, {span(seen.queued_at, now)} ago; "
            f"number {explained.place} of {explained.waiting}"
        )
        _add_queued(tree, explained, now)
    if seen.pools is not None:
        branch = tree.add(f"[bold]Dagster's pools[/] {escape(seen.pools.text)}")
        for pool in seen.pools.pools:
            branch.add(f"{_OPEN if pool.has_room else _SHUT} {escape(pool.text)}")
    if seen.scheduling_job is not None:
        job = seen.scheduling_job
        branch = tree.add(
            f"[bold]schedule[/] {escape(job.schedule)} of {escape(job.location)}, job {job.id}"
        )
        branch.add(f"{colored(job.state)}: {escape(job.reason)}")
    console().print(tree)


def _add_queued(tree: Tree, explained: RunExplanation, now: datetime) -> None:
    branch = tree.add("[bold]judged[/] in this order")
    if not explained.gates:
        branch.add(f"{_OPEN} no rule holds it back, and nothing that it is in is paused")
    elif all(gate.kind != "paused" for gate in explained.gates):
        branch.add(f"{_OPEN} nothing that it is in is paused")
    for gate in explained.gates:
        branch.add(f"{_OPEN if gate.is_open else _SHUT} {escape(gate.text)}")
    last = (explained.slots,) if explained.share is None else (explained.share, explained.slots)
    for left in last:
        branch.add(f"{_OPEN if left.is_open else _SHUT} {escape(left.text)}")
    age = explained.age
    named = f"level[/] {age.level}" if age.level is not None else f"priority[/] {age.number}"
    tree.add(f"[bold]{named}: {escape(age.text(now))}")


def _waited(seen: RunDetails) -> str:
    until = seen.started_at or seen.ended_at
    if until is None:
        return ""
    waited = span(seen.queued_at, until)
    return f", {'started' if seen.started_at else 'ended'} {waited} later"


def _status(status: str) -> str:
    return f"[yellow]{status}[/]" if status == "QUEUED" else escape(status)
