"""``arctic tasks submit``: requests to bring tasks up to date."""

from typing import Annotated

import typer

from arctic_orchestration.console.display import Rows, console, counted, print_json, short_id
from arctic_orchestration.console.state import JsonOption, LocationOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import InvalidInput
from arctic_orchestration.freshness import submissions
from arctic_orchestration.freshness.cli.context import colored, opened_tasks
from arctic_orchestration.freshness.cli.progress import until_ended
from arctic_orchestration.freshness.submission import Submission, SubmissionState
from arctic_orchestration.freshness.views.documents import SubmissionDocument
from arctic_orchestration.freshness.views.overview import TaskOverview
from arctic_orchestration.state import audit
from arctic_orchestration.waits import command

#: the final states after which a task is fresh
_GOOD = (SubmissionState.FRESH, SubmissionState.SUCCEEDED)


def submit(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="Tasks, or batches: all their tasks.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="What was made of them before now does not count.")
    ] = False,
    freshness_hours: Annotated[
        float | None,
        typer.Option(
            "--freshness-hours", metavar="H", help="Maximum age, instead of the tasks' own."
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="A,B", help="Of all that is named, only these tasks."),
    ] = None,
    with_parents: Annotated[
        bool,
        typer.Option("--with-parents", help="All above them too, in whatever location they are."),
    ] = False,
    location: LocationOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until all have ended; exit code 1 if one is not fresh.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Submit tasks: bring them up to date if they are stale.

    A task that is fresh does not run, and no task runs twice.

    Nothing has to be known of parents: those of the same location are submitted when they are too
    old, those elsewhere are waited for.
    """
    chosen = None if only is None else [name.strip() for name in only.split(",")]
    if chosen is not None and not all(chosen):
        raise InvalidInput("--only", only, "names with commas between them")
    with opened_tasks() as opened:
        with opened.database.begin() as tx:
            by = opened.actor
            made = submissions.submit(
                tx,
                names,
                cluster=opened.settings.cluster,
                location=location,
                by=by.name,
                force=force,
                freshness_hours=freshness_hours,
                only=chosen,
                with_parents=with_parents,
            )
            details = {
                "force": force, "only": only, "location": location,
                "freshness_hours": freshness_hours, "submissions": len(made),
            }  # fmt: skip
            audit.record(tx, by, "tasks", "submit", ", ".join(names), **details)
        with opened.database.read() as tx:
            known = opened.known(tx)
        ended = until_ended(opened, made) if wait else made
    if as_json:
        print_json({"submissions": SubmissionDocument.from_records(ended)})
    else:
        _print(ended, known, wait)
    if wait and any(one.state not in _GOOD for one in ended):
        raise typer.Exit(1)


def _print(made: list[Submission], known: TaskOverview, waited: bool) -> None:
    title = f"{counted(len(made), 'task')} submitted"
    shown = Rows(title, "submission", "task", "location", "state", "why", text="why")
    for one in made:
        where = one.location
        if one.cluster != made[0].cluster or len({place.cluster for place in made}) > 1:
            where = f"{one.cluster}/{one.location}"
        shown.add(
            short_id(one.id),
            escape(one.task),
            escape(where),
            colored(one.state.value),
            escape(one.reason if waited else _expected(one, known)),
        )
    shown.print()
    if not waited and made:
        show = command("tasks", "show", made[0].task)
        console().print(f"[dim]what becomes of it: {escape(show)}[/]")


def _expected(one: Submission, known: TaskOverview) -> str:
    """Returns the expected result, as far as it is known now."""
    view = known.views[one.task]
    if view.row.is_fresh(one.required_since, force=one.force):
        return f"{view.age}, which is fresh: nothing will run"
    if view.holder is not None:
        return f"{view.holder} makes it already, and is shared"
    others = [other for other in view.live if other.id != one.id]
    if others:
        first = others[0]
        return (
            f"{view.age}; submission {short_id(first.id)} of cluster {first.cluster}, location "
            f"{first.location} came before, and its run is shared"
        )
    if view.skipped is not None:
        return f"{view.age}; on the skip list: {view.skipped}"
    # Tasks that several locations need appear once.
    stale = dict.fromkeys(
        edge.parent for edge in view.parents if known.is_known(edge) and not edge.fresh
    )
    if stale:
        return f"{view.age}; waits for {', '.join(stale)}"
    return f"{view.age}; its parents are fresh, so it will run"
