"""``arctic schedules partitions``: the status of a schedule for each target partition."""

from typing import Annotated

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.display import (
    Rows,
    colored,
    console,
    moment,
    print_json,
    short_id,
)
from arctic_orchestration.console.state import JsonOption, LocationOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.cli.context import opened
from arctic_orchestration.schedules.views.target_partitions import target_partitions


def partitions(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")],
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="KEY|DATE", help="The first partition, or its day."),
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="KEY|DATE", help="The last one; included.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="KEY", help="Begin after this partition.")
    ] = None,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the target partitions of a schedule and their state.

    The newest first. A schedule whose trigger has `per` lists its groups.
    """
    with opened(location) as state, state.read() as (tx, place):
        stored = control.stored_by_name(tx, state.store, place, name)
        page = target_partitions(
            tx, place, stored, utc_now(), first=first, last=last, after=after, limit=limit
        )
    if as_json:
        documents = [listed.to_json() for listed in page.listed]
        following = {"complete": page.complete, "next_after": page.next_after}
        print_json({"location": place.name, "schedule": name, "partitions": documents, **following})
        return
    shown = Rows(None, "partition", "status", "fired", "job", "run", "reason", text="reason")
    for listed in page.listed:
        job = listed.job
        shown.add(
            escape(listed.key),
            colored(listed.status.value),
            moment(listed.fired_at),
            short_id(job.id) if job is not None else "",
            escape((job.run_id or "")[:8]) if job is not None else "",
            escape(listed.reason),
        )
    shown.print(empty="no such partitions")
    if not page.complete:
        console().print("[dim]only those with jobs: the others are not known here[/]")
    if page.next_after is not None:
        console().print(f"[dim]more: --after {escape(page.next_after)}, or --limit[/]")
