"""The resources that active runs hold: their targets and groups.

Nothing is counted up or down. The holders of a resource are read from the rows of live jobs and
runs, under the lock of the resource's row, so a permit can neither leak nor be released twice.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.schedules.location import Location
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import (
    holders,
    is_active,
    is_constrained,
    jobs,
    launches,
    locations,
    resources,
    run_ends,
    runs,
)

#: The most urgent jobs that a release wakes. Thousands may wait for one slot; the others are
#: checked again at their next check.
_WOKEN_AT_ONCE = 100
#: The prefix of group names; all other resources are targets.
GROUP = "group:"
#: of the targets of a place
TARGET_PREFIXES = ("job:{}/".format, "asset:{}/".format)


def lock(tx: sa.Connection, names: Iterable[str]) -> None:
    """Locks the rows of resources until the transaction ends, always in the same order."""
    ordered = sorted(set(names))
    if not ordered or not dialect.has_row_locks(tx):
        return
    new = dialect.insert(tx, resources).on_conflict_do_nothing()
    tx.execute(new, [{"name": name} for name in ordered])
    wanted = dialect.among(tx, resources.c.name, ordered)
    query = sa.select(resources.c.name).where(wanted).order_by(resources.c.name)
    tx.execute(query.with_for_update())


def of_location(
    tx: sa.Connection, resource: sa.ColumnElement[str], location: Location
) -> sa.ColumnElement[bool]:
    """Returns the condition that a resource is a target of a location.

    Those of a location whose name goes on after a slash, as ``lake/prod`` after ``lake``, are not.
    """
    others = sa.select(locations.c.name).where(
        locations.c.cluster == location.cluster, locations.c.id != location.id
    )
    names = tx.execute(others).scalars()
    below = [name for name in names if name.startswith(f"{location.name}/")]
    return sa.or_(
        *(
            sa.and_(
                begins(resource, prefix(location.place)),
                *(~begins(resource, prefix(f"{location.cluster}/{name}")) for name in below),
            )
            for prefix in TARGET_PREFIXES
        )
    )


def begins(text: sa.ColumnElement[str], prefix: str) -> sa.ColumnElement[bool]:
    """Returns the condition that a text begins with a prefix; SQLite's LIKE ignores the case."""
    return sa.func.substr(text, 1, len(prefix)) == prefix


def holders_of(tx: sa.Connection, names: Iterable[str]) -> dict[str, set[str]]:
    """Returns the live jobs and runs that hold each of the resources."""
    wanted = {"names": dialect.given(tx, sorted(set(names)))}
    held = defaultdict(set)
    for resource, holder in tx.execute(_holders(tx.dialect.name), wanted):
        held[resource].add(holder)
    return held


def launches_of(
    tx: sa.Connection, names: Iterable[str], since: datetime
) -> dict[str, dict[str, datetime]]:
    """Returns the launches of the holders of each resource after ``since``."""
    query = sa.select(launches.c.resource, launches.c.holder, launches.c.at).where(
        dialect.among(tx, launches.c.resource, sorted(set(names))), launches.c.at > since
    )
    found: dict[str, dict[str, datetime]] = defaultdict(dict)
    for resource, holder, at in tx.execute(query):
        found[resource][holder] = at
    return found


def last_ends(tx: sa.Connection, names: Iterable[str]) -> dict[tuple[str, str], datetime]:
    """Returns when the last run of each resource ended, by resource and status of the run.

    Read after :func:`holders_of`: a run that ends in between is then active or ended, never
    neither.
    """
    wanted = dialect.among(tx, run_ends.c.resource, sorted(set(names)))
    query = sa.select(run_ends.c.resource, run_ends.c.status, run_ends.c.ended_at).where(wanted)
    return {(resource, status): at for resource, status, at in tx.execute(query)}


def acquire(
    tx: sa.Connection,
    location_id: int,
    rows: Iterable[tuple[str, str, datetime | None]],
) -> None:
    """Records that holders have resources: resource, holder and launch time.

    Without a launch time, or for a known one, no launch is recorded.
    """
    given = list(rows)
    if not given:
        return
    values = [
        {"resource": resource, "holder": holder, "location_id": location_id}
        for resource, holder, _ in given
    ]
    tx.execute(_unless_there(tx.dialect.name, holders), values)
    begun = [
        {"resource": resource, "holder": holder, "at": at}
        for resource, holder, at in given
        if at is not None
    ]
    if begun:
        tx.execute(_unless_there(tx.dialect.name, launches), begun)


def hand_over(tx: sa.Connection, location_id: int, to: Mapping[str, str], now: datetime) -> None:
    """Gives the resources of some holders to runs, which then are active runs without a job.

    ``to`` gives the run of each holder. Holders without resources, or of another location, are
    skipped.
    """
    query = sa.select(holders.c.resource, holders.c.holder).where(
        dialect.among(tx, holders.c.holder, sorted(to)), holders.c.location_id == location_id
    )
    held = tx.execute(query).all()
    if not held:
        return
    found = sorted({row.holder for row in held})
    tx.execute(_let_go(tx.dialect.name), {"holders": dialect.given(tx, found)})
    tx.execute(sa.delete(runs).where(dialect.among(tx, runs.c.run_id, found)))
    rows = [
        {"location_id": location_id, "run_id": run_id, "seen_at": now}
        for run_id in sorted({to[holder] for holder in found})
    ]
    tx.execute(dialect.insert(tx, runs).on_conflict_do_nothing(), rows)
    acquire(tx, location_id, [(row.resource, to[row.holder], None) for row in held])


def release(
    tx: sa.Connection,
    held_by: Iterable[str],
    now: datetime,
    ended: Mapping[str, tuple[str, datetime]],
) -> int:
    """Releases all resources of holders and wakes the jobs that wait for one of them.

    ``ended`` gives the end status and time of holders that were runs. Returns how many jobs were
    woken.
    """
    backend = tx.dialect.name
    these = {"holders": dialect.given(tx, sorted(set(held_by)))}
    held = tx.execute(_held_by(backend), these).all()
    freed = {row.resource for row in held}
    if not freed:
        return 0
    tx.execute(_let_go(backend), these)
    _note_ends(tx, [(row.resource, *ended[row.holder]) for row in held if row.holder in ended])
    # A job locked by another location's dispatcher is left to its next check: two dispatchers that
    # wake each other's jobs would wait for each other.
    wanted = {"names": dialect.given(tx, sorted(freed))}
    ids = list(tx.execute(_waiting_for(backend), wanted).scalars())
    if ids:
        woken = sa.update(jobs).where(dialect.among(tx, jobs.c.id, ids))
        tx.execute(woken.values(next_check_at=now))
    return len(ids)


def _note_ends(tx: sa.Connection, ends: Iterable[tuple[str, str, datetime]]) -> None:
    """Keeps the newest end of each resource and status.

    Only for targets, which belong to one location: dispatchers of several locations would wait for
    each other's rows of a group.
    """
    newest: dict[tuple[str, str], datetime] = {}
    for resource, status, at in ends:
        if not resource.startswith(GROUP):
            newest[resource, status] = max(at, newest.get((resource, status), at))
    if not newest:
        return
    rows = [
        {"resource": resource, "status": status, "ended_at": at}
        for (resource, status), at in sorted(newest.items())
    ]
    tx.execute(_newer_end(tx.dialect.name), rows)


@cache
def _unless_there(backend: str, table: sa.Table) -> sa.Insert:
    return dialect.insert_for(backend, table).on_conflict_do_nothing()


@cache
def _newer_end(backend: str) -> sa.Insert:
    new = dialect.insert_for(backend, run_ends)
    return new.on_conflict_do_update(
        index_elements=["resource", "status"],
        set_={"ended_at": new.excluded.ended_at},
        where=run_ends.c.ended_at < new.excluded.ended_at,
    )


@cache
def _holders(backend: str) -> sa.Select[Any]:
    """Returns the live jobs and runs that hold resources."""
    return (
        sa.select(holders.c.resource, holders.c.holder)
        .select_from(holders)
        .outerjoin(jobs, jobs.c.id == holders.c.holder)
        .outerjoin(
            runs,
            (runs.c.run_id == holders.c.holder) & (runs.c.location_id == holders.c.location_id),
        )
        .where(dialect.among_given(backend, holders.c.resource, "names"))
        .where(is_active | runs.c.run_id.is_not(None))
    )


@cache
def _held_by(backend: str) -> sa.Select[Any]:
    """Returns the resources of holders."""
    these = dialect.among_given(backend, holders.c.holder, "holders")
    return sa.select(holders.c.resource, holders.c.holder).where(these)


@cache
def _let_go(backend: str) -> sa.Delete:
    return sa.delete(holders).where(dialect.among_given(backend, holders.c.holder, "holders"))


@cache
def _waiting_for(backend: str) -> sa.Select[Any]:
    """Returns the jobs that wait for resources and that no other transaction has locked."""
    return (
        sa.select(jobs.c.id)
        .where(dialect.among_given(backend, jobs.c.held_by, "names"))
        .where(is_constrained)
        .order_by(jobs.c.priority.desc(), jobs.c.created_at, jobs.c.id)
        .limit(_WOKEN_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
