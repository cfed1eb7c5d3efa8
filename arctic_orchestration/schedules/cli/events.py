"""``arctic events``: the events that schedules took."""

import time
from dataclasses import asdict
from typing import Annotated

import typer

from arctic_orchestration.console.display import Rows, console, moment, print_json
from arctic_orchestration.console.state import JsonOption, LocationOption, opened_state
from arctic_orchestration.console.terminal import escape, json_text
from arctic_orchestration.event_log.event import Event
from arctic_orchestration.quantities import format_bytes
from arctic_orchestration.schedules.cli import unmatched_events
from arctic_orchestration.schedules.cli.context import opened
from arctic_orchestration.schedules.location_state import State
from arctic_orchestration.schedules.views.listing import ListedEvent, list_events
from arctic_orchestration.state import unreadable_events

app = typer.Typer(no_args_is_help=True)
app.command("unmatched")(unmatched_events.unmatched)

_LOOK_EVERY_SECONDS = 1.0
_READ_AT_ONCE = 1_000


@app.callback()
def events() -> None:
    """Show events that schedules took."""


@app.command()
def tail(
    count: Annotated[int, typer.Option("-n", min=0, max=100_000, help="How many.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with those to come, until Ctrl-C.")
    ] = False,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest events that a schedule took.

    With --follow and --json each event is a document on a line of its own.
    """
    with opened(location) as state:
        with state.read() as (tx, place):
            found = list_events(tx, place, limit=count)
            last = place.next_event - 1
        if as_json and not follow:
            documents = [event.to_json() for event in found]
            print_json({"location": place.name, "events": documents})
        elif as_json:
            for event in found:
                typer.echo(json_text(event.to_json()))
        else:
            print_events(found, None)
        if follow:
            try:
                _follow(state, last, as_json=as_json)
            except KeyboardInterrupt:
                return


@app.command()
def unreadable(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="At most so many.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """List events that could not be stored, newest first.

    They were set aside, and everything after them was read. EVENT is the id in Dagster's log.
    """
    with opened_state() as (settings, database), database.read() as tx:
        found = unreadable_events.listed(tx, settings.cluster, limit=limit)
        total = unreadable_events.count(tx, settings.cluster)
    if as_json:
        documents = [{**asdict(one), "found_at": one.found_at.isoformat()} for one in found]
        print_json({"cluster": settings.cluster, "count": total, "events": documents})
        return
    shown = Rows(None, "event", "set aside", "read by", "about", "reason", text="reason")
    for one in found:
        cells = (one.reader, one.event, one.reason)
        shown.add(str(one.event_id), moment(one.found_at), *map(escape, cells))
    shown.print(empty="no unreadable events")
    if total > len(found):
        console().print(f"{len(found)} of {total}")


def _follow(state: State, last: int, *, as_json: bool) -> None:
    while True:
        with state.read() as (tx, place):
            found = list_events(tx, place, after=last, limit=_READ_AT_ONCE)
        for event in found:
            last = event.number
            if as_json:
                typer.echo(json_text(event.to_json()))
        if found and not as_json:
            print_events(found, None, header=False)
        if len(found) < _READ_AT_ONCE:
            time.sleep(_LOOK_EVERY_SECONDS)


def print_events(events: list[ListedEvent], title: str | None, *, header: bool = True) -> None:
    """Prints events as a table."""
    shown = Rows(title, "number", "at", "kind", "subject", "partition", "details",
                  text="details")  # fmt: skip
    for listed in events:
        event = listed.event
        details = [
            f"{event.status.value}" if event.status else "",
            f"run {event.run_id}" if event.run_id else "",
            format_bytes(event.bytes) if event.bytes is not None else "",
            f"{event.rows} rows" if event.rows is not None else "",
            _check_text(event),
            f"{event.previous_state} to {event.state}" if event.state else "",
            f"job {event.job}" if event.job else "",
            f"run key {event.run_key}" if event.run_key else "",
            event.problem or "",
        ]
        shown.add(
            str(listed.number),
            moment(event.at),
            event.kind.value,
            escape(event.subject),
            escape(event.partition or ""),
            escape(", ".join(filter(None, details))),
        )
    shown.print(header=header)


def _check_text(event: Event) -> str:
    """Returns the check of a CHECK event with its result."""
    if event.check is None:
        return ""
    result = {True: "passed", False: "failed", None: "without a result"}[event.passed]
    severity = f" ({event.severity})" if event.passed is False and event.severity else ""
    return f"{event.check} {result}{severity}"
