"""Deferred arrivals: they wait for the code location, a match or a check."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.event_log.event import Event
from arctic_orchestration.event_log.feed import ArrivalLookup
from arctic_orchestration.schedules.arrival_rules import CountedArrivals
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.jobs import JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.target_partitions import Deferred, Match
from arctic_orchestration.schedules.targets import Targets
from arctic_orchestration.state import dialect
from arctic_orchestration.state.partition_tables import deferred_arrivals, event_of_arrival
from arctic_orchestration.state.tables import events, job_events, jobs

_REGROUPED = "its events are given to jobs of the target's partitions"
#: deferred arrivals for the code location that one transaction takes
_TAKEN_AT_ONCE = 4_000
#: newest arrivals without a partition, or before a check, that a deployment looks at again
_RETRIED_AT_ONCE = 10_000
_WAITS_FOR_CODE = sa.select(
    sa.exists().where(
        deferred_arrivals.c.location_id == sa.bindparam("of_location"),
        deferred_arrivals.c.waits_for == "code",
    )
)


def defer(
    tx: sa.Connection, location: Location, waiting: Sequence[tuple[Deferred, int]], now: datetime
) -> None:
    """Stores arrivals that no job gets yet, each with its number.

    One that is still unmatched keeps its age: the code is loaded again and again.
    """
    rows = [
        {
            "location_id": location.id,
            "schedule_id": one.match.stored.id,
            "leaf": one.match.leaf,
            "number": number,
            "waits_for": one.waits_for,
            "reason": one.reason,
            "at": (one.waits_for == "match" and one.match.deferred_at) or now,
        }
        for one, number in waiting
    ]
    if rows:
        new = dialect.insert(tx, deferred_arrivals)
        again = {name: new.excluded[name] for name in ("waits_for", "reason", "at")}
        keys = ["schedule_id", "leaf", "number"]
        tx.execute(new.on_conflict_do_update(index_elements=keys, set_=again), rows)


def take_deferred(
    tx: sa.Connection, location: Location, store: ScheduleStore, *, limit: int | None
) -> list[Match]:
    """Removes and returns the arrivals that waited for the code location."""
    # Queried at each tick, and nearly always empty.
    if not tx.execute(_WAITS_FOR_CODE, {"of_location": location.id}).scalar():
        return []
    kept = deferred_arrivals.c
    for_code = (kept.location_id == location.id) & (kept.waits_for == "code")
    ids = tx.execute(sa.select(kept.schedule_id).where(for_code).distinct()).scalars()
    # Those of a schedule that only another version of the package can read wait for it.
    readable = dialect.among(tx, kept.schedule_id, list(store.by_ids(tx, ids)))
    query = _kept(location).where(for_code, readable)
    return _take(tx, store, query.limit(min(limit or _TAKEN_AT_ONCE, _TAKEN_AT_ONCE)))


def take_checked(
    tx: sa.Connection, location: Location, store: ScheduleStore, evaluations: Iterable[Event]
) -> list[Match]:
    """Removes and returns the arrivals that waited for checks and that evaluations may concern.

    Those of other partitions of the asset stay: there may be many.
    """
    col, by_asset = events.c, defaultdict(set)
    for one in evaluations:
        by_asset[one.subject].add(one.partition)
    whole = [asset for asset, keys in by_asset.items() if None in keys]
    keys = {key for found in by_asset.values() for key in found if key is not None}
    query = _kept(location).where(
        deferred_arrivals.c.waits_for == "checks",
        dialect.among(tx, col.subject, sorted(by_asset)),
        dialect.among(tx, col.subject, whole) | dialect.among(tx, col.partition, sorted(keys)),
    )
    return _take(tx, store, query)


def unchecked(tx: sa.Connection, schedule_id: str, leaf: int) -> dict[str | None, int]:
    """Returns the partitions that have an arrival at a leaf waiting for checks, with its number.

    Of several such arrivals of a partition it is the last one.
    """
    kept = deferred_arrivals.c
    query = (
        sa.select(events.c.partition, sa.func.max(kept.number).label("number"))
        .join(deferred_arrivals, event_of_arrival)
        .where(kept.schedule_id == schedule_id, kept.leaf == leaf, kept.waits_for == "checks")
        .group_by(events.c.partition)
    )
    return {row.partition: row.number for row in tx.execute(query)}


def replace_waiting(tx: sa.Connection, matches: Sequence[Match]) -> set[int]:
    """Drops the arrivals that wait for checks and have the partition and data version of others.

    Returns the identities of those that replace one.
    """
    waits: dict[tuple[str, int], dict[str | None, int]] = {}
    found: set[int] = set()
    for match in matches:
        leaf, event = (match.stored.id, match.leaf), match.event
        if leaf not in waits:
            waits[leaf] = unchecked(tx, *leaf)
        if event.partition in waits[leaf] and _replace(tx, match):
            found.add(id(match))
    return found


def _replace(tx: sa.Connection, match: Match) -> bool:
    kept, event = deferred_arrivals.c, match.event
    query = (
        sa.select(kept.id, events.c.details)
        .join(events, event_of_arrival)
        .where(kept.schedule_id == match.stored.id, kept.leaf == match.leaf)
        .where(kept.waits_for == "checks", events.c.subject == event.subject)
        .where(events.c.partition.is_not_distinct_from(event.partition))
    )
    rows = tx.execute(query).all()
    ids = [row.id for row in rows if Event.parse(row.details).data_version == event.data_version]
    if ids:
        tx.execute(sa.delete(deferred_arrivals).where(dialect.among(tx, kept.id, ids)))
    return bool(ids)


def last_counted(
    tx: sa.Connection, schedule_id: str, scope: str, leaf: int, partitions: Iterable[str]
) -> dict[str, int]:
    """Returns the number of the last arrival of some partitions that jobs of a scope have."""
    query = (
        sa.select(job_events.c.partition, sa.func.max(job_events.c.number).label("number"))
        .join(jobs, jobs.c.id == job_events.c.job_id)
        .where(jobs.c.schedule_id == schedule_id, jobs.c.scope == scope, job_events.c.leaf == leaf)
        .where(dialect.among(tx, job_events.c.partition, sorted(partitions)))
        .group_by(job_events.c.partition)
    )
    return {row.partition: row.number for row in tx.execute(query)}


def _take(tx: sa.Connection, store: ScheduleStore, query: sa.Select[Any]) -> list[Match]:
    found = _matches(tx, store, query)
    if found:
        these = dialect.among(tx, deferred_arrivals.c.id, list(found))
        tx.execute(sa.delete(deferred_arrivals).where(these))
    return list(found.values())


def _matches(tx: sa.Connection, store: ScheduleStore, query: sa.Select[Any]) -> dict[int, Match]:
    """Returns kept arrivals by their ids, but for those of schedules that cannot be read."""
    found = tx.execute(query).all()
    stored = store.by_ids(tx, {row.schedule_id for row in found}) if found else {}
    parsed: dict[int, Event] = {}
    return {
        row.id: Match(
            event=parsed.setdefault(row.number, Event.parse(row.details)),
            stored=stored[row.schedule_id],
            leaf=row.leaf,
            number=row.number,
            deferred_at=row.at,
        )
        for row in found
        if row.schedule_id in stored
    }


def _kept(location: Location) -> sa.Select[Any]:
    kept = deferred_arrivals.c
    return (
        sa.select(kept.id, kept.schedule_id, kept.leaf, kept.number, kept.at, events.c.details)
        .join(events, event_of_arrival)
        .where(kept.location_id == location.id)
        .order_by(kept.number, kept.schedule_id, kept.leaf)
    )


def try_again(
    queue: JobQueue,
    location: Location,
    store: ScheduleStore,
    targets: Targets,
    lookup: ArrivalLookup,
) -> None:
    """Makes the next tick take what the code may decide otherwise now.

    These are unmatched arrivals, and those that no longer wait for a check: the code may have lost
    it, or it may block no more.
    """
    tx, kept = queue.tx, deferred_arrivals.c
    in_location = kept.location_id == location.id
    newest = (
        sa.select(kept.id)
        .where(in_location, kept.waits_for == "match")
        .order_by(kept.id.desc())
        .limit(_RETRIED_AT_ONCE)
    )
    ids = list(tx.execute(newest).scalars())
    unchecked = _kept(location).where(kept.waits_for == "checks").limit(_RETRIED_AT_ONCE)
    waiting = _matches(tx, store, unchecked.order_by(None).order_by(kept.id.desc()))
    if waiting:
        rules = CountedArrivals(lookup, targets, replacing=lambda _: ())
        counted = {id(match) for match in rules.sort(list(waiting.values()))[0]}
        ids += [number for number, match in waiting.items() if id(match) in counted]
    if ids:
        these = dialect.among(tx, kept.id, ids)
        tx.execute(sa.update(deferred_arrivals).where(these).values(waits_for="code"))
    _regroup(queue, location, store, targets, queue.now)


def _regroup(
    queue: JobQueue, location: Location, store: ScheduleStore, targets: Targets, now: datetime
) -> None:
    """Takes the events of jobs that wait for a whole target which turns out to have partitions.

    An earlier version of the package made these jobs, or the target was not partitioned then. The
    next tick gives the events to jobs of the partitions.
    """
    waiting = queue.load(
        jobs.c.location_id == location.id,
        jobs.c.waiting_for == "",
        jobs.c.scope.is_(None),
        jobs.c.state == JobState.WAITING_TRIGGER.value,
    )
    stored = store.by_ids(queue.tx, {job.schedule_id for job in waiting})
    for job in waiting:
        schedule = stored.get(job.schedule_id)
        if schedule is None or not schedule.is_scoped or not _has_partitions(targets, schedule):
            continue
        taken = sa.select(job_events.c.leaf, job_events.c.number)
        kept = [
            {
                "location_id": location.id,
                "schedule_id": job.schedule_id,
                "leaf": row.leaf,
                "number": row.number,
                "waits_for": "code",
                "reason": _REGROUPED,
                "at": now,
            }
            for row in queue.tx.execute(taken.where(job_events.c.job_id == job.id))
        ]
        if kept:
            new = dialect.insert(queue.tx, deferred_arrivals).on_conflict_do_nothing()
            queue.tx.execute(new, kept)
        queue.move(job, JobState.DISCARDED, _REGROUPED)
    queue.flush()


def _has_partitions(targets: Targets, stored: StoredSchedule) -> bool:
    if stored.schedule.partitions == "none":
        return True
    try:
        return targets.partitions(stored.schedule.target) is not None
    except Exception:
        return False


def forget(tx: sa.Connection, schedule_ids: Iterable[str]) -> None:
    """Drops the deferred arrivals of schedules whose waiting jobs are discarded."""
    these = dialect.among(tx, deferred_arrivals.c.schedule_id, list(schedule_ids))
    tx.execute(sa.delete(deferred_arrivals).where(these))
