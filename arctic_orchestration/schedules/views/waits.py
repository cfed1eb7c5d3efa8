"""The jobs and arrivals of a cluster that wait, by cause, without an explanation of each job.

The cause of a job is the first constraint that holds it, as its last check has stored it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.quantities import format_moment
from arctic_orchestration.schedules.inventory import inventories
from arctic_orchestration.schedules.location import is_alive
from arctic_orchestration.schedules.resources import GROUP
from arctic_orchestration.schedules.schedule_history import Action
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.views.numbers import IS_FIRING
from arctic_orchestration.schedules.views.partition_ticks import ticks_of_partition
from arctic_orchestration.state import dialect
from arctic_orchestration.state.partition_tables import deferred_arrivals, event_of_arrival
from arctic_orchestration.state.tables import (
    events,
    holders,
    is_launching,
    is_waiting,
    jobs,
    locations,
    schedule_history,
    schedules,
    timers,
)
from arctic_orchestration.waits import (
    CLUSTER,
    Certainty,
    Details,
    Holder,
    Until,
    WaitKind,
    WaitRow,
    WaitRows,
    WaitScope,
    command,
    describe_each,
)

#: Constraints whose next moment is the end of the wait, if nothing else holds the job.
_TIMED = frozenset({"window", "delay", "rate", "minimum_interval"})
#: holders of one resource that are shown
_HOLDERS = 5


@cache
def wait_rows() -> tuple[WaitRows, ...]:
    """Returns the waiting and launching jobs of a cluster, and its deferred arrivals.

    Causes of jobs: ``trigger``; the kind of a constraint, with the group for a limit on one;
    ``suspended``, ``launch``; ``check``, which is the next tick's; ``target``, which is not there
    or cannot be looked up; ``unreadable_schedule``. Of arrivals: ``checks``, ``match``, ``code``.
    """
    made_at = jobs.c.created_at
    satisfied = sa.func.coalesce(jobs.c.satisfied_at, made_at)
    requested = sa.func.coalesce(jobs.c.requested_at, jobs.c.satisfied_at, made_at)
    return (
        _jobs(is_waiting, _cause(), satisfied),
        _jobs(is_launching, sa.literal("launch"), requested),
        _arrivals(),
    )


def silent_dispatchers(tx: sa.Connection, scope: WaitScope, location: str | None) -> list[str]:
    """Returns a sentence for each location, or for this one, that no dispatcher works on."""
    query = sa.select(locations.c.name, locations.c.ticked_at)
    query = query.where(locations.c.cluster == scope.cluster).order_by(locations.c.name)
    rows = tx.execute(query if location is None else query.where(locations.c.name == location))
    return [
        f"location {row.name}: no dispatcher ticks since {format_moment(row.ticked_at)}"
        if row.ticked_at is not None
        else f"location {row.name}: no dispatcher has ticked yet"
        for row in rows
        if not is_alive(row.ticked_at, scope.now)
    ]


def _in_cluster(column: sa.Column[Any], name: str | None = None) -> sa.ColumnElement[bool]:
    """Returns that a row is of a cluster's locations, or of the one with a name."""
    ids = sa.select(locations.c.id).where(locations.c.cluster == CLUSTER)
    if name is not None:
        ids = ids.where(locations.c.name == name)
    # The cast keeps SQLite from the index of all jobs of a location, ended ones included; Postgres
    # drops it, since it is the column's own type.
    return sa.cast(column, sa.BigInteger).in_(ids)


def _name_of(schedule_id: sa.Column[Any]) -> sa.ColumnElement[str]:
    return sa.select(schedules.c.name).where(schedules.c.id == schedule_id).scalar_subquery()


def _location_of(location_id: sa.Column[Any]) -> sa.ColumnElement[str]:
    return sa.select(locations.c.name).where(locations.c.id == location_id).scalar_subquery()


def _cause() -> sa.ColumnElement[str]:
    by_state = sa.case((jobs.c.state == "waiting_trigger", "trigger"), else_="check")
    return sa.func.coalesce(jobs.c.cause, by_state)


def _jobs(
    states: sa.ColumnElement[bool],
    cause: sa.ColumnElement[str],
    since: sa.ColumnElement[datetime],
) -> WaitRows:
    return WaitRows(
        kind=WaitKind.JOB,
        table=jobs,
        where=(states, IS_FIRING, _in_cluster(jobs.c.location_id)),
        keys=(jobs.c.id,),
        id=jobs.c.id,
        name=_name_of(jobs.c.schedule_id),
        location=_location_of(jobs.c.location_id),
        since=since,
        cause=cause,
        reason=jobs.c.reason,
        describe=_described,
        in_location=partial(_in_cluster, jobs.c.location_id),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Around:
    """What is around some jobs."""

    rows: Mapping[str, Any]
    #: the next tick that each job can get
    ticks: Mapping[str, datetime]
    #: by the resource that is held
    holders: Mapping[str, Sequence[Holder]]
    #: the last suspension of each schedule
    suspensions: Mapping[str, Holder]


_COLUMNS = [
    jobs.c[name]
    for name in ("id", "schedule_id", "scope", "state", "reason", "verdicts", "held_by",
                 "next_check_at", "deadline_at", "request_expires_at")
]  # fmt: skip


def _described(
    tx: sa.Connection, rows: Sequence[WaitRow], scope: WaitScope
) -> Mapping[tuple[Any, ...], Details | Exception]:
    query = (
        sa.select(*_COLUMNS, schedules.c.status)
        .join(schedules, schedules.c.id == jobs.c.schedule_id)
        .where(dialect.among(tx, jobs.c.id, [row.id for row in rows]))
    )
    found = {row.id: row for row in tx.execute(query)}
    around = _Around(
        rows=found,
        ticks=_ticks(tx, rows, found, scope),
        holders=_holders(tx, {row.held_by for row in found.values() if row.held_by}),
        suspensions=_suspensions(
            tx, {row.schedule_id for row in found.values() if row.status == "suspended"}
        ),
    )
    return describe_each(rows, lambda row: _details(row, around))


def _ticks(
    tx: sa.Connection, rows: Sequence[WaitRow], found: Mapping[str, Any], scope: WaitScope
) -> dict[str, datetime]:
    """Returns the next tick that each job can get: of its partition, if it is of one."""
    ids = sorted({job.schedule_id for job in found.values() if job.state == "waiting_trigger"})
    due: dict[str, dict[int, datetime]] = {}
    here = dialect.among(tx, timers.c.schedule_id, ids)
    for timer in tx.execute(
        sa.select(timers.c.schedule_id, timers.c.leaf, timers.c.due_at).where(here)
    ):
        due.setdefault(timer.schedule_id, {})[timer.leaf] = timer.due_at
    ends = dialect.among(tx, schedules.c.id, list(due)) & schedules.c.spec.contains(
        '"partition_end"'
    )
    stored = ScheduleStore().by_ids(tx, tx.execute(sa.select(schedules.c.id).where(ends)).scalars())
    known = inventories(tx, scope.cluster) if stored else {}
    ticks = {}
    for row in rows:
        job = found.get(row.id)
        own = due.get(job.schedule_id, {}) if job is not None else {}
        if job is not None and job.schedule_id in stored and job.scope is not None:
            of = known.get(row.location or "")
            own, _ = ticks_of_partition(of, stored[job.schedule_id], job.scope, own)
        if own:
            ticks[row.id] = min(own.values())
    return ticks


def _details(row: WaitRow, around: _Around) -> Details:
    job = around.rows[row.id]
    here = _options(row)
    explain = command("jobs", "explain", job.id, options=here)
    cancel = command("jobs", "cancel", job.id, options=here)
    if job.state == "launching":
        expires = Until(at=job.request_expires_at, event="check")
        reason = f"launching: {job.reason}"
        return Details(until=expires, actions=(explain, cancel), reason=reason)
    actions = [explain, command("jobs", "launch", job.id, options=here), cancel]
    held = list(around.holders.get(job.held_by, ()))
    # Jobs of a schedule that drains, and launched ones, go on through the constraints.
    if job.status == "suspended" and row.cause in ("suspended", "trigger"):
        actions.insert(1, command("schedules", "enable", row.name, options=here))
        held += filter(None, [around.suspensions.get(job.schedule_id)])
    return Details(
        held_by=tuple(held),
        until=_until(job, around.ticks.get(job.id)),
        actions=tuple(actions),
    )


def _options(row: WaitRow) -> tuple[str, ...]:
    """Returns the option of commands about what a location has; others may tick, too."""
    return (f"--location={row.location}",)


def _until(job: Any, tick_at: datetime | None) -> Until:
    # A timeout does not run while the schedule is suspended.
    deadline = None if job.status == "suspended" else job.deadline_at
    opens_at = tick_at if job.state == "waiting_trigger" else _opens_at(job)
    if opens_at is not None and (deadline is None or opens_at < deadline):
        if job.state == "waiting_trigger":
            return Until(certainty=Certainty.FORECAST, at=opens_at, event="tick")
        return Until(certainty=Certainty.KNOWN, at=opens_at, event="opens")
    if deadline is not None:
        return Until(certainty=Certainty.KNOWN, at=deadline, event="deadline")
    return Until(at=job.next_check_at, event="check" if job.next_check_at else "")


def _opens_at(job: Any) -> datetime | None:
    """Returns when the last of the constraints that hold a job opens; None: not only time does."""
    verdicts = json.loads(job.verdicts) if job.verdicts else []
    holding = [verdict for verdict in verdicts if verdict["decision"] == "hold"]
    moments = [
        datetime.fromisoformat(verdict["recheck_at"])
        for verdict in holding
        if verdict["constraint"] in _TIMED and verdict.get("recheck_at")
    ]
    return max(moments) if moments and len(moments) == len(holding) else None


def _holders(tx: sa.Connection, resources: Iterable[str]) -> dict[str, list[Holder]]:
    """Returns the group behind each resource, and the first jobs and runs that hold it."""
    names = sorted(resources)
    if not names:
        return {}
    held: dict[str, list[Holder]] = {name: [] for name in names}
    for name in names:
        if name.startswith(GROUP):
            group = name.removeprefix(GROUP)
            held[name].append(Holder(kind="group", id=group, text=f"group {group}"))
    query = (
        sa.select(holders.c.resource, holders.c.holder, jobs.c.run_id, schedules.c.name)
        .outerjoin(jobs, jobs.c.id == holders.c.holder)
        .outerjoin(schedules, schedules.c.id == jobs.c.schedule_id)
        .where(dialect.among(tx, holders.c.resource, names))
        .order_by(holders.c.resource, holders.c.holder)
    )
    for row in tx.execute(query):
        if len(held[row.resource]) < _HOLDERS:
            held[row.resource].append(_holder(row))
    return held


def _suspensions(tx: sa.Connection, ids: Iterable[str]) -> dict[str, Holder]:
    """Returns the last suspension of schedules, with its author."""
    col = schedule_history.c
    query = sa.select(col.schedule_id, col.name, col.at, col.actor).where(
        dialect.among(tx, col.schedule_id, sorted(ids)), col.action == Action.SUSPENDED.value
    )
    return {
        row.schedule_id: Holder(
            kind="pause",
            id=row.name,
            text=f"suspended since {format_moment(row.at)}" + (row.actor and f" by {row.actor}"),
        )
        for row in tx.execute(query.order_by(col.id))
    }


def _holder(row: Any) -> Holder:
    if row.name is None:
        return Holder(kind="run", id=row.holder, text=f"run {row.holder}")
    text = f"job {row.holder} of {row.name}"
    return Holder(
        kind="job", id=row.holder, text=f"{text}, run {row.run_id}" if row.run_id else text
    )


def _arrivals() -> WaitRows:
    kept = deferred_arrivals.c
    return WaitRows(
        kind=WaitKind.ARRIVAL,
        table=deferred_arrivals,
        where=(_in_cluster(kept.location_id),),
        keys=(kept.id,),
        id=sa.cast(kept.number, sa.Text),
        name=sa.select(
            sa.func.coalesce(events.c.subject + " " + events.c.partition, events.c.subject)
            + " for schedule "
            + _name_of(kept.schedule_id)
        )
        .where(event_of_arrival)
        .scalar_subquery(),
        location=_location_of(kept.location_id),
        since=kept.at,
        cause=kept.waits_for,
        reason=kept.reason,
        describe=_described_arrivals,
        in_location=partial(_in_cluster, kept.location_id),
    )


def _described_arrivals(
    tx: sa.Connection, rows: Sequence[WaitRow], _: WaitScope
) -> Mapping[tuple[Any, ...], Details | Exception]:
    query = (
        sa.select(deferred_arrivals.c.id, schedules.c.name)
        .join(schedules, schedules.c.id == deferred_arrivals.c.schedule_id)
        .where(dialect.among(tx, deferred_arrivals.c.id, [row.keys[0] for row in rows]))
    )
    names = {row.id: row.name for row in tx.execute(query)}

    def details(row: WaitRow) -> Details:
        options = (*_options(row), "--all", f"--schedule={names[row.keys[0]]}")
        return Details(actions=(command("events", "unmatched", options=options),))

    return describe_each(rows, details)
