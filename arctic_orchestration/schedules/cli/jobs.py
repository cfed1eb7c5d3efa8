"""``arctic jobs``: firings of schedules on their way to runs, and why they wait."""

import json
from typing import Annotated, Any

import sqlalchemy as sa
import typer

from arctic_orchestration.clock import utc_now
from arctic_orchestration.console.actor import actor
from arctic_orchestration.console.display import (
    Rows,
    colored,
    console,
    counted,
    moment,
    print_json,
    short_id,
)
from arctic_orchestration.console.state import JsonOption, LocationOption
from arctic_orchestration.console.terminal import escape
from arctic_orchestration.errors import InvalidInput, NotFound
from arctic_orchestration.schedules import job_control
from arctic_orchestration.schedules.cli.context import opened
from arctic_orchestration.schedules.cli.events import print_events
from arctic_orchestration.schedules.cli.explanation import print_explanation, print_history
from arctic_orchestration.schedules.jobs import Job, JobState
from arctic_orchestration.schedules.lookup import (
    job_by_id_part,
    schedule_by_name,
    schedule_if_there,
)
from arctic_orchestration.schedules.views.documents import (
    JobDocument,
    explanation_document,
    job_documents,
)
from arctic_orchestration.schedules.views.explanation import (
    Explanation,
    explain,
    explain_schedule,
)
from arctic_orchestration.schedules.views.listing import (
    ListedEvent,
    events_of_job,
    list_jobs,
    parse_states,
)
from arctic_orchestration.state.tables import schedules

app = typer.Typer(no_args_is_help=True)

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="A job's id, or a part of it that no other has.")
]


@app.command("list")
def list_(
    schedule: Annotated[str | None, typer.Option(help="Only of this schedule.")] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only in this state, or: waiting, active, ended; repeatable."),
    ] = None,
    partition: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only for this target partition.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first."""
    states = parse_states(state or [])
    with opened(location) as opened_state, opened_state.read() as (tx, place):
        of = schedule_by_name(tx, place, schedule).id if schedule is not None else None
        found = list_jobs(
            tx, place, schedule_id=of, states=states, partition=partition, limit=limit
        )
    if as_json:
        documents = job_documents(found)
        print_json({"location": place.name, "jobs": documents})
        return
    shown = Rows(None, "job", "schedule", "partition", "state", "made", "reason", "run",
                 text="reason")  # fmt: skip
    for listed in found:
        job = listed.job
        shown.add(
            short_id(job.id),
            escape(listed.schedule),
            escape(_span(job)),
            colored(job.state.value),
            moment(job.created_at),
            escape(job.reason),
            escape((job.run_id or "")[:8]),
        )
    shown.print(empty="no such jobs")


@app.command()
def show(id: IdArgument, location: LocationOption = None, as_json: JsonOption = False) -> None:
    """Show a job: its events, its launch and its history."""
    with opened(location) as state, state.read() as (tx, place):
        job_id = job_by_id_part(tx, place, id)
        explained = explain(tx, state.store, place, job_id, utc_now())
        assert explained.job is not None
        events = events_of_job(tx, explained.job)
    launch = json.loads(explained.job.launch) if explained.job.launch else None
    if as_json:
        print_json(
            {
                "location": place.name,
                "job": JobDocument.from_record(explained.job, schedule=explained.schedule.name),
                "launch": launch,
                "events": [event.to_json() for event in events],
                "history": explained.history,
            }
        )
        return
    _show(explained, explained.job, launch, events)


@app.command("explain")
def explain_(
    what: Annotated[
        str, typer.Argument(metavar="ID|SCHEDULE", help="A job's id, or a schedule's name.")
    ],
    partition: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Of a schedule: the job for this target partition."),
    ] = None,
    location: LocationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a job waits, or why a schedule has not run."""
    with opened(location) as state, state.read() as (tx, place):
        if partition is not None or schedule_if_there(tx, place, what) is not None:
            explained = explain_schedule(
                tx, state.store, place, what, utc_now(), partition=partition
            )
        else:
            try:
                job_id = job_by_id_part(tx, place, what)
            except (NotFound, InvalidInput) as error:
                if isinstance(error, InvalidInput) and "several" in error.expected:
                    raise
                # Neither: people mistype names of schedules rather than ids of jobs.
                schedule_by_name(tx, place, what)
                raise
            explained = explain(tx, state.store, place, job_id, utc_now())
    if as_json:
        print_json({"location": place.name, **explanation_document(explained).to_json()})
    else:
        print_explanation(explained)


@app.command()
def launch(id: IdArgument, location: LocationOption = None, as_json: JsonOption = False) -> None:
    """Launch a waiting job; only concurrency still holds it."""
    with opened(location) as state, state.change() as (tx, place):
        job = job_control.launch_job(
            tx, place, job_by_id_part(tx, place, id), utc_now(), actor=actor(state.cluster)
        )
        schedule = _schedule_of(tx, job)
    if as_json:
        print_json({"location": place.name, "job": JobDocument.from_record(job, schedule=schedule)})
    else:
        console().print(f"job {job.id} of {escape(schedule)} is launched by the next tick")


@app.command()
def cancel(id: IdArgument, location: LocationOption = None, as_json: JsonOption = False) -> None:
    """Cancel a job that has no run yet.

    If the job has a run, terminate the run in Dagster.
    """
    with opened(location) as state, state.change() as (tx, place):
        job = job_control.cancel_job(
            tx, place, job_by_id_part(tx, place, id), utc_now(), actor=actor(state.cluster)
        )
        schedule = _schedule_of(tx, job)
    if as_json:
        print_json({"location": place.name, "job": JobDocument.from_record(job, schedule=schedule)})
    else:
        console().print(f"job {job.id} of {escape(schedule)} is {job.state.value}")
        if job.requests:
            console().print("a run that its request still makes is terminated")


def _schedule_of(tx: sa.Connection, job: Job) -> str:
    query = sa.select(schedules.c.name).where(schedules.c.id == job.schedule_id)
    return str(tx.execute(query).scalar_one())


def _show(
    explained: Explanation,
    job: Job,
    launch: dict[str, Any] | None,
    events: list[ListedEvent],
) -> None:
    out = console()
    out.print(f"[bold]job {job.id}[/] of {escape(explained.schedule.name)}")
    out.print(f"{colored(job.state.value)}: {escape(job.reason)}")
    facts = {
        "made": moment(job.created_at),
        "trigger satisfied": moment(job.satisfied_at),
        "next check": moment(job.next_check_at),
        "ended": moment(job.ended_at),
        "partitions": _span(job),
        "priority": str(job.priority),
        "run": job.run_id or "",
        "attempt": str(job.attempt) if job.attempt > 1 else "",
        "forced": job.forced or "",
        "held by": job.held_by or "" if job.state is JobState.WAITING_CONSTRAINTS else "",
    }
    for name, value in facts.items():
        if value:
            out.print(f"[dim]{name:<18}[/]{escape(value)}")
    if launch is not None:
        out.print("[bold]launched with[/]")
        for name in ("target", "properties", "tags", "run_config"):
            if launch.get(name):
                out.print(f"  [dim]{name}[/] {escape(json.dumps(launch[name]))}")
    print_events(events, counted(explained.events, "event"))
    print_history(explained.history)


def _span(job: Job) -> str:
    """Returns the target partition, the range of them, or the group."""
    if job.partition_start is None or job.partition_start == job.partition_end:
        return job.partition or ""
    return f"{job.partition_start} … {job.partition_end}"
