"""What is lost with the waiting jobs of updated or deleted schedules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import is_launching, is_waiting, job_events, jobs


@dataclass(frozen=True, kw_only=True, slots=True)
class Discard:
    """The discarded waiting jobs of one schedule."""

    jobs: int
    #: different events that the jobs had
    events: int

    def __str__(self) -> str:
        """For example ``2 waiting jobs with 7 events were discarded``."""
        were = "was" if self.jobs == 1 else "were"
        plural = "" if self.jobs == 1 else "s", "" if self.events == 1 else "s"
        return (
            f"{self.jobs} waiting job{plural[0]} with {self.events} event{plural[1]} "
            f"{were} discarded"
        )


def waiting_of(
    tx: sa.Connection, schedule_ids: Sequence[str], *, deleted: bool = False
) -> Mapping[str, Discard]:
    """Returns what would be discarded, by schedule id; schedules without waiting jobs have none.

    ``deleted``: the schedules are, and admitted jobs whose run was never requested are lost, too.
    """
    lost: sa.ColumnElement[bool] = is_waiting
    if deleted:
        lost = is_waiting | (is_launching & (jobs.c.requests == 0))
    query = (
        sa.select(
            jobs.c.schedule_id,
            sa.func.count(sa.distinct(jobs.c.id)),
            sa.func.count(sa.distinct(job_events.c.number)),
        )
        .outerjoin(job_events, job_events.c.job_id == jobs.c.id)
        .where(dialect.among(tx, jobs.c.schedule_id, schedule_ids), lost)
        .group_by(jobs.c.schedule_id)
    )
    return {id: Discard(jobs=count, events=events) for id, count, events in tx.execute(query)}


def with_discard(reason: str, discard: Discard | None) -> str:
    """Returns the reason of a change, with what was lost by it."""
    return reason if discard is None else f"{reason}; {discard}"
