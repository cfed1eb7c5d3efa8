"""``arctic consumers``: the progress of partition consumers, and their control."""

from contextlib import AbstractContextManager
from typing import Annotated

import typer

from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.display import Rows, confirm, console, counted, print_json
from arctic_orchestration.console.state import JsonOption, opened_state
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.consumers import control, partition_leases, store, working_set
from arctic_orchestration.consumers.cli.backlog import standings
from arctic_orchestration.consumers.cli.details import (
    print_consumer,
    shown_lag,
    trouble_of,
)
from arctic_orchestration.consumers.partition import PartitionState
from arctic_orchestration.consumers.progress import counted as progress_of
from arctic_orchestration.consumers.specification import FROM_NOW
from arctic_orchestration.consumers.views.consumers import Standing, consumer_document, parse_states
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.settings import Settings
from arctic_orchestration.state import audit
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The consumer's name.")]
LogOption = Annotated[
    bool,
    typer.Option(
        "--log/--no-log",
        help="Count what Dagster's event log has and was not read yet, too, where DAGSTER_HOME "
        "names the instance: some 30 microseconds an event.",
    ),
]
#: ``list`` reads at most this much of the event log, which takes some three seconds
EVENTS_COUNTED = 100_000


@app.command("list")
def list_(log: LogOption = True, as_json: JsonOption = False) -> None:
    """List consumers, with their progress and lag."""
    with _opened() as (settings, database):
        with database.read() as tx:
            now = database_time(tx)
            known = store.all_of(tx, settings.cluster)
        found = standings(database, known, reads_log=log, at_most=EVENTS_COUNTED)
    if as_json:
        print_json({"consumers": [consumer_document(standing) for standing in found]})
        return
    shown = Rows(
        counted(len(found), "consumer"),
        *("consumer", "asset", "done", "waiting", "leased", "unread", "discarded", "lag", ""),
        text="",
    )
    for standing in found:
        progress = standing.progress
        shown.add(
            escape(standing.consumer.name),
            escape(standing.consumer.asset),
            str(progress.acknowledged),
            str(progress.waiting or ""),
            str(progress.leased or ""),
            str(progress.unread or ""),
            f"[red]{progress.discarded}[/]" if progress.discarded else "",
            shown_lag(progress),
            trouble_of(standing, now),
        )
    shown.print(empty="no consumers")


@app.command()
def show(
    name: NameArgument,
    state: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Partitions of this state: {', '.join(PartitionState)}; repeatable. "
            "Default: all that are not acknowledged."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="At most so many partitions.")
    ] = 50,
    log: LogOption = True,
    as_json: JsonOption = False,
) -> None:
    """Show a consumer: progress, deliveries, what is left."""
    states = parse_states(state)
    with _opened() as (settings, database):
        with database.read() as tx:
            now = database_time(tx)
            one = store.by_name(tx, settings.cluster, name)
            as_read = progress_of(tx, one.id, now)
            leases = partition_leases.live_leases(tx, one.id)
            rows = working_set.partitions_of(tx, one.id, states, limit)
        (standing,) = standings(database, [one], reads_log=log)
    print_consumer(standing, as_read, leases, rows, states, now, as_json=as_json)


@app.command()
def retry(
    name: NameArgument,
    partitions: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="Which; also what rests or was acknowledged."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All that are discarded.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Deliver partitions again: those named, or all given up.

    Their attempts are counted from zero.
    """
    if bool(partitions) == all_:
        raise InvalidInput("KEY", partitions, "partition keys, or --all; nothing was changed")
    with _opened() as (settings, database), database.begin() as tx:
        one = store.by_name(tx, settings.cluster, name)
        by = actor(settings.cluster)
        keys = control.retry(tx, one, None if all_ else partitions, database_time(tx), actor=by)
    if as_json:
        print_json({"consumer": name, "partitions": keys})
        return
    what = counted(len(keys), "partition")
    console().print(
        f"{what} of consumer {escape(name)} {'waits' if len(keys) == 1 else 'wait'} "
        "to be delivered again"
    )


@app.command()
def reset(
    name: NameArgument,
    start: Annotated[
        str,
        typer.Option(
            help="Where it begins: from_beginning, from_now, or a moment such as "
            "2026-01-01T00:00:00Z."
        ),
    ],
    asset: Annotated[
        str | None, typer.Option(help="What it reads from now on; default: what it did.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Reset a consumer: it starts again and forgets all.

    Owners of its partitions can acknowledge nothing more. Also needed when its Dagster instance
    has a new storage. from_now is the end of the event log if DAGSTER_HOME names the instance;
    else timestamps decide, and events that are committed late may be missed.
    """
    # Before the confirmation.
    control.check_reset(start, asset)
    with _opened() as (settings, database):
        with database.read() as tx:
            one = store.by_name(tx, settings.cluster, name)
            progress = progress_of(tx, one.id, database_time(tx))
        left = f"{progress.acknowledged} acknowledged and {progress.waiting} waiting partitions"
        confirm(f"{name} forgets {left}. Reset it?", yes=yes, as_json=as_json)
        end = _present_end() if start == FROM_NOW else None
        with database.begin() as tx:
            now = database_time(tx)
            by = actor(settings.cluster)
            after = control.reset(tx, one, start, now, asset=asset, end=end, actor=by)
            progress = progress_of(tx, after.id, now)
    if as_json:
        print_json(consumer_document(Standing.as_read(after, progress)))
        return
    console().print(
        f"consumer {escape(name)} starts again: {escape(after.asset)}, {escape(after.start)}"
    )


@app.command()
def delete(
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a consumer with its position and partitions.

    Refused while partitions of it are leased. The next use of the name creates the consumer again,
    from its start.
    """
    with _opened() as (settings, database):
        with database.read() as tx:
            one, now = store.by_name(tx, settings.cluster, name), database_time(tx)
            # Before the confirmation.
            control.check_delete(tx, one, now)
            progress = progress_of(tx, one.id, now)
        what = ", ".join(
            f"{number} {state}"
            for number, state in (
                (progress.acknowledged, "acknowledged"),
                (progress.waiting, "waiting"),
                (progress.leased, "leased"),
                (progress.discarded, "discarded"),
            )
            if number
        )
        forgets = f"its position and {what} partitions" if what else "its position"
        confirm(f"{name} forgets {forgets}. Delete it?", yes=yes, as_json=as_json)
        with database.begin() as tx:
            control.delete(tx, one, database_time(tx))
            audit.record(
                tx, actor(settings.cluster), "consumers", "delete", name, forgotten=forgets
            )
    if as_json:
        print_json({"consumer": name, "deleted": True})
        return
    console().print(
        f"consumer {escape(name)} is deleted, with {forgets}; the next use of the name "
        "creates it again, from its start"
    )


def _present_end() -> control.LogEnd | None:
    # Dagster takes seconds to import.
    from arctic_orchestration.consumers.dagster.event_source import present_end

    return present_end()


def _opened() -> AbstractContextManager[tuple[Settings, Database]]:
    return opened_state(made_by="what uses a consumer")
