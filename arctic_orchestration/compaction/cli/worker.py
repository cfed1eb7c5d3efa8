"""``arctic compaction worker``: merges files of tasks in a warm Spark session until stopped."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated

import typer
from rich.status import Status

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.cli.context import (
    opened_compaction,
    positive_duration,
    working,
)
from arctic_orchestration.compaction.cli.spark import ConfOption, LakeSpark
from arctic_orchestration.compaction.queue.queues import queue_by_name
from arctic_orchestration.console.display import console, counted, moment, short_id
from arctic_orchestration.console.signals import on_stop_signal
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape, json_text
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.quantities import format_duration, iso
from arctic_orchestration.settings import Settings

if TYPE_CHECKING:
    from arctic_orchestration.compaction.work.task_source import TaskSource
    from arctic_orchestration.compaction.work.worker import WorkDone, Worker, WorkerEvent

#: a renewal needs its time
SHORTEST_LEASE = timedelta(seconds=10)
_LEASE = "60s"
_COLORS = {
    "claimed": "cyan",
    "merged": "green",
    "failed": "red",
    "lost": "red",
    "released": "yellow",
}
_WIDEST = max(map(len, _COLORS))


def worker(
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="Works for this one; repeatable. None: for all."),
    ] = None,
    parallelism: Annotated[
        int, typer.Option("--parallelism", "-p", min=1, help="How many tasks at once.")
    ] = 1,
    until_idle: Annotated[
        str | None,
        typer.Option(help="Ends when it found nothing to do for so long: 30s. None: goes on."),
    ] = None,
    lease: Annotated[
        str,
        typer.Option(help="How long a claim holds without a renewal; a third is between two."),
    ] = _LEASE,
    conf: ConfOption = None,
    name: Annotated[
        str | None, typer.Option(help="Its name for people; default: host and process.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="Gets tasks from a service: http://host:3001. None: the database."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with a token for the service.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Merge files for compaction queues until stopped.

    The first of them lets it finish what it has, the second gives that back at once. With --json
    each event is a document on a line of its own. With --server it needs neither the state database
    nor the catalog.
    """
    idle = None if until_idle is None else positive_duration("--until-idle", until_idle)
    life = positive_duration("--lease", lease)
    if life < SHORTEST_LEASE:
        shortest = format_duration(SHORTEST_LEASE)
        raise InvalidInput("--lease", lease, f"a duration of at least {shortest}")
    queues = list(dict.fromkeys(queue or []))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    if server is None and token_file is not None:
        raise InvalidInput("--token-file", str(token_file), "--server beside it")
    if server is not None and lease != _LEASE:
        raise InvalidInput("--lease", lease, "no --server beside it: the service decides")
    with ExitStack() as stack:
        source: TaskSource
        if server is None:
            state = stack.enter_context(opened_compaction(makes=True))
            with state.database.read() as tx:
                for one in queues:
                    queue_by_name(tx, one)
            from arctic_orchestration.compaction.work.database_source import DatabaseSource

            # Before Spark is started, which takes long.
            source = DatabaseSource(state.database, state.catalog, life=life)
            settings = state.settings
            place = {"catalog": settings.catalog, "database": state.database.shown}
        else:
            from arctic_orchestration.compaction.work.http_source import HttpSource, Server

            settings = Settings.from_environment()
            service = Server(server, token_file)
            service.request("GET", "")
            source = HttpSource(service)
            place = {"server": service.shown}
        lake_spark = stack.enter_context(LakeSpark(settings, conf or []))
        with working("starting Spark"):
            spark = lake_spark()
        from arctic_orchestration.compaction.work.worker import POLL, Worker
        from arctic_orchestration.lake.merging.merge import merge
        from arctic_orchestration.lake.merging.sessions import cancel_merges

        events = _Events(as_json=as_json)
        made = Worker(
            source,
            partial(merge, spark),
            queues=queues,
            parallelism=parallelism,
            name=name,
            # A service answers when there is a task.
            poll=POLL if server is None else timedelta(),
            cancel=partial(cancel_merges, spark),
            on_event=events,
        )
        events.begins(made, place, lake_spark.where, queues, parallelism)
        with events.shown(), on_stop_signal(*_answers(made, events)):
            done = made.run(until_idle=idle)
        events.ends(done)


class _Events:
    """Prints what a worker does; receives events from several threads."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = Lock()
        self._out = console()
        self._status: Status | None = None
        self._under_way = 0
        self._counts = dict.fromkeys(_COLORS, 0)

    def __call__(self, event: "WorkerEvent") -> None:
        what, claim, now = event.what.value, event.claim, utc_now()
        with self._lock:
            self._counts[what] += 1
            self._under_way += 1 if what == "claimed" else -1
            if self._as_json:
                self._line(
                    {
                        "at": iso(now),
                        "event": what,
                        "task": claim.task.id,
                        "table": claim.task.table,
                        "attempt": claim.attempt_id,
                        "text": event.text,
                    }
                )
                return
            self._out.print(
                f"[dim]{moment(now)}[/] [{_COLORS[what]}]{what:<{_WIDEST}}[/] "
                f"{short_id(claim.task.id)} {escape(event.text)}"
            )
            if self._status is not None:
                self._status.update(self._now())

    def shown(self) -> "Status | nullcontext[None]":
        """Shows a person at a terminal what is in progress, below the lines."""
        if self._as_json or not self._out.is_terminal:
            return nullcontext()
        self._status = self._out.status(self._now())
        return self._status

    def begins(
        self,
        worker: "Worker",
        place: Mapping[str, str],
        where: str,
        queues: Sequence[str],
        parallelism: int,
    ) -> None:
        """Prints the worker, its queues, its engine, and where its tasks come from."""
        if self._as_json:
            self._line(
                {
                    "at": iso(utc_now()),
                    "event": "began",
                    "worker": worker.name,
                    "queues": list(queues),
                    "parallelism": parallelism,
                    "spark": where,
                    **place,
                }
            )
            return
        serves = ("queue " if len(queues) == 1 else "queues ") + ", ".join(queues)
        self._out.print(
            escape(
                f"worker {worker.name} serves {serves if queues else 'all queues'}, "
                f"{counted(parallelism, 'task')} at once, with Spark at "
                f"{where}; " + ", ".join(f"{what} {which}" for what, which in place.items())
            )
        )

    def report(self, text: str, event: str) -> None:
        """Prints an event of the worker itself."""
        if self._as_json:
            self._line({"at": iso(utc_now()), "event": event})
        else:
            self._out.print(f"[yellow]{escape(text)}[/]")

    def ends(self, done: "WorkDone") -> None:
        """Prints its results in total."""
        counts = {what.value: count for what, count in done.counts.items()}
        if self._as_json:
            self._line({"at": iso(utc_now()), "event": "ended", "counts": counts})
            return
        counts_text = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        self._out.print(f"the worker ends: {counts_text or 'there was nothing to do'}")

    def _now(self) -> str:
        parts = [f"{counted(self._under_way, 'task')} under way"]
        parts += [f"{count} {what}" for what, count in self._counts.items()
                 if count and what != "claimed"]  # fmt: skip
        return ", ".join(parts)

    def _line(self, document: Mapping[str, object]) -> None:
        # Whole lines, at once: they may be read as they come.
        print(json_text(document), flush=True)


def _answers(worker: "Worker", events: _Events) -> tuple[Callable[[], None], Callable[[], None]]:
    def drain() -> None:
        worker.drain()
        events.report("finishes its tasks; a second signal makes it give them back", "draining")

    def give_back() -> None:
        events.report("gives back its tasks; another signal kills it", "giving back")
        worker.give_back()

    return drain, give_back
