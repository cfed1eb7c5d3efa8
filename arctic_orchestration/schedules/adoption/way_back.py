"""From a schedule of ours back to Dagster's instigator; see the package's docstring."""

from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.event_log.feed import Position
from arctic_orchestration.schedules import control, suspension, timers
from arctic_orchestration.schedules.adoption import journal, shadow
from arctic_orchestration.schedules.adoption.instigator import Instigator, stop
from arctic_orchestration.schedules.adoption.journal import Adoption, Boundary, Step
from arctic_orchestration.schedules.adoption.place import Place
from arctic_orchestration.schedules.jobs import COMMON
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.stored_schedule import Origin, ScheduleStatus, StoredSchedule
from arctic_orchestration.state.partition_tables import deferred_arrivals
from arctic_orchestration.state.tables import is_active, is_launching, is_waiting, jobs, schedules

_WHY = "handed back to Dagster"


def advance(place: Place, instigator: Instigator, adoption: Adoption) -> str | None:
    """Does the next step back, if it can be done; returns what it waits for, or None."""
    match adoption.step:
        case Step.SHADOWED:
            _end_shadow(place, adoption)
        case Step.PREPARED:
            return _undo(place, instigator, adoption)
        case Step.STOPPED:
            _note(place, adoption, Step.ENDED, adoption.boundary)
        case Step.ADOPTED:
            _end(place, instigator, adoption)
        case Step.ENDED:
            if adoption.was.is_running or adoption.boundary.event is not None:
                waits = instigator.start(adoption.boundary, adoption.was, place.clock())
                if waits is not None:
                    return waits
            _note(place, adoption, Step.HANDED_OVER, adoption.boundary)
        case Step.HANDED_OVER:
            return _finish(place, adoption)
    return None


def _end_shadow(place: Place, adoption: Adoption) -> None:
    with place.state.change() as (tx, location):
        current, now = journal.find(tx, location, adoption.name), place.clock()
        if current is None or current.step is not Step.SHADOWED:
            return
        shadow.end(tx, place, location, current, now)
        stored = place.stored(tx, location, current)
        if stored is not None:
            _put_away(tx, place, location, stored, current, now)
        journal.close(tx, location, current.name)


def _undo(place: Place, instigator: Instigator, adoption: Adoption) -> str | None:
    """Ends an adoption of which it is not known whether Dagster's instigator was stopped."""
    # A cut-over takes turns at this lock: it stops nothing of an adoption that has ended.
    with place.state.change() as (tx, location):
        current = journal.find(tx, location, adoption.name)
        if current is None or current.step is not Step.PREPARED:
            return None
        step, boundary = Step.HANDED_OVER, Boundary()
        if current.was.is_running and not instigator.status().is_running:
            # If a user has stopped it, it is stopped at a known place first.
            found = stop(instigator, place.clock)
            if isinstance(found, str):
                return found
            step, boundary = Step.ENDED, found
        journal.note(tx, location, adoption.name, step, boundary, place.clock())
    return None


def _note(place: Place, adoption: Adoption, step: Step, boundary: Boundary) -> None:
    with place.state.change() as (tx, location):
        current = journal.find(tx, location, adoption.name)
        if current is not None and current.step is adoption.step:
            journal.note(tx, location, adoption.name, step, boundary, place.clock())


def _end(place: Place, instigator: Instigator, adoption: Adoption) -> None:
    """Ends what the schedule takes at what was delivered, and due, by now."""
    with place.caught_up(ticks=True) as (tx, location, now):
        current = journal.find(tx, location, adoption.name)
        if current is None or current.step is not Step.ADOPTED:
            return
        stored = place.stored(tx, location, adoption)
        last, at = place.last_delivered(location), now
        if stored is not None:
            this = schedules.c.id == stored.id
            tx.execute(sa.update(schedules).where(this).values(until_event=last))
            # On a host whose clock is behind, ours has delivered a tick after now.
            at = max([now, *timers.delivered(tx, stored.id)])
            timers.stop(tx, stored.id)
        boundary = Boundary(at=at) if instigator.by_clock else Boundary(event=last)
        if not (current.was.is_running or _was_enabled(stored, current)):
            boundary = Boundary()
        journal.note(tx, location, adoption.name, Step.ENDED, boundary, now)


def _was_enabled(stored: StoredSchedule | None, adoption: Adoption) -> bool:
    """Returns whether a user has enabled the schedule of one that was off when it was adopted."""
    return stored is None or not stored.suspended or stored.status_at > adoption.at


def _finish(place: Place, adoption: Adoption) -> str | None:
    """Suspends or deletes the schedule, once it has launched all that it took."""
    with place.caught_up() as (tx, location, now):
        if journal.find(tx, location, adoption.name) is None:
            return None
        stored = place.stored(tx, location, adoption)
        if stored is not None:
            waits = _unfinished(tx, place, location, stored)
            if waits is not None:
                return waits
            _put_away(tx, place, location, stored, adoption, now)
        journal.close(tx, location, adoption.name)
    return None


def _unfinished(
    tx: sa.Connection, place: Place, location: Location, stored: StoredSchedule
) -> str | None:
    """Returns what a schedule that takes nothing new has still to do, or None."""
    until = stored.until_event
    if (
        until is not None
        and place.log.final_up_to(Position.from_json(location.position or "")) < until
    ):
        return f"events up to id {until} may still be committed by transactions that are open"
    mine = deferred_arrivals.c.schedule_id == stored.id
    waits = deferred_arrivals.c.waits_for.in_(("code", "checks"))
    if tx.execute(sa.select(deferred_arrivals.c.reason).where(mine, waits).limit(1)).first():
        return f"arrivals of {stored.name} wait for the next tick of its dispatcher, or for checks"
    open_ = (is_waiting | is_launching) & jobs.c.scope.is_distinct_from(COMMON)
    query = sa.select(jobs.c.id, jobs.c.reason).where(jobs.c.schedule_id == stored.id, open_)
    row = tx.execute(query.order_by(jobs.c.id).limit(1)).one_or_none()
    return None if row is None else f"job {row.id} of {stored.name} is not launched: {row.reason}"


def _put_away(
    tx: sa.Connection,
    place: Place,
    location: Location,
    stored: StoredSchedule,
    adoption: Adoption,
    now: datetime,
) -> None:
    store, active = place.state.store, (jobs.c.schedule_id == stored.id) & is_active
    # A user may have deleted the one that was created, and declared one of its name in the code.
    is_ours = adoption.created and stored.origin is not Origin.CODE
    if is_ours and not tx.execute(sa.select(jobs.c.id).where(active).limit(1)).first():
        control.delete(tx, store, location, stored.name, now, reason=_WHY, actor=place.actor)
        return
    suspension.discard_waiting(tx, stored.id, _WHY, now, actor=place.actor.name)
    this = schedules.c.id == stored.id
    tx.execute(sa.update(schedules).where(this).values(until_event=None))
    if not stored.suspended:
        to = ScheduleStatus.SUSPENDED
        shadow.set_status(tx, place, location, stored, to, "hand back", _WHY, now)
