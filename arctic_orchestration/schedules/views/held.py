"""The jobs of a location that constraints hold, on one line."""

from dataclasses import dataclass

import sqlalchemy as sa

from arctic_orchestration.state.tables import in_state, is_waiting, jobs, locations, schedules

#: held jobs that are listed, and those that are counted
_NAMED, _COUNTED = 3, 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldJobs:
    """The number of held jobs, with the schedule and reason of the first of them."""

    count: int = 0
    #: (schedule name, reason of the hold), soonest check first
    first: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """``held 2: nightly (opens 22:00 UTC), hourly (1 of 1 running)``; empty without any."""
        if not self.count:
            return ""
        count = f"{self.count}" if self.count < _COUNTED else f"at least {_COUNTED}"
        named = ", ".join(f"{name} ({reason})" for name, reason in self.first)
        return f"held {count}: {named}" + (", …" if self.count > len(self.first) else "")


def held_jobs(tx: sa.Connection, cluster: str, location: str) -> HeldJobs:
    """Returns the jobs that have a satisfied trigger and are not admitted; costs two statements."""
    here = sa.select(locations.c.id).where(
        locations.c.cluster == cluster, locations.c.name == location
    )
    location_id = tx.execute(here).scalar()
    waiting = sa.and_(
        jobs.c.location_id == location_id, is_waiting, in_state("waiting_constraints")
    )
    some = sa.select(jobs.c.id).where(waiting).limit(_COUNTED)
    count = tx.execute(sa.select(sa.func.count()).select_from(some.subquery())).scalar_one()
    if not count:
        return HeldJobs()
    named = (
        sa.select(schedules.c.name, jobs.c.reason)
        .join(schedules, schedules.c.id == jobs.c.schedule_id)
        .where(waiting)
        .order_by(jobs.c.next_check_at, jobs.c.id)
        .limit(_NAMED)
    )
    first = tuple((row.name, row.reason) for row in tx.execute(named))
    return HeldJobs(count=count, first=first)
