"""``arctic compaction workers``: the live workers, and what they are to do."""

from typing import Annotated

import typer

from arctic_orchestration.compaction import control
from arctic_orchestration.compaction.cli.context import opened_compaction
from arctic_orchestration.compaction.views.documents import WorkerDocument
from arctic_orchestration.compaction.views.workers import BusyWorker, busy_workers, with_merges
from arctic_orchestration.compaction.work.workers import Order, worker_called
from arctic_orchestration.console.display import Rows, console, counted, moment, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape

app = typer.Typer(help="Manage workers.", no_args_is_help=True)

WorkerArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The worker's name; its id, if several have the name.")
]
_DOES = {
    Order.RUN: "claims tasks",
    Order.QUIET: "finishes its tasks, and claims nothing",
    Order.STOP: "puts its tasks back, and ends",
}


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List workers that were seen within two minutes."""
    with opened_compaction() as state, state.database.read() as tx:
        live = busy_workers(tx)
    if as_json:
        print_json({"workers": WorkerDocument.from_records(live)})
        return
    shown = Rows(
        counted(len(live), "worker"),
        *("worker", "id", "host", "queues", "merges", "seen", "order"),
        text="queues",
    )
    for busy in live:
        worker = busy.worker
        shown.add(
            escape(worker.name),
            escape(worker.id),
            escape(worker.host),
            escape(", ".join(worker.queues) or "all"),
            f"{len(busy.merges)} of {worker.parallelism}",
            moment(worker.seen_at),
            "" if worker.order is Order.RUN else f"[yellow]{worker.order}[/]",
        )
    shown.print(empty="no workers")


@app.command()
def drain(name: WorkerArgument, as_json: JsonOption = False) -> None:
    """Drain a worker: it finishes its tasks and claims nothing."""
    _order(name, "drain", as_json)


@app.command()
def resume(name: WorkerArgument, as_json: JsonOption = False) -> None:
    """Resume a worker that was drained: it claims tasks again."""
    _order(name, "resume", as_json)


@app.command()
def stop(name: WorkerArgument, as_json: JsonOption = False) -> None:
    """Stop a worker: it puts its tasks back and ends."""
    _order(name, "stop", as_json)


def _order(name: str, action: str, as_json: bool) -> None:
    with opened_compaction() as state, state.database.begin() as tx:
        worker = control.order_worker(tx, worker_called(tx, name).id, action, state.actor)
        (busy,) = with_merges(tx, [worker])
    if as_json:
        print_json(WorkerDocument.from_record(busy))
        return
    console().print(f"worker {escape(worker.name)} {_DOES[worker.order]}{_left(busy)}")


def _left(busy: BusyWorker) -> str:
    has_some = busy.merges and busy.worker.order is not Order.RUN
    return f": it has {counted(len(busy.merges), 'merge')}" if has_some else ""
