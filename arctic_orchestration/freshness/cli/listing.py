"""``arctic tasks list`` and ``show``."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer

from arctic_orchestration.console.display import (
    Rows,
    console,
    counted,
    moment,
    print_json,
    short_id,
)
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import NotFound
from arctic_orchestration.freshness import definitions, submissions
from arctic_orchestration.freshness.cli.context import (
    TaskArgument,
    age_of,
    colored,
    mark,
    opened_tasks,
)
from arctic_orchestration.freshness.status import StatusEvent, events_of
from arctic_orchestration.freshness.submission import Submission
from arctic_orchestration.freshness.views.documents import (
    ChildDocument,
    StepDocument,
    SubmissionDocument,
    task_document,
)
from arctic_orchestration.freshness.views.overview import TaskOverview
from arctic_orchestration.freshness.views.tasks import EdgeView, TaskView
from arctic_orchestration.quantities import format_duration


def list_(
    batch: Annotated[str | None, typer.Option("--batch", "-b", help="Only of this batch.")] = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only those that are not fresh.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the tasks of all clusters and their freshness."""
    with opened_tasks() as opened, opened.database.read() as tx:
        known = opened.known(tx)
        locations = definitions.locations(tx)
    troubled = [one for one in locations if one.trouble is not None]
    _require_batch(known, batch)
    views = [
        view
        for name, view in known.views.items()
        if (batch is None or any(one.spec.batch == batch for one in known.places[name]))
        and not (stale and view.fresh)
    ]
    if as_json:
        trouble = {f"{one.cluster}/{one.location}": one.trouble for one in troubled}
        print_json({"tasks": [task_document(known, view) for view in views], "trouble": trouble})
        return
    if views:
        _print_list(views)
    else:
        console().print(_none_of(known, stale=stale))
    for one in troubled:
        place = f"{one.cluster}/{one.location}"
        console().print(f"[red]{escape(place)}: {escape(str(one.trouble))}[/]")
    wanted = {(one.cluster, one.location) for view in views for one in view.live}
    for one in locations:
        silence = one.silence(known.now)
        if silence is not None and (one.cluster, one.location) in wanted:
            console().print(f"[red]{escape(silence)}[/]")


def show(
    task: TaskArgument,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="So many submissions and steps at most.")
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show a task: parents, children, submissions, history."""
    with opened_tasks() as opened, opened.database.read() as tx:
        known = opened.known(tx)
        known.require(tx, task)
        latest = submissions.latest_of(tx, task, limit)
        history = [event for _, event in events_of(tx, task=task, limit=limit)]
    view = known.views[task]
    if as_json:
        document = task_document(known, view).to_json()
        document["children"] = ChildDocument.from_records(known.children(task))
        document["submissions"] = SubmissionDocument.from_records(latest)
        document["history"] = StepDocument.from_records(history)
        print_json(document)
        return
    _print_task(known, view)
    _print_edges("parents", known, known.parents(task), upwards=True)
    _print_edges("children", known, known.children(task), upwards=False)
    _print_submissions(latest)
    _print_history(history)


def _none_of(known: TaskOverview, *, stale: bool) -> str:
    if not known.views:
        return "no location has declared a task yet"
    return "all of them are fresh" if stale else "no such tasks"


def why(view: TaskView) -> str:
    """Returns the reason of a task's state."""
    # The running submission first: it explains more than the ones that wait for it.
    live = sorted(view.live, key=lambda one: (not one.state.owns, one.submitted_at))
    if view.holder is not None and not (live and live[0].state.owns):
        return f"{view.holder} makes it; {view.age}"
    if live:
        more = f" (and {counted(len(live) - 1, 'more submission')})" if len(live) > 1 else ""
        root = view.roots.get(live[0].id)
        return f"{root.text if root is not None else live[0].reason}{more}"
    if view.skipped is not None:
        return f"{view.skipped}; {view.age}"
    if view.failed is not None:
        ended = moment(view.failed.ended_at)
        return f"{view.failed.state} at {ended}: {view.failed.reason}; {view.age}"
    return f"{view.age}, to be {view.need}"


def _require_batch(known: TaskOverview, batch: str | None) -> None:
    batches = {one.spec.batch for found in known.places.values() for one in found}
    if batch is not None and batch not in batches:
        there_are = ", ".join(sorted(name for name in batches if name)) or "none"
        raise NotFound(f"--batch: no batch has the name {batch!r}; there is: {there_are}")


def _print_list(views: Sequence[TaskView]) -> None:
    counts = Counter(view.state for view in views)
    summary = ", ".join(f"{count} {state}" for state, count in counts.items())
    clusters = {place.partition("/")[0] for view in views for place in view.places}
    shown = Rows(f"{counted(len(views), 'task')}: {summary}", "task", "batch", "location", "state",
                 "why", text="why")  # fmt: skip
    for view in views:
        places = view.places
        if len(clusters) == 1:
            places = tuple(place.partition("/")[2] for place in places)
        shown.add(
            escape(view.name),
            escape(view.spec.batch or ""),
            escape(", ".join(places)),
            colored(view.state),
            escape(why(view)),
        )
    shown.print()


def _print_task(known: TaskOverview, view: TaskView) -> None:
    out, row = console(), view.row
    out.print(f"[bold]{escape(view.name)}[/]: {colored(view.state)}: {escape(why(view))}")
    for place in known.places[view.name]:
        spec = place.spec
        line = f"{spec.kind} {spec.target} of location {place.location}, cluster {place.cluster}"
        if spec.batch:
            line += f", batch {spec.batch}"
        if spec.retries:
            line += f"; {spec.retries} {'retry' if spec.retries == 1 else 'retries'}"
        if spec.parents:
            line += (
                f"; parents that others make are waited for {format_duration(spec.patience)}, and "
                f"checked every {format_duration(spec.recheck)}"
            )
        out.print(f"  {escape(line)}")
    if view.holder is not None:
        until = moment(row.expires_at)
        out.print(f"  held by {escape(view.holder)}, token {row.token}, until {until}")
    if row.last_success_at is not None:
        out.print(
            f"  last success {moment(row.last_success_at)}, token {row.last_token}, "
            f"by run {escape(str(row.last_success_run))} of cluster "
            f"{escape(str(row.last_success_cluster))}"
        )


def _print_edges(
    title: str, known: TaskOverview, edges: Sequence[EdgeView], *, upwards: bool
) -> None:
    if not edges:
        return
    shown = Rows(title, "", "task", "made", "need", text="need")
    for edge in edges:
        name = edge.parent if upwards else edge.child
        shown.add(mark(known, edge), escape(name), escape(age_of(known, edge)), escape(edge.need))
    shown.print()


def _print_submissions(latest: Sequence[Submission]) -> None:
    if not latest:
        return
    shown = Rows("submissions", "id", "at", "by", "state", "reason", text="reason")
    for one in latest:
        shown.add(
            short_id(one.id),
            moment(one.submitted_at),
            escape(one.by),
            colored(one.state.value),
            escape(one.reason),
        )
    shown.print()


def _print_history(history: Sequence[StatusEvent]) -> None:
    if not history:
        return
    shown = Rows("history", "at", "step", "where", "reason", text="reason")
    for event in history:
        where = f"{event.cluster}/{event.location}" if event.location else event.cluster
        shown.add(moment(event.at), event.step.value, escape(where), escape(event.reason))
    shown.print()
