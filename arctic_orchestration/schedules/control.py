"""Manual changes of schedules, each in one transaction of a locked location.

The caller begins the transaction and locks the location (:func:`~.location.locked`), so that no
dispatcher works on it meanwhile. An exception must end the transaction; nothing is changed then.
After a failed transaction, call :meth:`~.store.ScheduleStore.forget` on a store that is kept.

Each change of a person is recorded in the audit log, in the same transaction.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidDefinition, InvalidInput, TransitionRefused
from arctic_orchestration.schedules import cycles, deletions, suspension
from arctic_orchestration.schedules.adoption.journal import Step
from arctic_orchestration.schedules.inventory import inventories, job_assets
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import schedule_by_name, schedule_rows
from arctic_orchestration.schedules.mismatches import Mismatch, mismatches
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_diff import Difference, differences
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import Origin, ScheduleStatus, StoredSchedule
from arctic_orchestration.state import audit
from arctic_orchestration.state.adoption_tables import adoptions
from arctic_orchestration.state.audit import NO_ACTOR, Actor

MANUALLY = "manually"


def compare(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    wanted: Sequence[Schedule],
    *,
    prune: bool = False,
) -> Difference:
    """Returns what :func:`apply` would do.

    Errors:
        InvalidDefinition: a name occurs twice; or a new or changed schedule has a target, or
            listens to runs, that the code location lacks, or closes an endless cycle.
    """
    names = [schedule.name for schedule in wanted]
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise InvalidDefinition([InvalidInput("name", name, "a name used once") for name in twice])
    stored = store.in_location(tx, location.id)
    readable = {old.name for old in stored}
    unreadable = [
        row for name, row in schedule_rows(tx, location.id).items() if name not in readable
    ]
    # Dagster's own is stopped: without its schedule nothing would run.
    adopted = sa.select(adoptions.c.schedule).where(adoptions.c.location_id == location.id)
    kept = tx.execute(adopted).scalars().all() if prune else ()
    difference = differences(stored, wanted, unreadable=unreadable, prune=prune, kept=kept)
    changed = {one.name for one in difference.created}
    changed |= {change.name for change in difference.updated}
    problems = [
        unknown.problem
        for unknown in _unknown(tx, location, [one for one in wanted if one.name in changed])
        if unknown.refused
    ]
    together = _together(stored, wanted, difference.deleted)
    made = job_assets(tx, location) if changed else {}
    problems.extend(cycles.problems(together, location.name, made, through=changed))
    if problems:
        raise InvalidDefinition(problems)
    return difference


def _together(
    stored: Sequence[StoredSchedule], wanted: Sequence[Schedule], deleted: Collection[str]
) -> list[Schedule]:
    """Returns the schedules of a location together with the wanted ones."""
    by_name = {old.name: old.schedule for old in stored if old.name not in deleted}
    return list({**by_name, **{schedule.name: schedule for schedule in wanted}}.values())


def remarks(
    tx: sa.Connection, store: ScheduleStore, location: Location, wanted: Sequence[Schedule]
) -> list[str]:
    """Returns remarks for people: cycles, and what does not match the code but is not refused."""
    together = _together(store.in_location(tx, location.id), wanted, ())
    names = {schedule.name for schedule in wanted}
    found = cycles.cycles(together, location.name, job_assets(tx, location), through=names)
    in_cycles = [str(cycle) for cycle in found if names & set(cycle.names)]
    if location.name not in inventories(tx, location.cluster):
        text = (
            f"names were not checked: the code of {location.name} is not known yet. The first tick "
            "of its dispatcher makes it known"
        )
        return [*in_cycles, text]
    unknown = _unknown(tx, location, wanted)
    return in_cycles + [str(name.problem) for name in unknown if not name.refused]


def _unknown(tx: sa.Connection, location: Location, wanted: Sequence[Schedule]) -> list[Mismatch]:
    known = inventories(tx, location.cluster) if wanted else {}
    return [
        unknown for schedule in wanted for unknown in mismatches(schedule, location.name, known)
    ]


def apply(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    wanted: Sequence[Schedule],
    now: datetime,
    *,
    prune: bool = False,
    reason: str = MANUALLY,
    actor: Actor = NO_ACTOR,
) -> Difference:
    """Creates the schedules that are new and updates those that differ, whatever their origin.

    Unchanged schedules are left alone. An updated schedule keeps its status, and its waiting jobs
    are discarded. A schedule that this version of the package cannot read is created again.
    ``prune`` deletes schedules that were created manually and are not wanted; declared ones stay,
    and adopted ones.

    Returns what was done.

    Errors:
        InvalidDefinition: as :func:`compare`; nothing was changed.
    """
    difference = compare(tx, store, location, wanted, prune=prune)
    by_name = {schedule.name: schedule for schedule in wanted}
    stored = {old.name: old for old in store.in_location(tx, location.id)}
    rows = schedule_rows(tx, location.id)
    changed = []
    for change in difference.updated:
        if change.problem is not None:
            gone = [rows[change.name].id]
            why = "this version could not read it"
            store.remove(tx, location, gone, now, reason=why, actor=actor.name)
            store.add(
                tx,
                location,
                [by_name[change.name]],
                change.origin,
                now,
                reason=reason,
                actor=actor.name,
                statuses={change.name: ScheduleStatus(rows[change.name].status)},
            )
            continue
        changed.append((stored[change.name], by_name[change.name]))
    ids, why = [old.id for old, _ in changed], "the schedule was updated"
    lost = suspension.discard_all_waiting(tx, ids, why, now, actor=actor.name)
    store.replace_all(tx, location, changed, now, reason=reason, actor=actor.name, lost=lost)
    # A declared schedule that a person deleted belongs to the code again.
    back = deletions.restored(tx, location, [one.name for one in difference.created])
    for origin in Origin:
        of_code = origin is Origin.CODE
        new = [one for one in difference.created if (one.name in back) == of_code]
        store.add(tx, location, new, origin, now, reason=reason, actor=actor.name)
    gone = [rows[name].id for name in difference.deleted]
    store.remove(tx, location, gone, now, reason=reason, actor=actor.name)
    forms = {name: old.schedule.to_form() for name, old in stored.items()}
    for schedule in difference.created:
        _record(tx, location, actor, "create", schedule.name, None, schedule.to_form())
    for change in difference.updated:
        before, after = forms.get(change.name), by_name[change.name].to_form()
        _record(tx, location, actor, "update", change.name, before, after)
    for name in difference.deleted:
        _record(tx, location, actor, "delete", name, forms.get(name), None)
    return difference


def update(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    schedule: Schedule,
    now: datetime,
) -> Difference:
    """Gives the schedule with this name a new version; an equal definition changes nothing.

    Errors:
        NotFound: no schedule has the name; lists similar names.
    """
    schedule_by_name(tx, location, schedule.name)
    return apply(tx, store, location, [schedule], now, reason=MANUALLY)


def delete(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    name: str,
    now: datetime,
    *,
    reason: str = MANUALLY,
    actor: Actor = NO_ACTOR,
) -> None:
    """Deletes a schedule with its jobs; active runs go on and still count.

    A declared schedule stays deleted until its definition in the code changes.

    Errors:
        NotFound: no schedule has the name; lists similar names.
    """
    row = schedule_by_name(tx, location, name)
    old = store.by_ids(tx, [row.id]).get(row.id)
    if row.origin is Origin.CODE:
        deletions.note(tx, location, row.id)
    store.remove(tx, location, [row.id], now, reason=reason, actor=actor.name)
    form = old.schedule.to_form() if old is not None else None
    _record(tx, location, actor, "delete", name, form, None)


def enable(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    name: str,
    now: datetime,
    *,
    reason: str = MANUALLY,
    actor: Actor = NO_ACTOR,
) -> bool:
    """Enables a schedule from now on; returns whether it was suspended.

    Errors:
        NotFound: no schedule has the name; lists similar names.
        TransitionRefused: this version of the package cannot read it, or it is in shadow, or a
            cut-over of Dagster's own to it has not ended.
    """
    stored = _not_shadowed(stored_by_name(tx, store, location, name))
    _refuse_in_cut_over(tx, location, name)
    done = suspension.resume(tx, store, location, stored, now, reason=reason, actor=actor.name)
    if done:
        after = ScheduleStatus.ENABLED
        _record(tx, location, actor, "enable", name, {"status": stored.status}, {"status": after})
    return done


def suspend(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    name: str,
    now: datetime,
    *,
    reason: str = MANUALLY,
    actor: Actor = NO_ACTOR,
) -> bool:
    """Suspends a schedule as its ``suspend_mode`` says; returns whether it was enabled.

    Errors:
        NotFound: no schedule has the name; lists similar names.
        TransitionRefused: this version of the package cannot read it, or it is in shadow.
    """
    stored = _not_shadowed(stored_by_name(tx, store, location, name))
    done = suspension.suspend(tx, store, location, stored, now, reason=reason, actor=actor.name)
    if done:
        after = ScheduleStatus.SUSPENDED
        _record(tx, location, actor, "suspend", name, {"status": stored.status}, {"status": after})
    return done


def stored_by_name(
    tx: sa.Connection, store: ScheduleStore, location: Location, name: str
) -> StoredSchedule:
    """Returns the schedule with a name, parsed.

    Errors:
        NotFound: no schedule has the name; lists similar names.
        TransitionRefused: this version of the package cannot read it.
    """
    row = schedule_by_name(tx, location, name)
    stored = store.by_ids(tx, [row.id]).get(row.id)
    if stored is None:
        raise TransitionRefused(
            f"Schedule {name} was written by another version of the package and cannot be read "
            f"({row.problem or 'no reason noted'}). Update or delete it"
        )
    return stored


def _not_shadowed(stored: StoredSchedule) -> StoredSchedule:
    if stored.shadowed:
        raise TransitionRefused(
            f"Schedule {stored.name} decides in the shadow of Dagster's own, which launches the "
            "runs: end that with arctic adopt --cut-over or --stop-shadow"
        )
    return stored


def _refuse_in_cut_over(tx: sa.Connection, location: Location, name: str) -> None:
    """Refuses to enable a schedule that a cut-over enables where Dagster's own stopped."""
    begun = adoptions.c.step.in_([Step.PREPARED.value, Step.STOPPED.value])
    this = (adoptions.c.location_id == location.id) & (adoptions.c.schedule == name)
    theirs = tx.execute(sa.select(adoptions.c.name).where(this, begun)).scalar()
    if theirs is not None:
        raise TransitionRefused(
            f"Schedule {name} is taking over from Dagster's own. Go on with that: "
            f"arctic adopt --cut-over {theirs}"
        )


def _record(
    tx: sa.Connection,
    location: Location,
    actor: Actor,
    action: str,
    name: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> None:
    """Records the change of a schedule; the simulator's changes have no author."""
    if actor is not NO_ACTOR:
        place = location.name
        audit.record(
            tx, actor, "schedules", action, name, before=before, after=after, location=place
        )
