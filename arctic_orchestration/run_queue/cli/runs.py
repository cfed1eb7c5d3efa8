"""``arctic runs``: the runs in Dagster's run queue, why they wait, and their order."""

from typing import Annotated

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.display import Rows, console, moment, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import InvalidInput, TransitionRefused
from arctic_orchestration.quantities import iso
from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue.cli.context import opened_queue
from arctic_orchestration.run_queue.cli.run_explanation import print_explanation
from arctic_orchestration.run_queue.cli.run_timing import timing
from arctic_orchestration.run_queue.dagster.level_control import (
    check_queued,
    request_level,
    standing,
)
from arctic_orchestration.run_queue.dagster.open_queue import daemon_trouble
from arctic_orchestration.run_queue.dagster.run_details import run_details, run_document

app = typer.Typer(no_args_is_help=True)
app.command()(timing)

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, or at least 4 characters it begins with.")
]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List queued runs in order, with what holds each."""
    with opened_queue() as queue:
        now = utc_now()
        last = queue.last_pass()
        outlook = queue.outlook(now)
        lines = queue.lines(outlook, limit)
        trouble = daemon_trouble(queue.coordinator, last, now)
    waiting, active = len(outlook.order), len(outlook.gates.census.active)
    more = waiting - len(lines)
    if as_json:
        print_json(
            {
                "waiting": waiting,
                "in_progress": active,
                "max_concurrent_runs": outlook.limit,
                "last_pass": last and {"at": iso(last.at), "problem": last.problem},
                "runs": [{**line, "queued_at": iso(line["queued_at"])} for line in lines],
                "more": more,
            }
        )
        return
    print_trouble(trouble)
    waits = "1 run waits" if waiting == 1 else f"{waiting or 'no'} runs wait"
    slots = f"{active} in progress" if outlook.limit is None else (
        f"{active} of {outlook.limit} slots in use"
    )  # fmt: skip
    if not lines:
        console().print(f"{waits}, {slots}")
        return
    shown = Rows(f"{waits}, {slots}", "run", "job", "queue", "", "queued", "held by",
                 text="held by")  # fmt: skip
    for line in lines:
        shown.add(
            line["run_id"][:8] if console().is_terminal else line["run_id"],
            escape(line["job"]),
            escape(line["queue"] or ""),
            "" if line["level"] is None else f"level {line['level']}",
            moment(line["queued_at"]),
            escape(line["held_by"]["reason"]) if line["held_by"]
            else "[green]starts with the next pass[/]",
        )  # fmt: skip
    shown.print()
    if more:
        console().print(f"[dim]and {more} more: --limit {waiting}[/]")


@app.command()
def explain(run: RunArgument, as_json: JsonOption = False) -> None:
    """Explain why a run waits: its rules, place, age, slots."""
    with opened_queue() as queue:
        now = utc_now()
        seen = run_details(queue, queue.record(run), now)
        trouble = daemon_trouble(queue.coordinator, queue.last_pass(), now)
    if as_json:
        print_json(run_document(seen))
        return
    if seen.queued is not None:
        print_trouble(trouble)
    print_explanation(seen, now)


# A level may be negative; without this, -1 would be parsed as an option.
@app.command(context_settings={"ignore_unknown_options": True})
def prioritize(
    run: RunArgument,
    level: Annotated[
        str, typer.Argument(metavar="LEVEL", help="A whole number, more is earlier; may be -1.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Change the level of a queued run.

    The time that it has waited still counts.
    """
    wanted = tagging.parse_level(level)
    if wanted is None:
        raise InvalidInput("LEVEL", level, tagging.LEVEL_EXPECTED)
    with opened_queue() as queue:
        record = queue.record(run)
        check_queued(record)
        run_id = record.dagster_run.run_id
        now = utc_now()
        before = queue.outlook(now)
        level_before = request_level(queue, run_id, wanted, now, actor(queue.cluster))
        check_queued(queue.record(run_id))
        after = queue.outlook(now)
        trouble = daemon_trouble(queue.coordinator, queue.last_pass(), now)
    was, then = (standing(outlook, run_id) for outlook in (before, after))
    if was is None or then is None:
        raise TransitionRefused(f"run {run_id} left the queue just now")
    place, waiting = after.places[run_id], len(after.order)
    if as_json:
        print_json(
            {
                "run_id": run_id,
                "job": record.dagster_run.job_name,
                "level": wanted,
                "level_before": level_before,
                "priority": then.priority,
                "place": place,
                "place_before": before.places[run_id],
                "waiting": waiting,
            }
        )
        return
    out = console()
    what = "level" if queue.rules.ages else "priority"
    changed = "none of its own" if level_before is None else level_before
    out.print(
        f"run {run_id} of {escape(record.dagster_run.job_name)} gets {what} {wanted}, "
        + ("as before" if level_before == wanted else f"before: {changed}")
    )
    moved = before.places[run_id]
    out.print(
        f"from the next pass on it is number {place} of {waiting} in the queue, "
        + ("as before" if moved == place else f"before: {moved}")
    )
    print_trouble(trouble)


def print_trouble(trouble: tuple[str, str] | None) -> None:
    """Prints the problem of the daemon, if there is one."""
    if trouble is not None:
        found, advice = trouble
        console().print(f"[yellow]{escape(found)}[/]; {advice}")
