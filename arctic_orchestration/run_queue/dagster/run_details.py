"""The details of one run, queued or not, as values and as a document."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from arctic_orchestration.quantities import format_duration, format_moment, iso
from arctic_orchestration.run_queue import tags as tagging
from arctic_orchestration.run_queue import waits
from arctic_orchestration.run_queue.dagster.open_queue import Opened, time_of_queueing
from arctic_orchestration.run_queue.dagster.pools import pools_of
from arctic_orchestration.run_queue.explanation import RunExplanation
from arctic_orchestration.run_queue.pauses import Pause
from arctic_orchestration.run_queue.views.run_document import (
    Pools,
    RunDetailsDocument,
    SchedulingJob,
)
from arctic_orchestration.run_queue.waits import WaitReason
from arctic_orchestration.run_tags import JOB_TAG
from arctic_orchestration.state.tables import jobs, locations, schedules

if TYPE_CHECKING:
    from dagster import DagsterInstance, RunRecord


@dataclass(frozen=True, kw_only=True)
class RunDetails:
    """The details of a run."""

    run_id: str
    job: str
    location: str | None
    status: str
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    #: one sentence
    summary: str
    #: the problem of its tags that cannot be followed
    problem: str | None
    #: None: it does not wait
    queued: RunExplanation | None
    #: of its queue and its groups
    pauses: Sequence[Pause]
    reported: WaitReason | None
    #: None: it uses none
    pools: Pools | None
    scheduling_job: SchedulingJob | None


def run_details(queue: Opened, record: "RunRecord", now: datetime) -> RunDetails:
    """Returns the current details of a run."""
    run = record.dagster_run
    explained, pools, paused = None, None, []
    if run.status.value == "QUEUED":
        outlook = queue.outlook(now)
        # It may have left the queue since its record was read.
        if run.run_id in outlook.places:
            explained = outlook.explain(run.run_id)
            pools = pools_of(queue.instance, run)
            ids = {gate.id for gate in explained.gates if gate.kind == "paused"}
            paused = [
                pause
                for (kind, name), pause in outlook.gates.paused.items()
                if any(id.startswith(f"paused:{kind}:{name}:") for id in ids)
            ]
        else:
            record = queue.record(run.run_id)
            run = record.dagster_run
    with queue.database.read() as tx:
        reported = waits.reported_wait(tx, queue.cluster, run.run_id) if explained else None
        scheduling_job = _scheduling_job(tx, queue.cluster, run.tags.get(JOB_TAG))
    origin = run.remote_job_origin
    queued_at = time_of_queueing(queue.instance, record)
    return RunDetails(
        run_id=run.run_id,
        job=run.job_name,
        location=origin.location_name if origin else None,
        status=run.status.value,
        queued_at=queued_at,
        started_at=_at(record.start_time),
        ended_at=_at(record.end_time),
        summary=_summary(queue.instance, record, explained, pools),
        problem=tagging.problem_of(run.tags),
        queued=explained,
        pauses=paused,
        reported=reported,
        pools=pools,
        scheduling_job=scheduling_job,
    )


def _summary(
    instance: "DagsterInstance",
    record: "RunRecord",
    explained: RunExplanation | None,
    pools: Pools | None,
) -> str:
    if explained is not None:
        if explained.wait is not None:
            return f"waits: {explained.wait.reason}"
        if pools is not None and pools.hold:
            return "waits: no rule holds it, but Dagster's pools are full"
        return "no rule holds it: it starts with the next pass"
    status = record.dagster_run.status.value
    started, ended = _at(record.start_time), _at(record.end_time)
    since = f"in progress since {format_moment(started)}" if started else "in progress"
    match status:
        case "NOT_STARTED":
            made_at = time_of_queueing(instance, record)
            return f"was made at {format_moment(made_at)} and is not submitted yet"
        case "STARTING":
            from arctic_orchestration.event_log.run_moments import moments_of_run

            since_when = moments_of_run(instance, record.dagster_run.run_id).get("starting")
            if since_when is None:
                return "is being started"
            return f"is being started, since {format_moment(since_when)}"
        case "CANCELING":
            return f"{since}, and is being canceled"
        case "SUCCESS" | "FAILURE" | "CANCELED":
            at = f" at {format_moment(ended)}" if ended else ""
            text = f"ended{at}: {status.lower()}"
            if started is None:
                return f"{text}; it was never started"
            return f"{text}, after {span(started, ended)}" if ended else text
        case "QUEUED":
            return "left the queue just now"
        case _:
            return since


def _scheduling_job(tx: sa.Connection, cluster: str, job_id: str | None) -> SchedulingJob | None:
    if job_id is None:
        return None
    query = (
        sa.select(
            jobs.c.id,
            jobs.c.state,
            jobs.c.reason,
            schedules.c.name.label("schedule"),
            locations.c.name.label("location"),
        )
        .join(schedules, schedules.c.id == jobs.c.schedule_id)
        .join(locations, locations.c.id == jobs.c.location_id)
        .where(jobs.c.id == job_id, locations.c.cluster == cluster)
    )
    row = tx.execute(query).mappings().one_or_none()
    return None if row is None else SchedulingJob(**row)


def run_document(seen: RunDetails) -> RunDetailsDocument:
    """Returns the document of a run."""
    queued = seen.queued and _queued_json(seen.queued)
    return RunDetailsDocument.from_record(seen, queued=queued)


def _queued_json(explained: RunExplanation) -> dict[str, Any]:
    share, slots, age = explained.share, explained.slots, explained.age
    wait = explained.wait
    return {
        "held_by": wait and {"gate": wait.gate, "reason": wait.reason},
        "place": explained.place,
        "waiting": explained.waiting,
        "gates": [
            {"gate": gate.id, "kind": gate.kind, "open": gate.is_open, "text": gate.text}
            for gate in explained.gates
        ],
        "share": share
        and {
            "queue": share.queue,
            "share": share.share,
            "in_progress": share.in_progress,
            "ahead": share.ahead,
            "may_use": share.may_use,
            "open": share.is_open,
        },
        "slots": {
            "in_use": slots.in_use,
            "ahead": slots.ahead,
            "limit": slots.limit,
            "open": slots.is_open,
        },
        "priority": age.number,
        "level": age.level,
        "highest_level": age.highest_level,
        "seconds_per_level": age.seconds_per_level,
        "overtaken_until": iso(age.overtaken_until),
    }


def span(begin: datetime, end: datetime) -> str:
    """Returns the time between two moments, in words."""
    seconds = max(0, round((end - begin).total_seconds()))
    return format_duration(timedelta(seconds=seconds))


def _at(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
