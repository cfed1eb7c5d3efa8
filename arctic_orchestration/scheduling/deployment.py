"""Brings the schedules that the code declares into the store."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.scheduling import location as locations
from arctic_orchestration.scheduling.location import Location
from arctic_orchestration.scheduling.schedule import Schedule
from arctic_orchestration.scheduling.store import Origin, ScheduleStore
from arctic_orchestration.scheduling.suspension import discard_waiting


def deploy(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    declared: Sequence[Schedule],
    definitions_digest: str,
    now: datetime,
) -> Counter[str]:
    """Creates, updates and deletes what differs, and leaves the rest alone.

    The status of a schedule that is updated is kept; its waiting job is discarded, since what
    it waited for is no longer asked for. Schedules that were made by hand are not touched.

    Returns the counts ``created``, ``updated`` and ``deleted``.
    """
    counts: Counter[str] = Counter()
    # What another version of the package wrote and this one cannot read is made anew.
    store.remove(tx, location, store.unreadable(tx, location.id), now)
    stored = {old.name: old for old in store.in_location(tx, location.id)}
    wanted = {schedule.name: schedule for schedule in declared}
    new: list[Schedule] = []
    for name, schedule in wanted.items():
        old = stored.get(name)
        if old is None:
            new.append(schedule)
        elif old.origin is Origin.CODE and old.schedule != schedule:
            discard_waiting(tx, old.id, "the schedule was updated", now)
            store.replace(tx, location, old, schedule, now)
            counts["updated"] += 1
    store.add(tx, location, new, Origin.CODE, now)
    counts["created"] += len(new)
    gone = [
        old.id for name, old in stored.items() if old.origin is Origin.CODE and name not in wanted
    ]
    if gone:
        store.remove(tx, location, gone, now)
        counts["deleted"] += len(gone)
    locations.update(tx, location, definitions_digest=definitions_digest)
    return counts
