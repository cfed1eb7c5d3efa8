"""The key numbers of a scheduler, read from the state database."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.schedules.jobs import ACTIVE, COMMON, ENDED, WAITING, JobState
from arctic_orchestration.state.tables import events, jobs, locations

#: the span for numbers of ended jobs and taken events
SPAN = timedelta(hours=1)
LIVING = (*WAITING, *ACTIVE)
#: a job that keeps common events for every target partition is no firing
IS_FIRING = jobs.c.scope.is_distinct_from(COMMON)


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """The numbers of one location, or of a whole cluster."""

    #: jobs that have not ended
    living: Mapping[JobState, int]
    #: jobs that ended within :data:`SPAN`
    ended: Mapping[JobState, int]
    #: events taken by a schedule, in total and within :data:`SPAN`
    events: int
    recent_events: int
    #: the longest wait among jobs held by constraints
    oldest_wait: timedelta

    def plus(self, other: "Numbers") -> "Numbers":
        """Returns the sum of both."""
        return Numbers(
            living={state: self.living[state] + other.living[state] for state in LIVING},
            ended={state: self.ended[state] + other.ended[state] for state in ENDED},
            events=self.events + other.events,
            recent_events=self.recent_events + other.recent_events,
            oldest_wait=max(self.oldest_wait, other.oldest_wait),
        )


NONE = Numbers(
    living=dict.fromkeys(LIVING, 0),
    ended=dict.fromkeys(ENDED, 0),
    events=0,
    recent_events=0,
    oldest_wait=timedelta(0),
)


def living_jobs(
    tx: sa.Connection, cluster: str, now: datetime, *, location: str | None = None
) -> dict[str, tuple[dict[JobState, int], timedelta]]:
    """Returns the jobs that have not ended, by state, and the oldest wait, by location name.

    Reads one index row for each such job, whatever the size of the history; with ``location``, for
    each of this location alone.
    """
    where = [locations.c.cluster == cluster]
    if location is not None:
        where.append(locations.c.name == location)
    query = (
        sa.select(
            locations.c.name,
            jobs.c.state,
            sa.func.count(jobs.c.id),
            sa.func.min(jobs.c.satisfied_at),
        )
        .select_from(locations)
        .outerjoin(
            jobs,
            (jobs.c.location_id == locations.c.id) & jobs.c.ended_at.is_(None) & IS_FIRING,
        )
        .where(*where)
        .group_by(locations.c.name, jobs.c.state)
    )
    found: dict[str, tuple[dict[JobState, int], timedelta]] = {}
    for name, state, count, since in tx.execute(query):
        states, oldest = found.get(name, (dict.fromkeys(LIVING, 0), timedelta(0)))
        if state in states:
            states[JobState(state)] = count
        if state == JobState.WAITING_CONSTRAINTS and since is not None:
            oldest = max(oldest, now - since)
        found[name] = states, oldest
    return found


def numbers(tx: sa.Connection, cluster: str, now: datetime) -> dict[str, Numbers]:
    """Returns the numbers of each location of a cluster, by its name."""
    since = now - SPAN
    in_cluster = locations.c.cluster == cluster
    ended: dict[str, dict[JobState, int]] = {}
    query = (
        sa.select(locations.c.name, jobs.c.state, sa.func.count())
        .join(jobs, jobs.c.location_id == locations.c.id)
        .where(in_cluster, jobs.c.ended_at > since)
        .group_by(locations.c.name, jobs.c.state)
    )
    for name, state, count in tx.execute(query):
        ended.setdefault(name, dict.fromkeys(ENDED, 0))[JobState(state)] = count
    recent = (
        sa.select(locations.c.name, sa.func.count())
        .join(events, events.c.location_id == locations.c.id)
        .where(in_cluster, events.c.taken_at > since)
        .group_by(locations.c.name)
    )
    lately: dict[str, int] = {row[0]: row[1] for row in tx.execute(recent)}
    # Events are numbered from 1 in the order in which they were taken.
    ever = {
        name: next_event - 1
        for name, next_event in tx.execute(
            sa.select(locations.c.name, locations.c.next_event).where(in_cluster)
        )
    }
    return {
        name: Numbers(
            living=states,
            ended=ended.get(name, NONE.ended),
            events=ever.get(name, 0),
            recent_events=lately.get(name, 0),
            oldest_wait=oldest,
        )
        for name, (states, oldest) in sorted(living_jobs(tx, cluster, now).items())
    }
