"""``arctic tasks forget``: removes a code location that was renamed, or is gone."""

from typing import Annotated

import typer

from arctic_orchestration.console.display import confirm, console, counted, print_json
from arctic_orchestration.console.state import JsonOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.freshness import location_removal
from arctic_orchestration.freshness.cli.context import opened_tasks


def forget(
    location: Annotated[str, typer.Argument(metavar="LOCATION", help="The code location.")],
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Whose it is; else that of ARCTIC_CLUSTER.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the tasks and submissions of a gone location.

    The last successes stay. A location whose sensor ticks is refused.
    """
    with opened_tasks() as opened:
        cluster = cluster or opened.settings.cluster
        with opened.database.read() as tx:
            found = location_removal.to_forget(tx, location, cluster=cluster)
        tasks, live = counted(found.tasks, "task"), counted(found.submissions, "submission")
        question = f"{location} of cluster {cluster}: remove {tasks} and end {live}?"
        confirm(question, yes=yes, as_json=as_json)
        done = location_removal.forget(opened.database, location, cluster=cluster, by=opened.actor)
    if as_json:
        counts = {"tasks": done.tasks, "submissions": done.submissions}
        print_json({"cluster": cluster, "location": location, **counts})
        return
    what = f"{counted(done.tasks, 'task')} removed, {counted(done.submissions, 'submission')} ended"
    console().print(f"{escape(location)} of cluster {escape(cluster)} is forgotten: {what}")
