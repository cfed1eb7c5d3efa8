"""``arctic tasks skip`` and ``unskip``: the skip list."""

from typing import Annotated

import typer

from arctic_orchestration.console.display import console, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.freshness import skip_list
from arctic_orchestration.freshness.cli.context import TaskArgument, opened_tasks
from arctic_orchestration.quantities import iso
from arctic_orchestration.state import audit


def skip(
    task: TaskArgument,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, for everybody who reads it.")],
    as_json: JsonOption = False,
) -> None:
    """Skip a task in all clusters; an active run continues.

    Its submissions end as skipped, with a notice. Its children use its last success: while that is
    fresh enough for them they run, and then they fail, naming it.
    """
    with opened_tasks() as opened, opened.database.begin() as tx:
        by = opened.actor
        done = skip_list.skip(tx, task, reason, by=by.name, cluster=by.cluster)
        audit.record(tx, by, "tasks", "skip", task, reason=reason)
    if as_json:
        print_json({"task": done.task, "reason": done.reason, "by": done.by, "at": iso(done.at)})
    else:
        console().print(f"{escape(task)} is on the skip list: {escape(reason)}")


def unskip(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Remove a task from the skip list; submit nothing."""
    with opened_tasks() as opened, opened.database.begin() as tx:
        by = opened.actor
        skip_list.unskip(tx, task, by=by.name, cluster=by.cluster)
        audit.record(tx, by, "tasks", "unskip", task)
    if as_json:
        print_json({"task": task})
    else:
        console().print(f"{escape(task)} is off the skip list")
