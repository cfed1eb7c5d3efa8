"""``arctic schedules why-not``: why a schedule did not launch at a moment."""

from typing import Annotated

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.display import Rows, console, moment, print_json
from arctic_orchestration.console.state import JsonOption, LocationOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import naming
from arctic_orchestration.schedules.cli.context import opened
from arctic_orchestration.schedules.simulator.lines import parse_moment
from arctic_orchestration.schedules.views.why_not import why_not as answer_of


def why_not(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")],
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="The moment: 2026-01-01T04:00:00Z.")
    ],
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell why a schedule did not launch at a moment.

    From the history of the schedule and its jobs. Where that does not say which constraint held a
    job, the span is simulated again over the real events.
    """
    with naming("--at", at):
        moment_at = parse_moment(at)
    with opened(location) as state, state.read() as (tx, place):
        found = answer_of(tx, state.store, place, name, moment_at, utc_now())
    if as_json:
        print_json({"location": place.name, **found.to_json()})
        return
    out = console()
    out.print(f"[bold]{escape(found.schedule)}[/] at {moment(found.at)}: {escape(found.answer)}")
    out.print(f"[dim]cause {escape(found.cause)}, from {found.source.value}[/]")
    if not found.evidence:
        return
    shown = Rows("around it", "at", "what", text="what")
    for one in found.evidence:
        shown.add(moment(one.at), escape(one.text))
    shown.print()
