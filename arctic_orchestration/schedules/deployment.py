"""Brings the schedules that the code declares into the store."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.notifications import outbox
from arctic_orchestration.notifications.outbox import News, Notice
from arctic_orchestration.schedules import deletions
from arctic_orchestration.schedules import location as locations
from arctic_orchestration.schedules.discarded_jobs import Discard
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import schedule_rows
from arctic_orchestration.schedules.schedule import Schedule, Target, digest
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import Origin, ScheduleStatus, StoredSchedule
from arctic_orchestration.schedules.suspension import discard_all_waiting


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployed:
    """What a deployment did."""

    #: of schedules: ``created``, ``updated``, ``deleted``, ``name_taken``, and ``kept_deleted``
    #: for those that a person deleted
    counts: Counter[str]
    #: sentences for the log: which arrivals were lost, and which declarations were left out
    remarks: tuple[str, ...]


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
) -> Deployed:
    """Makes the store agree with the code; with ``update_schedules`` false leaves it alone.

    True creates, updates and deletes what differs. An updated schedule keeps its status; its
    waiting job is discarded, because its trigger has changed. A declared schedule that was changed
    manually is set back.

    False changes nothing, except that it deletes declared schedules whose target is gone according
    to ``exists``.

    A schedule that a person deleted stays deleted until its declaration changes. Schedules made by
    hand are never touched; a declared schedule with the same name is left out, counted as
    ``name_taken`` and named in a remark.

    The arrivals of a changed or deleted schedule are lost with its waiting job: its history, a
    notice and a remark report the counts.
    """
    counts: Counter[str] = Counter()
    lost: dict[str, Discard] = {}
    taken: list[str] = []
    statuses: dict[str, ScheduleStatus] = {}
    actor = location.owner or ""
    if update_schedules:
        # A schedule that this version of the package cannot read is created again.
        unreadable = store.unreadable(tx, location.id)
        why = "this version could not read it"
        lost.update(store.remove(tx, location, list(unreadable), now, reason=why, actor=actor))
        statuses = dict(unreadable.values())
    stored = {old.name: old for old in store.in_location(tx, location.id)}
    of_code = [old for old in stored.values() if old.origin is Origin.CODE]
    if update_schedules:
        wanted = {schedule.name: schedule for schedule in declared}
        still_deleted = deletions.still_deleted(tx, location, wanted.values())
        wanted = {name: one for name, one in wanted.items() if name not in still_deleted}
        counts["kept_deleted"] += len(still_deleted)
        # Also one that this version cannot read, which is not among the stored ones.
        rows = schedule_rows(tx, location.id).values()
        taken = [row.name for row in rows if row.origin is not Origin.CODE and row.name in wanted]
        wanted = {name: one for name, one in wanted.items() if name not in taken}
        counts["name_taken"] += len(taken)
        counts.update(_write(tx, store, location, stored, wanted, statuses, now, lost))
        gone, why = [old.id for old in of_code if old.name not in wanted], "no longer declared"
        deletions.note_declared(tx, location, wanted.values())
    else:
        gone = [old.id for old in of_code if exists is not None and _is_gone(old, exists)]
        why = "its target is gone"
    lost.update(store.remove(tx, location, gone, now, reason=why, actor=actor))
    counts["deleted"] += len(gone)
    locations.update(tx, location, definitions_digest=definitions_digest)
    schedules = {**{old.name: old.schedule for old in of_code}, **{s.name: s for s in declared}}
    news = [
        News(
            event=Notice.JOB_DISCARDED,
            schedule=name,
            reason=f"the code location was deployed: {discard}",
            tags=schedules[name].tags if name in schedules else {},
        )
        for name, discard in sorted(lost.items())
    ]
    outbox.write(tx, location.id, news, now)
    remarks = [f"schedule {one.schedule}: {one.reason}" for one in news]
    remarks += [
        f"schedule {name}: it was created manually, and stays as it is: what the code declares "
        "under the name is left out"
        for name in taken
    ]
    return Deployed(counts=counts, remarks=tuple(remarks))


def _write(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    stored: dict[str, StoredSchedule],
    wanted: dict[str, Schedule],
    statuses: Mapping[str, ScheduleStatus],
    now: datetime,
    lost: dict[str, Discard],
) -> Counter[str]:
    counts: Counter[str] = Counter()
    actor = location.owner or ""
    new: list[Schedule] = []
    changed: list[tuple[StoredSchedule, Schedule]] = []
    for name, schedule in wanted.items():
        old = stored.get(name)
        if old is None:
            new.append(schedule)
        elif digest([old.schedule]) != digest([schedule]):
            changed.append((old, schedule))
    # A statement for each of thousands of schedules would exceed the timeout of a tick.
    ids, why = [old.id for old, _ in changed], "the schedule was updated"
    discarded = discard_all_waiting(tx, ids, why, now, actor=actor)
    lost.update((old.name, discarded[old.id]) for old, _ in changed if old.id in discarded)
    store.replace_all(tx, location, changed, now, reason="deployed", actor=actor, lost=discarded)
    counts["updated"] += len(changed)
    store.add(
        tx, location, new, Origin.CODE, now, reason="deployed", actor=actor, statuses=statuses
    )
    counts["created"] += len(new)
    return counts


def _is_gone(old: StoredSchedule, exists: Callable[[Target], bool]) -> bool:
    try:
        return not exists(old.schedule.target)
    except Exception:
        # A target that cannot be looked up at the moment is not gone.
        return False
