"""The state of one schedule in a few lines: its open jobs, and the last ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.schedules.jobs import ACTIVE, WAITING, Job, JobState
from arctic_orchestration.schedules.views.numbers import IS_FIRING
from arctic_orchestration.state.tables import (
    is_active,
    is_waiting,
    job_history,
    jobs,
    locations,
    schedules,
)

#: jobs that are listed, and lines of the history of jobs that are read at once
_LISTED, _RECENT = 5, 200
_is_open = is_waiting | is_active


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleState:
    """A schedule, its open jobs by state, and its last jobs, newest first."""

    name: str
    status: str
    open: Mapping[JobState, int]
    latest: tuple[Job, ...]

    @property
    def summary(self) -> str:
        """What it does now, in one sentence."""
        suspended = "" if self.status == "enabled" else f"{self.status}; "
        for states in (WAITING, ACTIVE):
            for job in self.latest:
                if job.state in states:
                    return f"{suspended}{_words(job.state)}: {job.reason}{self._others}"
        if not self.latest:
            return f"{suspended}nothing has arrived yet"
        # One that joined the run of another was discarded before that run ended.
        last = max(self.latest, key=lambda job: job.ended_at or job.created_at)
        return f"{suspended}nothing new; the last job {_words(last.state)}: {last.reason}"

    @property
    def next_check_at(self) -> datetime | None:
        """When a job that waits is checked again without an event; None: unknown."""
        moments = [job.next_check_at for job in self.latest if job.state in WAITING]
        return min((moment for moment in moments if moment), default=None)

    @property
    def _others(self) -> str:
        others = sum(self.open.values()) - 1
        return f"; {others} more of its jobs are open" if others else ""


def _words(state: JobState) -> str:
    return state.value.replace("_", " ")


def ids_of_schedules(
    tx: sa.Connection, cluster: str, location: str, names: Sequence[str]
) -> dict[str, str]:
    """Returns the names of those schedules of a location that are stored, by their ids."""
    rows = tx.execute(
        sa.select(schedules.c.id, schedules.c.name)
        .join(locations, locations.c.id == schedules.c.location_id)
        .where(
            locations.c.cluster == cluster,
            locations.c.name == location,
            schedules.c.name.in_(names),
        )
    )
    return {row.id: row.name for row in rows}


def schedule_state(tx: sa.Connection, schedule_id: str) -> ScheduleState | None:
    """Returns the state of a schedule; None: it is gone."""
    query = sa.select(schedules.c.name, schedules.c.status).where(schedules.c.id == schedule_id)
    row = tx.execute(query).one_or_none()
    if row is None:
        return None
    of_schedule = (jobs.c.schedule_id == schedule_id) & IS_FIRING
    counts = tx.execute(
        sa.select(jobs.c.state, sa.func.count()).where(of_schedule, _is_open).group_by(jobs.c.state)
    )
    # An open job may be older than all the listed ones.
    created_at = jobs.c.created_at
    newest = sa.select(jobs).where(of_schedule).order_by(created_at.desc(), jobs.c.id.desc())
    oldest = sa.select(jobs).where(of_schedule, _is_open).order_by(created_at, jobs.c.id)
    rows = [
        *tx.execute(newest.limit(_LISTED)).mappings(),
        *tx.execute(oldest.limit(1)).mappings(),
    ]
    latest = {row["id"]: Job.from_row(dict(row)) for row in rows}
    return ScheduleState(
        name=row.name,
        status=row.status,
        open={JobState(state): count for state, count in counts},
        latest=tuple(latest.values()),
    )


def moved_schedules(
    tx: sa.Connection, cluster: str, location: str, after: int
) -> tuple[set[str], int]:
    """Returns the ids of schedules whose jobs have moved, by whichever process.

    Args:
        tx: a transaction.
        cluster: the name of the cluster.
        location: the name of the location.
        after: the line of the history of jobs that was the last one read. At most the newest 200
            lines of all locations are read.

    Returns:
        The ids, and the line that is to be the next ``after``.
    """
    newest = tx.execute(sa.select(sa.func.max(job_history.c.id))).scalar() or 0
    # Lines of one location are committed in the order of their numbers, those of two may not be.
    after = max(after, newest - _RECENT)
    query = (
        sa.select(jobs.c.schedule_id, job_history.c.id)
        .join(jobs, jobs.c.id == job_history.c.job_id)
        .join(locations, locations.c.id == jobs.c.location_id)
        .where(
            job_history.c.id > after,
            locations.c.cluster == cluster,
            locations.c.name == location,
        )
    )
    lines = tx.execute(query).all()
    return {line.schedule_id for line in lines}, max([line.id for line in lines], default=after)
