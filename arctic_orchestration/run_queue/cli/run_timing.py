"""``arctic runs timing``: the duration of each stage between an event and the end of its run."""

from contextlib import closing
from typing import Annotated

import typer

from arctic_orchestration.console.dagster_instance import opened_instance
from arctic_orchestration.console.display import Rows, moment, print_json
from arctic_orchestration.console.state import JsonOption, opened_state
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.quantities import iso
from arctic_orchestration.run_tags import JOB_TAG
from arctic_orchestration.schedules.views.stages import moments_of_job, stages

#: what happened when each stage was reached
_MEANING = {
    "stored": "the last event of the job was stored",
    "taken": "a tick took it",
    "admitted": "trigger and constraints let the job through",
    "requested": "a tick handed its run to Dagster",
    "queued": "the run was created and queued",
    "starting": "the run queue chose it",
    "started": "its process was up, and began",
    "first step": "resources were there",
    "ended": "all steps were done",
}


def timing(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run's id, or at least 4 characters it begins with."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show how long each stage of a run took."""
    from arctic_orchestration.event_log.run_moments import moments_of_run
    from arctic_orchestration.run_queue.dagster.queued_runs import QueuedRuns
    from arctic_orchestration.run_queue.dagster.run_records import record_of

    # Any run coordinator will do: what is shown stands in events.
    with (
        opened_instance() as instance,
        opened_state(made_by="Dagster's daemon") as (_, database),
        closing(QueuedRuns(instance)) as runs,
    ):
        found = record_of(instance, runs, run).dagster_run
        moments = moments_of_run(instance, found.run_id)
        if job := found.tags.get(JOB_TAG):
            with database.read() as tx:
                moments |= moments_of_job(tx, job)
    shown = stages(moments)
    total = (shown[-1].at - shown[0].at).total_seconds() if shown else 0.0
    if as_json:
        rows = [{"stage": one.name, "at": iso(one.at), "seconds": one.seconds} for one in shown]
        print_json({"run_id": found.run_id, "stages": rows, "seconds": total})
        return
    title = f"run {found.run_id} of {found.job_name}: {total:.2f} s"
    table = Rows(escape(title), "stage", "at", "seconds", "", text="")
    for one in shown:
        table.add(one.name, moment(one.at), f"{one.seconds:.2f}", _MEANING[one.name])
    table.print()
