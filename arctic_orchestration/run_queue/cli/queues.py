"""``arctic queues``: the current state of the run queue's rules; pause and resume."""

from collections.abc import Sequence
from typing import Annotated

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.display import Rows, console, counted, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.run_queue import pauses
from arctic_orchestration.run_queue.cli.context import opened_queue
from arctic_orchestration.run_queue.cli.runs import print_trouble
from arctic_orchestration.run_queue.dagster.open_queue import daemon_trouble
from arctic_orchestration.run_queue.overview import (
    GroupDocument,
    PauseDocument,
    RulesDocument,
    of_target,
    overview,
)
from arctic_orchestration.run_queue.pauses import Pausable

app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As it stands in dagster.yaml.")]
GroupOption = Annotated[bool, typer.Option("--group", help="NAME is a group, not a queue.")]


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List queues, groups and rules, with their runs."""
    with opened_queue() as queue:
        now = utc_now()
        outlook = queue.outlook(now)
        seen = overview(outlook)
        trouble = daemon_trouble(queue.coordinator, queue.last_pass(), now)
    active = len(outlook.gates.census.active)
    if as_json:
        print_json(
            {
                "waiting": len(outlook.order),
                "in_progress": active,
                "max_concurrent_runs": outlook.limit,
                **seen.to_json(),
            }
        )
        return
    print_trouble(trouble)
    if not (seen.queues or seen.groups or seen.rules):
        console().print("dagster.yaml has no queues, groups or other rules for runs")
        return
    _print_queues(seen, active, outlook.limit)
    _print_groups(seen.groups)
    _print_rules(seen)


@app.command()
def pause(
    name: NameArgument,
    group: GroupOption = False,
    reason: Annotated[str, typer.Option(help="Why; people who look at a run read it.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Pause a queue or group; runs in progress continue."""
    _set(_kind(group), name, True, reason, as_json)


@app.command()
def resume(name: NameArgument, group: GroupOption = False, as_json: JsonOption = False) -> None:
    """Resume a queue or group.

    This also resumes one that dagster.yaml declares as paused.
    """
    _set(_kind(group), name, False, "", as_json)


def _kind(group: bool) -> Pausable:
    return Pausable.GROUP if group else Pausable.QUEUE


def _set(kind: Pausable, name: str, paused: bool, reason: str, as_json: bool) -> None:
    with opened_queue() as queue:
        pauses.check_known(queue.rules, kind, name)
        now = utc_now()
        with queue.database.begin() as tx:
            before = pauses.present(tx, queue.rules, queue.cluster, kind, name)
            changed = (before is not None) != paused
            if changed:
                by = actor(queue.cluster)
                pauses.change(tx, queue.rules, kind, name, now, by, paused=paused, reason=reason)
        seen = overview(queue.outlook(now))
        trouble = daemon_trouble(queue.coordinator, queue.last_pass(), now)
    line = of_target(seen, kind, name)
    if as_json:
        print_json(
            {
                kind.value: name,
                "paused": line.paused,
                "changed": changed,
                "waiting": line.waiting,
                "in_progress": line.in_progress,
            }
        )
        return
    out = console()
    if not changed and before is not None:
        out.print(escape(f"{before.text} already; nothing was changed"))
    elif not changed:
        out.print(escape(f"{kind} {name} is not paused; nothing was changed"))
    elif paused:
        out.print(escape(f"{kind} {name} is paused: from the next pass on no run of it starts"))
    else:
        out.print(escape(f"{kind} {name} is not paused any more: its runs start from the next "
                         "pass on"))  # fmt: skip
    waits = "1 run waits" if line.waiting == 1 else f"{line.waiting or 'no'} runs wait"
    goes_on = "1 run is" if line.in_progress == 1 else f"{line.in_progress or 'no'} runs are"
    goes_on += " in progress"
    if line.in_progress and line.paused is not None:
        goes_on += " and goes on" if line.in_progress == 1 else " and go on"
    out.print(f"{waits} in it, {goes_on}")
    print_trouble(trouble)


def _print_queues(seen: RulesDocument, active: int, limit: int | None) -> None:
    if not seen.queues:
        return
    slots = f"{active} in progress" if limit is None else f"{active} of {limit} slots in use"
    shown = Rows(
        f"{counted(len(seen.queues), 'queue')}, {slots}",
        *("queue", "level", "share", "in progress", "waiting", "paused"),
        text="paused",
    )
    for queue in seen.queues:
        shown.add(
            escape(queue.queue),
            str(queue.level),
            f"{queue.share:g}",
            str(queue.in_progress or ""),
            str(queue.waiting or ""),
            _pause_text(queue.paused),
        )
    shown.print()
    if seen.in_no_queue:
        waits = "1 run waits" if seen.in_no_queue == 1 else f"{seen.in_no_queue} runs wait"
        why = "they were queued before there were queues, or their queue was removed"
        console().print(f"[dim]{waits} in no queue: {why}[/]")


def _print_groups(groups: Sequence[GroupDocument]) -> None:
    if not groups:
        return
    console().print()
    shown = Rows(
        counted(len(groups), "group"),
        *("group", "limit", "in progress", "waiting", "paused"),
        text="paused",
    )
    for group in groups:
        shown.add(
            escape(group.group),
            _limits(group),
            str(group.in_progress or ""),
            str(group.waiting or ""),
            _pause_text(group.paused),
        )
    shown.print()


def _limits(group: GroupDocument) -> str:
    both = ((group.limit, "at once"), (group.limit_per_program, "a program"))
    return ", ".join(f"{limit} {what}" for limit, what in both if limit is not None)


def _print_rules(seen: RulesDocument) -> None:
    if not seen.rules:
        return
    console().print()
    shown = Rows("windows, rates and intervals", "", "name", "rule", "waiting", "now", text="now")
    for rule in seen.rules:
        color = {True: "green", False: "yellow", None: "default"}[rule.open]
        shown.add(
            rule.kind.value,
            escape(rule.name),
            escape(rule.rule),
            str(rule.waiting or ""),
            f"[{color}]{escape(rule.state)}[/]",
        )
    shown.print()


def _pause_text(pause: PauseDocument | None) -> str:
    if pause is None:
        return ""
    since = f"since {format_moment(pause.since)}" if pause.since else "in dagster.yaml"
    because = f": {pause.reason}" if pause.reason else ""
    by = f" by {pause.by}" if pause.by else ""
    return f"[yellow]{escape(since + by + because)}[/]"
