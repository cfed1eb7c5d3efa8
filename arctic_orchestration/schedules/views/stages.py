"""Measures the stages between an event and the end of its run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.state.tables import event_of_job, events, job_events, job_history, jobs

#: In order; a stage begins at the last earlier one that is known.
STAGES = (
    "stored", "taken", "admitted", "requested",
    "queued", "starting", "started", "first step", "ended",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that was reached, and the seconds since the stage before it."""

    name: str
    at: datetime
    seconds: float


def moments_of_job(tx: sa.Connection, job_id: str) -> dict[str, datetime]:
    """Returns when a job's last event was stored and taken, and when it was admitted and requested.

    Empty for a deleted job.
    """
    last = (
        sa.select(sa.func.max(events.c.at), sa.func.max(events.c.taken_at))
        .select_from(job_events)
        .join(events, event_of_job)
        .where(job_events.c.job_id == job_id)
    )
    admitted = sa.select(sa.func.min(job_history.c.at)).where(
        job_history.c.job_id == job_id,
        job_history.c.from_state != "launching",
        job_history.c.state == "launching",
    )
    requested = sa.select(jobs.c.requested_at).where(jobs.c.id == job_id)
    stored_at, taken_at = tx.execute(last).one()
    found = {
        "stored": stored_at,
        "taken": taken_at,
        "admitted": tx.execute(admitted).scalar(),
        "requested": tx.execute(requested).scalar(),
    }
    return {name: moment for name, moment in found.items() if moment is not None}


def stages(moments: Mapping[str, datetime]) -> Sequence[Stage]:
    """Returns the duration of each stage. Clocks differ: a step back counts as 0."""
    found: list[Stage] = []
    for name in STAGES:
        if name in moments:
            before = found[-1].at if found else moments[name]
            seconds = max((moments[name] - before).total_seconds(), 0.0)
            found.append(Stage(name, moments[name], seconds))
    return found
