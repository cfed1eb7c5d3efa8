"""A schedule decides beside Dagster's instigator, and launches nothing; see the package."""

from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules import control, suspension, timers
from arctic_orchestration.schedules.adoption.journal import Adoption, Boundary
from arctic_orchestration.schedules.adoption.place import Place
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.stored_schedule import ScheduleStatus, StoredSchedule
from arctic_orchestration.state import audit
from arctic_orchestration.state.audit import NO_ACTOR
from arctic_orchestration.state.partition_tables import schedule_partitions
from arctic_orchestration.state.tables import is_waiting, jobs, schedules

_WHY = "in the shadow of Dagster's own: it decides, and launches nothing"
_ENDED = "it is no longer in the shadow of Dagster's own"


def begin(
    tx: sa.Connection, place: Place, location: Location, schedule: Schedule, now: datetime
) -> Boundary:
    """Lets a suspended schedule decide from now on; returns where it begins.

    The location is locked, and every visible event was delivered.

    Errors:
        TransitionRefused: the schedule has jobs that wait for it to be resumed.
    """
    stored = control.stored_by_name(tx, place.state.store, location, schedule.name)
    waits = (jobs.c.schedule_id == stored.id) & is_waiting
    if tx.execute(sa.select(jobs.c.id).where(waits).limit(1)).first():
        raise TransitionRefused(
            f"schedule {stored.name} has collected jobs, which would be lost in shadow: cancel "
            "those of which Dagster has made the runs, and launch the others first (see: "
            "arctic jobs list)"
        )
    this = schedules.c.id == stored.id
    tx.execute(sa.update(schedules).where(this).values(counts_from=None, until_event=None))
    timers.stop(tx, stored.id)
    timers.start(tx, location, [(stored.id, stored.schedule)], now)
    set_status(tx, place, location, stored, ScheduleStatus.SHADOWED, "shadow", _WHY, now)
    return Boundary(at=now, event=place.last_delivered(location))


def end(
    tx: sa.Connection, place: Place, location: Location, adoption: Adoption, now: datetime
) -> None:
    """Suspends the schedule of a shadow, and forgets what it decided and has not ended."""
    stored = place.stored(tx, location, adoption)
    if stored is None or not stored.shadowed:
        return
    suspension.discard_waiting(tx, stored.id, _ENDED, now, actor=place.actor.name)
    timers.stop(tx, stored.id)
    mine = schedule_partitions.c.schedule_id == stored.id
    # Nothing of it has run: a partition that fired is still to be run.
    since = schedule_partitions.c.fired_at >= adoption.at
    tx.execute(sa.delete(schedule_partitions).where(mine, since))
    set_status(tx, place, location, stored, ScheduleStatus.SUSPENDED, "end shadow", _ENDED, now)


def set_status(
    tx: sa.Connection,
    place: Place,
    location: Location,
    stored: StoredSchedule,
    status: ScheduleStatus,
    action: str,
    reason: str,
    now: datetime,
) -> None:
    """Writes the status of a schedule, and who gave it in an adoption."""
    by = place.actor
    place.state.store.set_status(tx, location, stored, status, now, reason=reason, actor=by.name)
    if by is not NO_ACTOR:
        before, after = {"status": stored.status}, {"status": status}
        audit.record(
            tx, by, "schedules", action, stored.name,
            before=before, after=after, location=location.name,
        )  # fmt: skip
