"""Brings the schedules that the code declares into the store."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.scheduling import location as locations
from arctic_orchestration.scheduling.location import Location
from arctic_orchestration.scheduling.schedule import Schedule, Target, digest
from arctic_orchestration.scheduling.store import (
    Origin,
    ScheduleStatus,
    ScheduleStore,
    StoredSchedule,
)
from arctic_orchestration.scheduling.suspension import discard_waiting


def deploy(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    declared: Sequence[Schedule],
    definitions_digest: str,
    now: datetime,
    *,
    update_schedules: bool = True,
    exists: Callable[[Target], bool] | None = None,
) -> Counter[str]:
    """Makes the store agree with the code, or with ``update_schedules`` false leaves it alone.

    True creates, updates and deletes what differs. The status of a schedule that is updated is
    kept; its waiting job is discarded, since what it waited for is no longer asked for. A
    schedule of the code that was changed by hand is set back.

    False changes nothing, except that schedules of the code whose target is gone, as
    ``exists`` says, are deleted.

    Schedules that were made by hand are not touched by either; a declared one whose name they
    have is left out, and counted as ``name_taken``.

    Returns the counts ``created``, ``updated``, ``deleted`` and ``name_taken``.
    """
    counts: Counter[str] = Counter()
    statuses: dict[str, ScheduleStatus] = {}
    if update_schedules:
        # What another version of the package wrote and this one cannot read is made anew.
        unreadable = store.unreadable(tx, location.id)
        store.remove(tx, location, list(unreadable), now, reason="this version could not read it")
        statuses = dict(unreadable.values())
    stored = {old.name: old for old in store.in_location(tx, location.id)}
    of_code = [old for old in stored.values() if old.origin is Origin.CODE]
    if update_schedules:
        wanted = {schedule.name: schedule for schedule in declared}
        counts.update(_write(tx, store, location, stored, wanted, statuses, now))
        gone = [old.id for old in of_code if old.name not in wanted]
        store.remove(tx, location, gone, now, reason="no longer declared")
    else:
        gone = [old.id for old in of_code if exists is not None and _is_gone(old, exists)]
        store.remove(tx, location, gone, now, reason="its target is gone")
    counts["deleted"] += len(gone)
    locations.update(tx, location, definitions_digest=definitions_digest)
    return counts


def _write(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    stored: dict[str, StoredSchedule],
    wanted: dict[str, Schedule],
    statuses: Mapping[str, ScheduleStatus],
    now: datetime,
) -> Counter[str]:
    counts: Counter[str] = Counter()
    new: list[Schedule] = []
    for name, schedule in wanted.items():
        old = stored.get(name)
        if old is None:
            new.append(schedule)
        elif old.origin is not Origin.CODE:
            counts["name_taken"] += 1
        elif digest([old.schedule]) != digest([schedule]):
            discard_waiting(tx, old.id, "the schedule was updated", now)
            store.replace(tx, location, old, schedule, now, reason="deployed")
            counts["updated"] += 1
    store.add(tx, location, new, Origin.CODE, now, reason="deployed", statuses=statuses)
    counts["created"] += len(new)
    return counts


def _is_gone(old: StoredSchedule, exists: Callable[[Target], bool]) -> bool:
    try:
        return not exists(old.schedule.target)
    except Exception:
        # A target that cannot be looked up at the moment is not gone.
        return False
