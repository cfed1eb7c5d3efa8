"""Simulates the span in which a job waited, over the real events that it has.

The simulated scheduler gets the schedule as it is now, the events of the job at the moments at
which they were read, and the runs that held its target. It does not know loads, the freshness of
parents, and the runs of other schedules that held a group.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event, EventKind
from arctic_orchestration.quantities import iso
from arctic_orchestration.run_tags import JOB_TAG, PARENT_TAG, RUN_KEY_TAG
from arctic_orchestration.schedules.inventory import inventories
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.simulator import (
    Decision,
    DeclaredAssets,
    Timeline,
    declared_by,
    simulate,
)
from arctic_orchestration.schedules.simulator.world import ASSET_JOB
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import events, holders, job_events, jobs, launches

_SECOND = timedelta(seconds=1)
#: Longer than any span: runs end by their lines.
_ENDLESS = timedelta(days=10_000)
#: the newest events of the job that are replayed
_MOST = 10_000
#: how far before the job an event of it may have happened
_BEFORE = timedelta(days=1)
_ENDS = {
    JobState.SUCCEEDED.value: "success",
    JobState.FAILED.value: "failure",
    JobState.CANCELED.value: "canceled",
}


def replay(
    tx: sa.Connection, location: Location, stored: StoredSchedule, job: Any, at: datetime
) -> list[Decision]:
    """Returns the decisions about a schedule up to a moment, if it had only this job's events.

    Args:
        tx: a transaction that reads.
        location: of the schedule.
        stored: the schedule, as it is now.
        job: the row of a job that waited at the moment.
        at: the moment.

    Errors:
        Exception: of any kind, if the events or rules cannot be simulated.
    """
    taken = list(_events_of(tx, job, at))
    moments = [min(event.at, taken_at) for taken_at, event in taken]
    begin = max(min([job.created_at, *moments]), job.created_at - _BEFORE) - _SECOND
    lines: list[dict[str, Any]] = [{"at": iso(begin), "do": "advance"}]
    for taken_at, event in taken:
        line = line_of(event, location)
        if line is not None:
            lines.append({"at": iso(max(taken_at, begin)), **line})
    lines += _runs_of_target(tx, location, stored, job.id, begin, at)
    # Stable: what happens at the first moment comes after the line that begins the span.
    lines.sort(key=lambda line: datetime.fromisoformat(line["at"]))
    rows = [json.dumps(line) for line in lines]
    schedule = stored.schedule.model_copy(update={"enabled": True})
    found = simulate(
        [schedule],
        Timeline.parse(rows, name="events"),
        until=max(at, begin),
        run_duration=_ENDLESS,
        assets=_assets(tx, location),
    )
    return [one for one in found if one.schedule == stored.name and one.at <= at]


def _assets(tx: sa.Connection, location: Location) -> DeclaredAssets:
    inventory = inventories(tx, location.cluster).get(location.name)
    return DeclaredAssets() if inventory is None else declared_by(inventory)


def _events_of(tx: sa.Connection, job: Any, at: datetime) -> Iterator[tuple[datetime, Event]]:
    """Yields the events of a job that were read up to a moment, with the moments of reading."""
    numbers = sa.select(job_events.c.number).where(job_events.c.job_id == job.id)
    query = (
        sa.select(events.c.taken_at, events.c.details)
        .where(
            events.c.location_id == job.location_id,
            events.c.number.in_(numbers),
            events.c.taken_at <= at,
        )
        .order_by(events.c.number.desc())
        .limit(_MOST)
    )
    for row in reversed(tx.execute(query).all()):
        yield row.taken_at, Event.parse(row.details)


def line_of(event: Event, location: Location) -> dict[str, Any] | None:
    """Returns the line of an event; None for a tick, which the simulated clock makes."""
    common = {"partition": event.partition}
    match event.kind:
        case EventKind.PARTITION:
            line: dict[str, Any] = {
                "event": "partition", "asset": event.subject, "bytes": event.bytes,
                "rows": event.rows, "metadata": dict(event.metadata),
                "data_version": event.data_version, **common,
            }  # fmt: skip
        case EventKind.RUN:
            of: dict[str, Any] = {"assets": list(event.assets)} if event.assets else {}
            if event.subject != ASSET_JOB:
                of["job"] = event.subject
            # These would connect it with jobs of the recording.
            apart = (JOB_TAG, RUN_KEY_TAG, PARENT_TAG)
            tags = {key: value for key, value in event.tags.items() if key not in apart}
            elsewhere = event.location if event.location != location.name else None
            line = {
                "event": "run", "status": event.status and event.status.value,
                "run_id": event.run_id, "location": elsewhere, "tags": tags, **of, **common,
            }  # fmt: skip
        case EventKind.CHECK:
            line = {
                "event": "check", "asset": event.subject, "check": event.check,
                "passed": event.passed, "severity": event.severity, "blocking": event.blocking,
                **common,
            }  # fmt: skip
        case EventKind.FRESHNESS:
            line = {"event": "freshness", "asset": event.subject, "state": event.state}
        case EventKind.REQUEST:
            line = {
                "event": "request", "sensor": event.subject, "job": event.job,
                "run_key": event.run_key, "tags": dict(event.tags), **common,
            }  # fmt: skip
        case _:
            return None
    return {name: value for name, value in line.items() if value is not None}


def held_spans(
    tx: sa.Connection, resources: Sequence[str], at: datetime
) -> dict[str, tuple[datetime, datetime | None, str]]:
    """Returns by holder when it held one of some resources, of those launched before a moment.

    The end is None while it holds it; then comes the state of its job. A run without a job whose
    end is past is left out: nothing says when it ended.
    """
    active = sa.exists().where(
        holders.c.holder == launches.c.holder, holders.c.resource == launches.c.resource
    )
    query = (
        sa.select(launches.c.holder, launches.c.at, jobs.c.ended_at, jobs.c.state)
        .outerjoin(jobs, jobs.c.id == launches.c.holder)
        .where(dialect.among(tx, launches.c.resource, sorted(resources)), launches.c.at <= at)
        .where(jobs.c.id.is_not(None) | active)
    )
    return {row.holder: (row.at, row.ended_at, row.state or "") for row in tx.execute(query)}


def _runs_of_target(
    tx: sa.Connection,
    location: Location,
    stored: StoredSchedule,
    job_id: str,
    begin: datetime,
    at: datetime,
) -> Iterator[dict[str, Any]]:
    """Yields the lines of the runs that held the target of a schedule, but for one job's."""
    target = stored.schedule.target
    of = {"job": target.job} if target.job is not None else {"assets": list(target.assets)}
    resources = target.resources(location.cluster, location.name)
    for holder, (since, ended_at, state) in held_spans(tx, resources, at).items():
        if holder == job_id or (ended_at is not None and ended_at <= begin):
            continue
        # Not the id of an event's run, which the simulated world then knows already.
        run = {"run_id": f"{holder} held it"}
        yield {"at": iso(max(since, begin)), "do": "start_run", **run, **of}
        if ended_at is not None and ended_at <= at:
            status = _ENDS.get(state, "success")
            yield {"at": iso(max(ended_at, since)), "do": "end_run", **run, "status": status}
