"""The launch of a job that a source requested: the request's content takes precedence."""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.schedules.jobs import Job
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.state.tables import event_of_job, events, job_events


def request_of(tx: sa.Connection, job: Job) -> Event | None:
    """Returns the request that a job was made of; None: a person launched it."""
    query = (
        sa.select(events.c.details)
        .join(job_events, event_of_job)
        .where(job_events.c.job_id == job.id, events.c.kind == EventKind.REQUEST.value)
    )
    details = tx.execute(query.limit(1)).scalar()
    return None if details is None else Event.parse(details)


def problem_of_request(request: Event, schedule: Schedule) -> str | None:
    """Returns why a schedule cannot make the requested run; None: it can."""
    if request.problem is not None:
        return f"its request was refused: {request.problem}"
    target = schedule.target
    if request.job is not None and request.job != target.job:
        what = f"job {target.job}" if target.job else f"assets {', '.join(target.assets)}"
        return (
            f"its request is for job {request.job}, and {schedule.name} runs {what}: give the job "
            f"a schedule of its own, with requests: {{sensor: {request.subject}, "
            f"job: {request.job}}}"
        )
    others = [asset for asset in request.assets if asset not in target.assets]
    if target.job is None and others:
        return (
            f"its request selects {', '.join(others)}, and {schedule.name} runs "
            f"{', '.join(target.assets)}"
        )
    return None


def with_request(launch: str, request: Event) -> str:
    """Returns a stored launch with the configuration, tags and assets of a request."""
    stored: dict[str, Any] = json.loads(launch)
    stored["tags"] = {**stored["tags"], **request.tags}
    if request.run_config:
        stored["run_config"] = dict(request.run_config)
    if request.assets:
        target: Mapping[str, Any] = stored["target"]
        if target.get("job"):
            stored["selection"] = list(request.assets)
        else:
            stored["target"] = {"assets": list(request.assets)}
    return json.dumps(stored)
