"""One partition consumer, for people and programs."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from arctic_orchestration.console.display import (
    Rows,
    console,
    counted,
    moment,
    print_json,
    seconds,
    span,
)
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.progress import Progress
from arctic_orchestration.consumers.views.consumers import (
    Standing,
    details_document,
    partition_document,
)
from arctic_orchestration.consumers.views.waits import reason_of

_COLORS = {
    PartitionState.WAITING: "cyan",
    PartitionState.LEASED: "blue",
    PartitionState.DISCARDED: "red",
    PartitionState.ACKNOWLEDGED: "green",
}
#: A consumer without a poll for this long does not poll all the time; see ``engine.NOTED_EVERY``.
_SILENT = timedelta(minutes=2)


def print_consumer(
    standing: Standing,
    as_read: Progress,
    leases: Sequence[Any],
    rows: Sequence[Any],
    states: Sequence[PartitionState],
    now: datetime,
    *,
    as_json: bool,
) -> None:
    """Prints a consumer, its leases, and its partitions in some states."""
    one, progress = standing.consumer, standing.progress
    counts = {
        PartitionState.WAITING: as_read.waiting,
        PartitionState.LEASED: as_read.leased,
        PartitionState.DISCARDED: as_read.discarded,
        PartitionState.ACKNOWLEDGED: as_read.acknowledged,
    }
    more = sum(counts[state] for state in states) - len(rows)
    if as_json:
        partitions = [partition_document(row, one) for row in rows]
        details = details_document(standing, leases).to_json()
        print_json({**details, "partitions": partitions, "more": more})
        return
    out = console()
    out.print(f"[bold]consumer {escape(one.name)}[/] of {escape(one.asset)}")
    until = f" until {moment(one.until)}" if one.until else ""
    out.print(f"start      {escape(one.start)}{until}, registered {moment(one.created_at)}")
    read = "not yet" if one.read_at is None else f"{span(one.read_at, now)} ago"
    more_in_log = "" if one.at_end or one.read_at is None else ", and there was more in the log"
    out.print(f"last read  {read}{more_in_log}")
    out.print(f"progress   {progress}")
    if standing.uncounted is not None:
        out.print(
            f"[dim]           what came since is not counted: {escape(standing.uncounted)}[/]"
        )
    elif progress.unread:
        out.print(f"unread     {counted(progress.unread, 'partition')} of the event log")
    if progress.lag is not None:
        out.print(f"lag        {shown_lag(progress)}: since {moment(progress.oldest_at)}")
    if progress.discarded:
        what = counted(progress.discarded, "partition")
        out.print(f"[red]given up   {what}[/]: arctic consumers retry {escape(one.name)} --all")
    if one.passed_over:
        reason = escape(one.passed_over_reason or "")
        out.print(f"[yellow]passed over {counted(one.passed_over, 'arrival')}: {reason}[/]")
    if leases:
        shown = Rows("leases", "token", "partitions", "taken", "until", "owner", text="owner")
        for lease in leases:
            over = " [yellow](over)[/]" if lease.expires_at <= now else ""
            shown.add(
                str(lease.token),
                str(lease.partitions),
                moment(lease.taken_at),
                moment(lease.expires_at) + over,
                escape(lease.owner),
            )
        shown.print()
    if not rows:
        out.print("no such partitions")
        return
    summary = ", ".join(f"{counts[state]} {state}" for state in states if counts[state])
    listed = Rows(summary, "partition", "state", "arrived", "attempts", "reason", text="reason")
    for row in rows:
        state = PartitionState(row.state)
        listed.add(
            escape(row.partition),
            f"[{_COLORS[state]}]{state}[/]",
            moment(row.at),
            f"{row.attempts} of {one.max_attempts}" if row.attempts else "",
            escape(reason_of(row, now)),
        )
    listed.print()
    if more > 0:
        out.print(f"[dim]and {more} more: --limit {more + len(rows)}[/]")


def shown_lag(progress: Progress) -> str:
    """Returns the age of the oldest open partition; empty: there is none."""
    return "" if progress.lag is None else seconds(progress.lag.total_seconds())


def trouble_of(standing: Standing, now: datetime) -> str:
    """Returns what a person should know or do about a consumer, as markup; empty: nothing."""
    one, progress = standing.consumer, standing.progress
    silent = one.read_at is not None and now - one.read_at >= _SILENT
    notes = []
    if progress.discarded:
        notes.append("discarded: arctic consumers retry")
    if one.read_at is None:
        notes.append("has not read yet")
    elif standing.uncounted is not None:
        if not one.at_end:
            notes.append("there is more in the log than was read")
        if silent:
            notes.append(f"as of the last reading, {span(one.read_at, now)} ago")
    elif silent and progress.unread:
        notes.append(f"has not read for {span(one.read_at, now)}")
    if progress.held:
        notes.append(f"{counted(progress.held, 'partition')} not in Dagster yet")
    if one.passed_over:
        notes.append(f"{counted(one.passed_over, 'arrival')} passed over: {one.passed_over_reason}")
    return f"[yellow]{escape('; '.join(notes))}[/]" if notes else ""
