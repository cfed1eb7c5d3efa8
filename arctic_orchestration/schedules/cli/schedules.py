"""``arctic schedules``: schedules, and when they fire."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.display import (
    Rows,
    colored,
    confirm,
    console,
    counted,
    moment,
    print_json,
    short_id,
)
from arctic_orchestration.console.state import JsonOption, LocationOption
from arctic_orchestration.console.terminal import escape, visible
from arctic_orchestration.quantities import format_duration, iso
from arctic_orchestration.schedules import control
from arctic_orchestration.schedules.cli import apply, imports, target_partitions, why_not
from arctic_orchestration.schedules.cli.context import changing, opened
from arctic_orchestration.schedules.lookup import schedule_by_name
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_history import history_of
from arctic_orchestration.schedules.stored_schedule import Origin
from arctic_orchestration.schedules.views.adoptions import replaced
from arctic_orchestration.schedules.views.documents import schedule_document
from arctic_orchestration.schedules.views.forecast import Upcoming, upcoming
from arctic_orchestration.schedules.views.listing import (
    ListedSchedule,
    list_schedules,
    one_schedule,
)
from arctic_orchestration.schedules.views.schedule_filter import ScheduleFilter
from arctic_orchestration.schedules.views.texts import one_line
from arctic_orchestration.yaml_file import dump

app = typer.Typer(no_args_is_help=True)
app.command("apply")(apply.apply)
app.command("diff")(apply.diff)
app.command("update")(apply.update)
app.command("import")(imports.import_)
app.command("partitions")(target_partitions.partitions)
app.command("why-not")(why_not.why_not)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
NamesArgument = Annotated[
    list[str], typer.Argument(metavar="NAME", help="Names of schedules; all or none of them.")
]


@app.command("list")
def list_(
    status: Annotated[str | None, typer.Option(help="enabled or suspended.")] = None,
    target: Annotated[str | None, typer.Option(help="The job, or one of the assets.")] = None,
    trigger: Annotated[str | None, typer.Option(help="A kind of trigger, as cron.")] = None,
    listens_to: Annotated[
        str | None, typer.Option(help="An asset or job whose arrivals or runs it takes.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 50,
    after: Annotated[str, typer.Option(metavar="NAME", help="Begin after this name.")] = "",
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """List schedules, with their waiting jobs and active runs."""
    wanted = ScheduleFilter(status=status, target=target, trigger=trigger, listens_to=listens_to)
    with opened(location) as state, state.read() as (tx, place):
        page = list_schedules(tx, state.store, place, wanted, after=after, limit=limit)
    found = page.listed
    if as_json:
        documents = [schedule_document(listed) for listed in found]
        following = {"next_after": page.next_after}
        print_json({"location": place.name, "schedules": documents, **following})
        return
    shown = Rows(
        f"{counted(len(found), 'schedule')} of {escape(place.name)}",
        *("schedule", "status", "trigger", "target", "waiting", "active", "next tick"),
        text="trigger",
    )
    for listed in found:
        schedule = listed.schedule
        shown.add(
            escape(listed.row.name),
            colored(listed.row.status.value),
            escape(one_line(schedule.trigger.to_form()) if schedule else "cannot be read"),
            escape(target_text(schedule) if schedule else ""),
            str(listed.waiting or ""),
            str(listed.active or ""),
            moment(listed.next_tick_at),
        )
    shown.print()
    if page.next_after is not None:
        console().print(f"[dim]more: --after {escape(page.next_after)}, or --limit[/]")


@app.command()
def show(name: NameArgument, location: LocationOption = None, as_json: JsonOption = False) -> None:
    """Show a schedule: its definition and its history."""
    with opened(location) as state, state.read() as (tx, place):
        listed = one_schedule(tx, state.store, place, schedule_by_name(tx, place, name))
        history = history_of(tx, place, name)
    if as_json:
        lines = _json_history(history)
        print_json(
            {"location": place.name, **schedule_document(listed).to_json(), "history": lines}
        )
        return
    _show(listed)
    console().print()
    _print_history(history)


@app.command("history")
def history_(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only of this schedule.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many lines.")] = 50,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the history of schedules, deleted ones included.

    The newest lines, in the order of time.
    """
    with opened(location) as state, state.read() as (tx, place):
        history = history_of(tx, place, name, limit=limit)
        if name is not None and not history:
            schedule_by_name(tx, place, name)
    if as_json:
        print_json({"location": place.name, "history": _json_history(history)})
    else:
        _print_history(history, name is None)


@app.command()
def enable(
    names: NamesArgument, location: LocationOption = None, as_json: JsonOption = False
) -> None:
    """Enable schedules: they take events from now on."""
    _switch(names, location, "enabled", as_json=as_json)


@app.command()
def suspend(
    names: NamesArgument, location: LocationOption = None, as_json: JsonOption = False
) -> None:
    """Suspend schedules, each by its suspend_mode."""
    _switch(names, location, "suspended", as_json=as_json)


@app.command()
def delete(
    names: NamesArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete schedules and their jobs; active runs continue."""
    names = list(dict.fromkeys(names))
    with opened(location) as state:
        with state.read() as (tx, place):
            rows = [schedule_by_name(tx, place, name) for name in names]
            stopped = {new: old for new, old in replaced(tx, place.id).items() if new in names}
        of_code = [row.name for row in rows if row.origin is Origin.CODE]
        if not as_json:
            for name in of_code:
                console().print(
                    f"{escape(name)} is declared in the code: it stays deleted until its "
                    "definition there changes"
                )
            for new, old in sorted(stopped.items()):
                console().print(
                    f"{escape(new)} was adopted: Dagster's {escape(old)} stays stopped until "
                    f"arctic adopt --back {escape(old)}"
                )
        confirm(f"Delete {', '.join(names)} with all jobs?", yes=yes, as_json=as_json)
        with state.change() as (tx, place):
            for name in names:
                control.delete(tx, state.store, place, name, utc_now(), actor=actor(state.cluster))
    if as_json:
        print_json({"deleted": names})
    else:
        console().print(f"deleted {escape(', '.join(names))}")


@app.command("next")
def next_(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only of this schedule.")
    ] = None,
    count: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many moments.")] = 5,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the next ticks, and the next checks of waiting jobs."""
    with opened(location) as state, state.read() as (tx, place):
        suspended = (
            name is not None and control.stored_by_name(tx, state.store, place, name).suspended
        )
        found = upcoming(tx, state.store, place, name=name, count=count)
    if as_json:
        print_json({"location": place.name, "next": found})
        return
    if not found:
        why = ": it is suspended" if suspended else ": no schedule waits for time"
        console().print(f"nothing is due{why if suspended or name is None else ''}")
        return
    shown = Rows(None, "at", "in", "schedule", "moment", "what", text="what")
    now = utc_now()
    for coming in found:
        shown.add(*_coming(coming, now))
    shown.print()


def target_text(schedule: Schedule) -> str:
    """Returns a target on one line."""
    target = schedule.target
    return f"job {target.job}" if target.job else f"assets {', '.join(target.assets)}"


def _json_history(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**line, "at": iso(line["at"])} for line in history]


def _print_history(history: Sequence[dict[str, Any]], names: bool = False) -> None:
    named = ("schedule",) if names else ()
    shown = Rows("history", "at", *named, "action", "version", "by", "reason", text="reason")
    for line in history:
        called = (escape(line["name"]),) if names else ()
        action, version = str(line["action"]), str(line["version"])
        by, reason = escape(line["actor"]), escape(line["reason"])
        shown.add(moment(line["at"]), *called, action, version, by, reason)
    shown.print()


def _coming(coming: Upcoming, now: datetime) -> tuple[str, ...]:
    seconds = max(0, round((coming.at - now).total_seconds()))
    job = f"job {short_id(coming.job)}: " if coming.job else ""
    return (
        moment(coming.at),
        format_duration(timedelta(seconds=seconds)),
        escape(coming.schedule),
        coming.moment.value,
        escape(job + coming.what),
    )


def _show(listed: ListedSchedule) -> None:
    row, out = listed.row, console()
    out.print(
        f"[bold]{escape(row.name)}[/]  {colored(row.status.value)} since {moment(row.status_at)}"
    )
    made = "declared in the code" if row.origin is Origin.CODE else "created manually"
    out.print(f"version {row.version} of {moment(row.updated_at)}, {made}")
    if listed.waiting or listed.active:
        out.print(f"{counted(listed.waiting, 'job')} waiting, {listed.active} active")
    if listed.next_tick_at:
        out.print(f"next tick {moment(listed.next_tick_at)}")
    out.print()
    if listed.schedule is None:
        out.print("it was written by another version of the package and cannot be read:")
        out.print(escape(row.problem or "no reason noted"))
        return
    # Imports Pygments, which no other command needs.
    from rich.syntax import Syntax

    form = dump([listed.schedule.to_form()])
    text = visible(f"schedules:\n{form}".rstrip(), lines=True)
    out.print(Syntax(text, "yaml", theme="ansi_dark", background_color="default"))


def _switch(names: list[str], location: str | None, status: str, *, as_json: bool) -> None:
    enables = status == "enabled"
    act = control.enable if enables else control.suspend
    with opened(location) as state, changing(state, utc_now(), ticks=not enables) as change:
        by = actor(state.cluster)
        changed = {
            name: act(change.tx, state.store, change.place, name, change.now, actor=by)
            for name in dict.fromkeys(names)
        }
        if enables:
            change.enabled([name for name, is_changed in changed.items() if is_changed])
    if as_json:
        print_json({"status": status, "changed": changed})
        return
    for name, was in changed.items():
        console().print(f"{escape(name)} is {colored(status)}{'' if was else ' already'}")
