"""``arctic compaction queues``: the queues in which merge tasks wait for workers."""

from datetime import timedelta
from typing import Annotated, Any

import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction import control
from arctic_orchestration.compaction.cli.context import opened_compaction, positive_duration
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.queue.queues import (
    ALWAYS,
    CAPACITY,
    CompactionQueue,
    QueueCounts,
    QueueState,
)
from arctic_orchestration.compaction.queue.task import TaskState
from arctic_orchestration.compaction.views.documents import QueueDefinitionDocument, queue_document
from arctic_orchestration.compaction.work.workers import Worker, live_workers
from arctic_orchestration.console.display import Rows, console, counted, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.quantities import format_duration
from arctic_orchestration.settings import Settings
from arctic_orchestration.state import audit

app = typer.Typer(help="Manage queues of merge tasks.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]
_CAPACITY = "How many live tasks it takes; a table that finds no room stays due."
_LEVEL = "Of two queues that have had their shares alike, the higher level goes first."
_SHARE = "Workers that serve several queues divide themselves by it."
_TIMEOUT = "How long an attempt at a task may take: 2h. Then it counts as lost."
_HOURS = "When workers claim: '22:00-06:00 Europe/Berlin mon,tue', or always."
_BUDGET = "How many of its tasks are merged at once at most, on average; 0: any number."
_MIN_WORKERS = "How many worker runs are kept for it, also without tasks."
_SPARK = "session (shared), or application: each worker has its own."
_PROPERTY = "A property of the applications: spark.master=yarn."
_MODES = ("session", "application")
_MAX_WORKERS = "How many worker runs are requested for it at once; 0: people start its workers."


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List queues by level, with their tasks and workers."""
    with opened_compaction() as state, state.database.read() as tx:
        found = queues.counted(tx)
        workers = {one.queue.name: live_workers(tx, one.queue.name) for one in found}
    if as_json:
        print_json({"queues": [queue_document(one, workers[one.queue.name]) for one in found]})
        return
    shown = Rows(
        counted(len(found), "queue"),
        *("queue", "level", "share", "tasks", "waiting", "claimed", "merged", "tables", "workers"),
        "",
        text="",
    )
    for one in found:
        queue, serving = one.queue, workers[one.queue.name]
        shown.add(
            escape(queue.name),
            str(queue.level),
            str(queue.share),
            f"{one.live} of {queue.capacity}",
            str(one.waiting or ""),
            str(one.states.get(TaskState.CLAIMED, "")),
            str(one.states.get(TaskState.MERGED, "")),
            str(one.tables or ""),
            str(len(serving) or ""),
            _trouble(one, serving),
        )
    shown.print()


@app.command()
def add(
    name: NameArgument,
    capacity: Annotated[int, typer.Option(help=_CAPACITY)] = CAPACITY,
    level: Annotated[int, typer.Option(help=_LEVEL)] = 0,
    share: Annotated[int, typer.Option(help=_SHARE)] = 1,
    max_workers: Annotated[int, typer.Option("--max-workers", help=_MAX_WORKERS)] = 1,
    min_workers: Annotated[int, typer.Option("--min-workers", help=_MIN_WORKERS)] = 0,
    spark: Annotated[str | None, typer.Option(metavar="MODE", help=_SPARK)] = None,
    spark_property: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help=_PROPERTY)
    ] = None,
    execution_timeout: Annotated[str, typer.Option(help=_TIMEOUT)] = "2h",
    hours: Annotated[str, typer.Option(help=_HOURS)] = ALWAYS,
    budget: Annotated[float, typer.Option(help=_BUDGET)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Add a queue.

    Tables are assigned to it by their property, or by arctic compaction map.
    """
    queue = CompactionQueue(
        name=name,
        capacity=capacity,
        level=level,
        share=share,
        max_workers=max_workers,
        min_workers=min_workers,
        application=_application(spark, spark_property),
        execution_timeout_seconds=_timeout(execution_timeout),
        hours=hours,
        budget=budget,
    )
    with opened_compaction(makes=True) as state, state.database.begin() as tx:
        queues.add_queue(tx, queue, utc_now())
        details = QueueDefinitionDocument.from_record(queue).to_json()
        audit.record(tx, state.actor, "compaction", "queues add", name, **details)
    _print_done(queue, "is added", as_json)


@app.command()
def update(
    name: NameArgument,
    capacity: Annotated[int | None, typer.Option(help=_CAPACITY)] = None,
    level: Annotated[int | None, typer.Option(help=_LEVEL)] = None,
    share: Annotated[int | None, typer.Option(help=_SHARE)] = None,
    max_workers: Annotated[int | None, typer.Option("--max-workers", help=_MAX_WORKERS)] = None,
    min_workers: Annotated[int | None, typer.Option("--min-workers", help=_MIN_WORKERS)] = None,
    spark: Annotated[str | None, typer.Option(metavar="MODE", help=_SPARK)] = None,
    spark_property: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help=_PROPERTY)
    ] = None,
    execution_timeout: Annotated[str | None, typer.Option(help=_TIMEOUT)] = None,
    hours: Annotated[str | None, typer.Option(help=_HOURS)] = None,
    budget: Annotated[float | None, typer.Option(help=_BUDGET)] = None,
    as_json: JsonOption = False,
) -> None:
    """Change a queue; a smaller capacity removes no task."""
    given = {
        "capacity": capacity,
        "level": level,
        "share": share,
        "max_workers": max_workers,
        "min_workers": min_workers,
        "application": _application(spark, spark_property),
        "execution_timeout_seconds": None
        if execution_timeout is None
        else _timeout(execution_timeout),
        "hours": hours,
        "budget": budget,
    }
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if spark == "session":
        changes["application"] = None
    if not changes:
        expected = (
            "one of --capacity, --level, --share, --max-workers, --min-workers, --spark, "
            "--execution-timeout, --hours, --budget; nothing was changed"
        )
        raise InvalidInput("options", None, expected)
    with opened_compaction() as state, state.database.begin() as tx:
        queue = queues.update_queue(tx, name, **changes)
        details = QueueDefinitionDocument.from_record(queue).to_json()
        audit.record(tx, state.actor, "compaction", "queues update", name, **details)
    _print_done(queue, "is changed", as_json)


@app.command()
def pause(name: NameArgument, as_json: JsonOption = False) -> None:
    """Pause a queue: workers claim no more of its tasks.

    Merges in progress are finished and committed.
    """
    _change(name, "pause", "is paused: no worker claims its tasks", as_json)


@app.command()
def drain(name: NameArgument, as_json: JsonOption = False) -> None:
    """Drain a queue: it takes no new tasks.

    Waiting tasks are merged; its tables stay due.
    """
    does = "takes no new tasks; what waits is merged"
    _change(name, "drain", does, as_json)


@app.command()
def resume(name: NameArgument, as_json: JsonOption = False) -> None:
    """Resume a queue that was paused or drained."""
    _change(name, "resume", "takes tasks, and workers claim them", as_json)


def _change(name: str, action: str, does: str, as_json: bool) -> None:
    state = control.QUEUE_ACTIONS[action]
    with opened_compaction() as opened, opened.database.begin() as tx:
        before = control.change_queue(tx, name, action, opened.actor)
    if as_json:
        print_json({"queue": name, "state": state.value, "before": before.value})
        return
    already = " already" if before is state else ""
    console().print(f"compaction queue {escape(name)}{already} {does}")


def _application(mode: str | None, properties: list[str] | None) -> dict[str, str] | None:
    """Returns the Spark properties of the workers' applications; none: they have none."""
    if mode not in (None, *_MODES):
        raise InvalidInput("--spark", mode, " or ".join(_MODES))
    if mode != "application":
        if properties:
            raise InvalidInput("--spark-property", properties[0], "it with --spark application")
        return None
    chosen = {}
    for text in properties or ():
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidInput("--spark-property", text, "spark.NAME=VALUE")
        chosen[name] = value
    # Only here: it imports PySpark.
    from arctic_orchestration.lake.session import spark_properties

    spark_properties(Settings.from_environment(), chosen)
    return chosen


def _timeout(text: str) -> int:
    duration = positive_duration("--execution-timeout", text)
    if duration < timedelta(seconds=1):
        raise InvalidInput("--execution-timeout", text, "a duration of at least 1s")
    return int(duration.total_seconds())


@app.command()
def delete(name: NameArgument, as_json: JsonOption = False) -> None:
    """Delete a queue that has no live tasks and no tables."""
    with opened_compaction() as state, state.database.begin() as tx:
        queues.delete_queue(tx, name)
        audit.record(tx, state.actor, "compaction", "queues delete", name)
    if as_json:
        print_json({"queue": name, "deleted": True})
    else:
        console().print(f"compaction queue {escape(name)} is deleted")


def _print_done(queue: CompactionQueue, done: str, as_json: bool) -> None:
    if as_json:
        print_json({"queue": QueueDefinitionDocument.from_record(queue)})
        return
    console().print(
        f"compaction queue {escape(queue.name)} {done}: capacity {queue.capacity}, "
        f"level {queue.level}, share {queue.share}, "
        f"{_workers(queue)} requested, execution timeout "
        f"{format_duration(timedelta(seconds=queue.execution_timeout_seconds))}{_limits(queue)}"
    )


def _workers(queue: CompactionQueue) -> str:
    least = f"at least {queue.min_workers} and " if queue.min_workers else ""
    text = f"{least}at most {counted(queue.max_workers, 'worker')}"
    return text if queue.application is None else f"{text} with applications of their own"


def _limits(queue: CompactionQueue) -> str:
    hours = "" if queue.hours == ALWAYS else f", hours {queue.hours}"
    return hours + (f", budget {queue.budget:g} tasks at once" if queue.budget else "")


def _trouble(one: QueueCounts, workers: list[Worker]) -> str:
    parts = []
    if one.queue.state is QueueState.PAUSED:
        parts.append("paused: no worker claims its tasks")
    elif one.held is not None:
        parts.append(one.held)
    if one.queue.state is QueueState.DRAINING:
        parts.append("draining: it takes no new tasks")
    elif not one.room:
        parts.append("full: tables that find no room stay due")
    if one.waiting and not workers:
        parts.append("no worker serves it")
    return f"[yellow]{'; '.join(parts)}[/]" if parts else ""
