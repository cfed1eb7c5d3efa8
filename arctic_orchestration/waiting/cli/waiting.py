"""``arctic waiting``: everything that waits, and for what."""

from datetime import datetime
from typing import Annotated

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.display import Rows, console, moment, print_json
from arctic_orchestration.console.state import JsonOption, opened_state
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.quantities import rounded_span
from arctic_orchestration.waiting.reader import waiting as read_page
from arctic_orchestration.waiting.reader import waiting_by_cause
from arctic_orchestration.waiting.views import Trouble, WaitingByCause, WaitPage
from arctic_orchestration.waiting.wait_filter import WaitFilter
from arctic_orchestration.waits import Certainty, Wait

_GROUPINGS = ("cause",)


def waiting(
    group_by: Annotated[
        str | None, typer.Option(metavar="cause", help="Count what waits for the same cause.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="job, arrival, run, task, merge_task, table or partition."),
    ] = None,
    location: Annotated[
        str | None, typer.Option("--location", "-l", help="Only of this code location.")
    ] = None,
    cause: Annotated[
        str | None, typer.Option(help="Only for this cause: window, or window:NAME.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Only with this text in name, id or reason.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1_000, help="At most so many.")
    ] = 20,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Begin after an earlier page.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List what waits, for what, since when and until when.

    Jobs, arrivals, queued runs, tasks, merge tasks, tables and partitions of consumers, oldest
    first, from the state database alone.
    """
    if group_by not in (None, *_GROUPINGS):
        raise InvalidInput("--group-by", group_by, "cause")
    wanted = WaitFilter.parse(kind=kind, location=location, cause=cause, text=text)
    now = utc_now()
    with opened_state() as (settings, database), database.read() as tx:
        if group_by is not None:
            found = waiting_by_cause(tx, settings.cluster, now, wanted)
        else:
            page = read_page(tx, settings.cluster, now, wanted, after=after, limit=limit)
    if group_by is not None:
        print_json(found) if as_json else _print_groups(found, wanted)
    else:
        print_json(page) if as_json else _print_page(page, wanted)


def _print_groups(found: WaitingByCause, wanted: WaitFilter) -> None:
    _print_troubles(found.troubles)
    if not found.groups:
        _print_nothing(wanted)
    shown = Rows(
        f"{found.count} waiting" if found.groups else None,
        *("kind", "cause", "waiting", "for", "oldest"),
        text="oldest",
    )
    for group in found.groups:
        oldest = group.examples[0]
        shown.add(
            group.kind.value,
            f"[yellow]{escape(group.cause)}[/]",
            str(group.count),
            rounded_span(group.since, found.at),
            escape(": ".join(filter(None, [oldest.name, oldest.reason]))),
        )
    if found.groups:
        shown.print()


def _print_nothing(wanted: WaitFilter) -> None:
    # A misspelled location looks like one without work.
    everything = wanted == WaitFilter()
    console().print("nothing waits" if everything else "nothing waits that these options select")


def _print_page(page: WaitPage, wanted: WaitFilter) -> None:
    _print_troubles(page.troubles)
    if not page.waits:
        _print_nothing(wanted)
    for wait in page.waits:
        _print_wait(wait, page.at)
    if page.next_after is not None:
        more = f"[dim]more: --limit, or --after {escape(page.next_after)}[/]"
        # Whole, so that it can be copied.
        console().print(more, soft_wrap=True)


def _print_wait(wait: Wait, now: datetime) -> None:
    out = console()
    where = f" of {escape(wait.location)}" if wait.location is not None else ""
    title = f"[bold]{escape(wait.name)}[/]  {wait.kind.value}{where}"
    out.print(f"{title}  [yellow]{escape(wait.cause)}[/] for {rounded_span(wait.since, now)}")
    out.print(f"  {escape(wait.reason)}")
    held = [escape(holder.text) for holder in wait.held_by if holder.text != wait.reason]
    if held:
        out.print(f"  held by: {', '.join(held)}")
    if (end := _end(wait, now)) is not None:
        out.print(f"  {end}")
    for action in wait.actions:
        out.print(f"  [dim]{escape(action)}[/]", soft_wrap=True)


def _end(wait: Wait, now: datetime) -> str | None:
    until = wait.until
    if until.at is None:
        return None
    at = moment(until.at)
    at += f", in {rounded_span(now, until.at)}" if until.at > now else ", which is over"
    match until.certainty:
        case Certainty.KNOWN:
            return f"until {at} ({until.event})"
        case Certainty.FORECAST:
            return f"forecast {at} ({until.event})"
    return f"next {until.event} {at}"


def _print_troubles(troubles: tuple[Trouble, ...]) -> None:
    for trouble in troubles:
        console().print(f"[red]{escape(trouble.text)}[/]")
