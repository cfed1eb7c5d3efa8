"""``arctic tasks forget``: a code location that was renamed, or is gone."""

from typing import Annotated

import typer

from arctic_orchestration.cli.display import console, counted, print_json
from arctic_orchestration.cli.state import JsonOption
from arctic_orchestration.cli.tasks.opened import opened_tasks
from arctic_orchestration.cli.terminal import escape
from arctic_orchestration.freshness import forgetting


def forget(
    location: Annotated[str, typer.Argument(metavar="LOCATION", help="The code location.")],
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Whose it is; else that of ARCTIC_CLUSTER.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Removes the tasks of a location that was renamed or is gone, and ends its submissions.

    The last successes stay. A location that goes on registers its tasks anew by its next tick.
    """
    with opened_tasks() as opened:
        cluster = cluster or opened.settings.cluster
        done = forgetting.forget(opened.database, location, cluster=cluster, by=opened.person)
    if as_json:
        found = {"tasks": done.tasks, "submissions": done.submissions}
        print_json({"cluster": cluster, "location": location, **found})
        return
    what = f"{counted(done.tasks, 'task')} removed, {counted(done.submissions, 'submission')} ended"
    console().print(f"{escape(location)} of cluster {escape(cluster)} is forgotten: {what}")
