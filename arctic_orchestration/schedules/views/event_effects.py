"""Conditions on events that schedules took, and the jobs that each one is part of."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.documents import Document
from arctic_orchestration.event_log.event import EventKind
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.state.tables import events, job_events, jobs, schedules


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Which events: of a half-open span in which they were taken, of a kind, subject, partition."""

    begin: datetime | None = None
    end: datetime | None = None
    kind: EventKind | None = None
    subject: str | None = None
    partition: str | None = None

    @property
    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """On the table of events."""
        col = events.c
        made = [
            col[name] == getattr(self, name)
            for name in ("kind", "subject", "partition")
            if getattr(self, name) is not None
        ]
        if self.begin is not None:
            made.append(col.taken_at >= self.begin)
        if self.end is not None:
            made.append(col.taken_at < self.end)
        return made


class Effect(Document):
    """A job that an event is part of."""

    schedule: str
    job: str
    state: JobState
    reason: str
    run_id: str | None


def effects_of(
    tx: sa.Connection, taken: Collection[tuple[int, int]]
) -> dict[tuple[int, int], list[Effect]]:
    """Returns the jobs of events by the ids of their locations and their numbers, oldest first."""
    col = job_events.c
    query = (
        sa.select(
            col.location_id, col.number, jobs.c.id, jobs.c.state, jobs.c.reason, jobs.c.run_id,
            schedules.c.name,
        )
        .distinct()
        .join(jobs, jobs.c.id == col.job_id)
        .join(schedules, schedules.c.id == jobs.c.schedule_id)
        .where(sa.tuple_(col.location_id, col.number).in_(taken))
        .order_by(jobs.c.id)
    )  # fmt: skip
    found: dict[tuple[int, int], list[Effect]] = {}
    for row in tx.execute(query) if taken else ():
        effect = Effect(
            schedule=row.name, job=row.id, state=row.state, reason=row.reason, run_id=row.run_id
        )
        found.setdefault((row.location_id, row.number), []).append(effect)
    return found
