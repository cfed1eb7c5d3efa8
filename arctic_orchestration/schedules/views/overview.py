"""The current contents of a location's scheduler, for monitoring."""

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from arctic_orchestration.schedules.jobs import ACTIVE, WAITING, JobState
from arctic_orchestration.state.tables import events, job_events, jobs, locations, schedules


@dataclass(frozen=True, kw_only=True)
class ScheduleView:
    """One schedule and its jobs: the number of jobs in each state and of their events."""

    name: str
    jobs: Mapping[JobState, int]
    events: int

    @property
    def waiting(self) -> int:
        """How many jobs wait for their trigger or constraints."""
        return sum(self.jobs.get(state, 0) for state in WAITING)

    @property
    def active(self) -> int:
        """How many jobs are launching or launched."""
        return sum(self.jobs.get(state, 0) for state in ACTIVE)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """A location: whether its dispatcher has begun to follow the feed, and its schedules."""

    following: bool
    events: int
    schedules: tuple[ScheduleView, ...]


def overview(tx: sa.Connection, cluster: str, location: str) -> Overview:
    """Returns the overview of one location; empty for a location that never ticked."""
    row = tx.execute(
        sa.select(locations.c.id, locations.c.position).where(
            locations.c.cluster == cluster, locations.c.name == location
        )
    ).one_or_none()
    if row is None:
        return Overview(following=False, events=0, schedules=())
    here = schedules.c.location_id == row.id
    states = tx.execute(
        sa.select(schedules.c.name, jobs.c.state, sa.func.count(jobs.c.id))
        .select_from(schedules.outerjoin(jobs, jobs.c.schedule_id == schedules.c.id))
        .where(here)
        .group_by(schedules.c.name, jobs.c.state)
    )
    counted: dict[str, dict[JobState, int]] = {}
    for name, state, count in states:
        counted.setdefault(name, {})
        if state is not None:
            counted[name][JobState(state)] = count
    per_schedule = (
        # An event in two leaves of a trigger, or in two jobs, counts once.
        sa.select(schedules.c.name, sa.func.count(sa.distinct(job_events.c.number)))
        .select_from(job_events)
        .join(jobs, jobs.c.id == job_events.c.job_id)
        .join(schedules, schedules.c.id == jobs.c.schedule_id)
        .where(here)
        .group_by(schedules.c.name)
    )
    taken: dict[str, int] = {row[0]: row[1] for row in tx.execute(per_schedule)}
    known = sa.select(sa.func.count()).select_from(events).where(events.c.location_id == row.id)
    return Overview(
        following=row.position is not None,
        events=tx.execute(known).scalar_one(),
        schedules=tuple(
            ScheduleView(name=name, jobs=counts, events=taken.get(name, 0))
            for name, counts in sorted(counted.items())
        ),
    )
