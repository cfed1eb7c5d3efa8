"""From Dagster's instigator to a schedule of ours; see the package's docstring."""

from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.errors import TransitionRefused
from arctic_orchestration.schedules import (
    control,
    deferred_arrivals,
    fired_partitions,
    suspension,
    timers,
)
from arctic_orchestration.schedules.adoption import journal, shadow
from arctic_orchestration.schedules.adoption.instigator import Instigator, stop
from arctic_orchestration.schedules.adoption.journal import Adoption, Boundary, Step
from arctic_orchestration.schedules.adoption.place import Place
from arctic_orchestration.schedules.discarded_jobs import with_discard
from arctic_orchestration.schedules.location import Location, update
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_history import Action
from arctic_orchestration.schedules.stored_schedule import Origin, StoredSchedule
from arctic_orchestration.schedules.taken_events import store_events
from arctic_orchestration.schedules.target_partitions import Deferred, Match
from arctic_orchestration.state.tables import schedule_history, schedules

#: events of the log in one reading
_AT_ONCE = 4_000
_EARLIER = "it arrived before its schedule was adopted, and no tick of Dagster took it"
_COLLECTED = "it was collected before the schedule was adopted, while Dagster made the runs"
#: begins the reason of each version that an adoption makes
_MADE = "adopted from Dagster's "


def prepare(
    place: Place,
    instigator: Instigator,
    schedule: Schedule,
    *,
    shadowed: bool = False,
    hooked: bool = False,
) -> Adoption:
    """Begins an adoption, or returns the one that was begun before.

    The schedule is created, suspended. One of its name that exists, and is suspended, is taken as
    it is: it may have constraints, or be declared in code. ``shadowed``: it decides from now on,
    beside Dagster's, and launches nothing; without, this ends. ``hooked``: it has a request hook,
    which is called for a schedule of the code alone.

    Errors:
        TransitionRefused: the schedule exists and is enabled, or the adoption is on its way back,
            or it is to be shadowed and is cut over already, or its schedule was deleted since, or
            the schedule needs its hook and is none of the code.
        InvalidDefinition: the schedule does not fit to the code location.
    """
    status = instigator.status()
    with place.caught_up() as (tx, location, now):
        known = journal.find(tx, location, instigator.name)
        if known is not None and known.step.is_on_the_way_back:
            raise TransitionRefused(
                f"{instigator.name} is on its way back to Dagster: finish that first, with "
                f"arctic adopt --back {instigator.name}"
            )
        store = place.state.store
        stored = {one.name: one for one in store.in_location(tx, location.id)}
        made = None if known is None else stored.get(known.schedule)
        if known is not None and known.step is Step.SHADOWED and not (made and made.shadowed):
            # Its schedule was deleted. Dagster's was never stopped: a shadow begins anew.
            journal.close(tx, location, known.name)
            known = None
        if known is not None and made is None:
            raise TransitionRefused(
                f"schedule {known.schedule}, to which {instigator.name} was cut over, was deleted: "
                f"hand it back first, with arctic adopt --back {instigator.name}"
            )
        if known is not None and shadowed and known.step is not Step.SHADOWED:
            raise TransitionRefused(
                f"{instigator.name} is cut over already ({known.step}): hand it back first, with "
                f"arctic adopt --back {instigator.name}"
            )
        if known is not None and (shadowed or known.step is Step.ADOPTED):
            return known
        if known is not None:
            _refuse_without_hook(tx, place, location, known.schedule, hooked=hooked)
            if made and made.name == schedule.name and _is_unedited(tx, location, made):
                _make(tx, place, location, instigator, schedule, now)
            shadow.end(tx, place, location, known, now)
            if known.step is Step.SHADOWED or (known.step is Step.PREPARED and status.is_running):
                # It may have been off when the cut-over was prepared.
                journal.note(tx, location, known.name, Step.PREPARED, Boundary(), now, was=status)
            return journal.find(tx, location, known.name) or known
        other = journal.of_schedule(tx, location, schedule.name)
        if other is not None:
            raise TransitionRefused(
                f"schedule {schedule.name} is that of Dagster's {other}: two of Dagster's cannot "
                f"become one. Rename {instigator.name}, or hand the other back"
            )
        found = stored.get(schedule.name)
        if found is not None and not found.suspended:
            raise TransitionRefused(
                f"schedule {schedule.name} is enabled already: {instigator.name} and the schedule "
                "would both make runs. Suspend or rename the schedule first"
            )
        # It may be left from an adoption that was handed back while it had runs.
        is_ours = found is None or _is_unedited(tx, location, found)
        if is_ours:
            _make(tx, place, location, instigator, schedule, now)
        _refuse_without_hook(tx, place, location, schedule.name, hooked=hooked)
        adoption = Adoption(
            name=instigator.name,
            schedule=schedule.name,
            step=Step.SHADOWED if shadowed else Step.PREPARED,
            was=status,
            created=is_ours,
            boundary=shadow.begin(tx, place, location, schedule, now) if shadowed else Boundary(),
            at=now,
        )
        journal.begin(tx, location, adoption)
        return adoption


def _is_unedited(tx: sa.Connection, location: Location, stored: StoredSchedule) -> bool:
    """Returns whether adoptions alone have written a schedule: no user and no code."""
    col = schedule_history.c
    versions = (col.schedule_id == stored.id) & col.action.in_([Action.CREATED, Action.UPDATED])
    of_name = (col.location_id == location.id) & (col.name == stored.name)
    reasons = tx.execute(sa.select(col.reason).where(of_name, versions)).scalars().all()
    return bool(reasons) and all(reason.startswith(_MADE) for reason in reasons)


def _make(
    tx: sa.Connection,
    place: Place,
    location: Location,
    instigator: Instigator,
    schedule: Schedule,
    now: datetime,
) -> None:
    """Creates the schedule, suspended, or makes it what Dagster's definition is by now."""
    off, why = schedule.model_copy(update={"enabled": False}), f"{_MADE}{instigator.name}"
    control.apply(tx, place.state.store, location, [off], now, reason=why, actor=place.actor)


def _refuse_without_hook(
    tx: sa.Connection, place: Place, location: Location, name: str, *, hooked: bool
) -> None:
    stored = control.stored_by_name(tx, place.state.store, location, name)
    if hooked and stored.origin is not Origin.CODE:
        raise TransitionRefused(
            f"schedule {name} is not that of the code, whose function decides about each run. "
            "Delete it if it exists, deploy the code, and let the dispatcher tick once"
        )


def advance(place: Place, instigator: Instigator, adoption: Adoption) -> str | None:
    """Does the next step, if it can be done; returns what it waits for, or None."""
    if adoption.step is Step.PREPARED:
        return _stop(place, instigator, adoption)
    if adoption.step is Step.STOPPED:
        _begin(place, adoption)
    return None


def _stop(place: Place, instigator: Instigator, adoption: Adoption) -> str | None:
    # A way back takes turns at this lock: it undoes nothing that is stopped after that.
    with place.state.change() as (tx, location):
        current = journal.find(tx, location, adoption.name)
        if current is None or current.step is not Step.PREPARED:
            return None
        boundary = Boundary()
        if current.was.is_running:
            found = stop(instigator, place.clock)
            if isinstance(found, str):
                return found
            boundary = found
        else:
            instigator.hold(place.clock())
        journal.note(tx, location, adoption.name, Step.STOPPED, boundary, place.clock())
    return None


def _begin(place: Place, adoption: Adoption) -> None:
    with place.caught_up() as (tx, location, now):
        current = journal.find(tx, location, adoption.name)
        if current is None or current.step is not Step.STOPPED:
            return
        # Before its last step a schedule cannot be enabled.
        journal.note(tx, location, adoption.name, Step.ADOPTED, current.boundary, now)
        if current.was.is_running:
            stored = control.stored_by_name(tx, place.state.store, location, adoption.schedule)
            _enable(tx, place, location, stored, current.boundary, now)


def _enable(
    tx: sa.Connection,
    place: Place,
    location: Location,
    stored: StoredSchedule,
    boundary: Boundary,
    now: datetime,
) -> None:
    this = schedules.c.id == stored.id
    tx.execute(sa.update(schedules).where(this).values(counts_from=None, until_event=None))
    if boundary.at is not None:
        timers.stop(tx, stored.id)
        timers.start(tx, location, [(stored.id, stored.schedule)], boundary.at)
    store, why = place.state.store, "adopted: it begins where Dagster stopped"
    if not stored.launches:
        # Dagster has run what it collected; what is above the boundary is given to it below, and
        # its partition must not seem to have run.
        fired_partitions.forget_waiting(tx, [stored.id])
        lost = suspension.discard_waiting(tx, stored.id, _COLLECTED, now, actor=place.actor.name)
        why = with_discard(why, lost)
    control.enable(tx, store, location, stored.name, now, reason=why, actor=place.actor)
    if boundary.event is not None:
        _give_earlier(tx, place, location, stored, boundary.event, now)


def _give_earlier(
    tx: sa.Connection,
    place: Place,
    location: Location,
    stored: StoredSchedule,
    above: int,
    now: datetime,
) -> None:
    """Gives a schedule the events above an id that the location's feed has delivered."""
    final, later = place.delivered(location)
    position, more = place.log.before(above + 1), True
    next_event = location.next_event
    while more:
        batch = place.log.read(position, _AT_ONCE)
        position, more = batch.position, batch.more
        matches = [
            Match(event=event, stored=stored, leaf=number)
            for event in batch.events
            if event.storage_id <= final or event.storage_id in later
            for number, leaf in enumerate(stored.leaves)
            if set(leaf.keys(location.name)) & set(event.keys) and leaf.takes(event)
        ]
        numbers, next_event = store_events(tx, location, matches, next_event, now)
        waiting = [
            (Deferred(match=match, waits_for="code", reason=_EARLIER), numbers[id(match.event)])
            for match in matches
        ]
        deferred_arrivals.defer(tx, location, waiting, now)
    update(tx, location, next_event=next_event)
