"""``arctic events unmatched``: arrivals that map to no partition of a schedule's target."""

from typing import Annotated

import typer

from arctic_orchestration.console.display import Rows, console, moment, print_json
from arctic_orchestration.console.state import JsonOption, LocationOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.schedules.cli.context import opened
from arctic_orchestration.schedules.lookup import schedule_by_name
from arctic_orchestration.schedules.views.deferred import WAITS_FOR, deferred


def unmatched(
    schedule: Annotated[str | None, typer.Option(help="Only of this schedule.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Also those that wait for checks, or for the next tick.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="At most so many.")
    ] = 50,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """List arrivals that map to no target partition.

    They are kept for 30 days, and retried when the code location is loaded again.
    """
    waits_for = WAITS_FOR if all_ else ("match",)
    with opened(location) as state, state.read() as (tx, place):
        of = schedule_by_name(tx, place, schedule).id if schedule is not None else None
        found, total = deferred(tx, place, waits_for=waits_for, schedule_id=of, limit=limit)
    if as_json:
        print_json({"location": place.name, "count": total, "arrivals": found})
        return
    shown = Rows(None, "number", "arrived", "subject", "partition", "schedule", "waits for",
                 "reason", text="reason")  # fmt: skip
    for arrival in found:
        shown.add(
            str(arrival.number),
            moment(arrival.arrived_at),
            escape(arrival.subject),
            escape(arrival.partition),
            escape(arrival.schedule),
            arrival.waits_for if all_ else "",
            escape(arrival.reason),
        )
    shown.print(empty="no arrival waits" if all_ else "no unmatched arrivals")
    if total > len(found):
        console().print(f"{len(found)} of {total}")
