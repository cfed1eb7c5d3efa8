"""Explains the state of a job as a value: its trigger, its constraints and its timeout.

The trigger is evaluated again with the job's arrivals, so that each of its children shows what is
missing. Constraints are not evaluated, since that would need their locks: the job keeps their last
verdicts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import Field

from arctic_orchestration.documents import At, Document
from arctic_orchestration.errors import NotFound, TransitionRefused
from arctic_orchestration.schedules.inventory import inventories
from arctic_orchestration.schedules.job_splitter import stored_partitions
from arctic_orchestration.schedules.jobs import ACTIVE, WAITING, Job, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import schedule_by_name
from arctic_orchestration.schedules.mismatches import mismatches
from arctic_orchestration.schedules.store import ScheduleStore
from arctic_orchestration.schedules.stored_cycles import stored_cycles
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.triggers import Requests
from arctic_orchestration.schedules.triggers.base import NOTHING
from arctic_orchestration.schedules.views.numbers import IS_FIRING
from arctic_orchestration.schedules.views.partition_ticks import ticks_of_partition
from arctic_orchestration.schedules.views.target_partitions import newest_jobs
from arctic_orchestration.schedules.views.trigger_tree import TriggerNode, tree
from arctic_orchestration.state import source_tables
from arctic_orchestration.state.tables import job_events, job_history, jobs, schedules, timers

#: partitions that an explanation names; the others are counted
_NAMED = 20


class ConstraintNode(Document):
    """A constraint and its last verdict."""

    form: dict[str, Any]
    #: ``admit``, ``hold`` or ``cancel``; None: not evaluated yet
    decision: str | None = None
    reason: str = "checked when the trigger is satisfied"
    recheck_at: At | None = None

    @property
    def kind(self) -> str:
        """Its key in YAML."""
        return next(iter(self.form))


class Move(Document):
    """A line of a job's history."""

    at: At
    # "from" is a word of Python.
    before: str = Field(alias="from")
    state: str
    reason: str
    #: the person who made the move; empty: the scheduler
    actor: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The state of a schedule and of one of its jobs, with the reasons."""

    #: one sentence
    summary: str
    schedule: StoredSchedule
    #: None: nothing has arrived since the last job
    job: Job | None
    #: None: the job belongs to another version of the schedule
    trigger: TriggerNode | None
    constraints: tuple[ConstraintNode, ...]
    #: what happens at the job's deadline
    timeout: str | None
    #: how many events the job has, and the first of their partitions
    events: int
    partitions: tuple[str, ...]
    more_partitions: int
    #: how many other jobs of the schedule wait
    others_waiting: int
    history: tuple[Move, ...]
    #: the explained target partition, or group; None: there is none
    partition: str | None = None
    #: names in the schedule that no code location has
    unknown: tuple[str, ...] = ()
    #: the cycles that include the schedule
    cycles: tuple[str, ...] = ()


def explain(
    tx: sa.Connection, store: ScheduleStore, location: Location, job_id: str, now: datetime
) -> Explanation:
    """Explains the state of a job.

    Errors:
        NotFound: the location has no such job.
        TransitionRefused: this version of the package cannot read its schedule.
    """
    here = (jobs.c.id == job_id) & (jobs.c.location_id == location.id)
    row = tx.execute(sa.select(jobs).where(here)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"location {location.name} has no job {job_id}")
    job = Job.from_row(dict(row))
    return _explain(tx, store, location, _stored(tx, store, job.schedule_id), job, now)


def explain_schedule(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    name: str,
    now: datetime,
    *,
    partition: str | None = None,
) -> Explanation:
    """Explains why a schedule has not run yet, by the waiting job that is checked first.

    Without a waiting job, the job is None, and the trigger says what it waits for. With
    ``partition`` it is the newest job for that target partition, or group.

    Errors:
        NotFound: the location has no such schedule; lists similar names.
        TransitionRefused: this version of the package cannot read it.
    """
    stored = _stored(tx, store, schedule_by_name(tx, location, name).id)
    if partition is not None:
        newest = newest_jobs(tx, stored, [partition]).get(partition)
        explained = _explain(tx, store, location, stored, newest, now, partition=partition)
        if newest is not None:
            return explained
        summary = f"nothing has arrived for {partition}"
        return replace(explained, summary=summary, partition=partition)
    row = (
        tx.execute(
            sa.select(jobs)
            .where(jobs.c.schedule_id == stored.id, _in(WAITING), IS_FIRING)
            # Within one schedule: the first job in the order of the checker.
            .order_by(jobs.c.state, jobs.c.priority.desc(), jobs.c.created_at, jobs.c.id)
            .limit(1)
        )
        .mappings()
        .one_or_none()
    )
    job = Job.from_row(dict(row)) if row is not None else None
    return _explain(tx, store, location, stored, job, now)


def _stored(tx: sa.Connection, store: ScheduleStore, schedule_id: str) -> StoredSchedule:
    stored = store.by_ids(tx, [schedule_id]).get(schedule_id)
    if stored is None:
        raise TransitionRefused(
            "its schedule was written by another version of the package and cannot be read; "
            "update or delete it"
        )
    return stored


def _explain(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    stored: StoredSchedule,
    job: Job | None,
    now: datetime,
    *,
    partition: str | None = None,
) -> Explanation:
    same = job is None or (
        job.schedule_version == stored.version and len(job.arrivals) == len(stored.leaves)
    )
    waiting = _count(tx, stored, WAITING) - (job is not None and job.state in WAITING)
    partitions = stored_partitions(tx, job) if job is not None else []
    if job is not None:
        partition = job.partition
    trigger = _trigger_of(tx, location, stored, job, partition, now) if same else None
    tick_at = _next_tick(trigger) if trigger is not None else None
    return Explanation(
        summary=_summary(stored, job, _count(tx, stored, ACTIVE), tick_at, _last_end(tx, stored)),
        schedule=stored,
        job=job,
        trigger=trigger,
        constraints=_constraints_of(stored, job, same=same),
        timeout=_timeout_of(stored, job),
        events=_events(tx, job) if job is not None else 0,
        partitions=tuple(partitions[:_NAMED]),
        more_partitions=max(0, len(partitions) - _NAMED),
        others_waiting=waiting,
        history=_history(tx, job) if job is not None else (),
        partition=job.partition if job is not None and stored.is_scoped else None,
        unknown=_unknown(tx, location, stored),
        cycles=_cycles(tx, store, location, stored),
    )


def _unknown(tx: sa.Connection, location: Location, stored: StoredSchedule) -> tuple[str, ...]:
    known = inventories(tx, location.cluster)
    found = mismatches(stored.schedule, location.name, known)
    return tuple(str(unknown.problem) for unknown in found)


def _cycles(
    tx: sa.Connection, store: ScheduleStore, location: Location, stored: StoredSchedule
) -> tuple[str, ...]:
    found = stored_cycles(tx, store, location, through=[stored.name])
    return tuple(str(cycle) for cycle in found if stored.name in cycle.names)


def _last_end(tx: sa.Connection, stored: StoredSchedule) -> str | None:
    """Returns how the last job of a schedule ended, and why."""
    row = tx.execute(
        sa.select(jobs.c.state, jobs.c.reason)
        .where(jobs.c.schedule_id == stored.id, jobs.c.ended_at.is_not(None))
        .order_by(jobs.c.ended_at.desc(), jobs.c.id.desc())
        .limit(1)
    ).one_or_none()
    return f"{row.state}: {row.reason}" if row is not None else None


def _summary(
    stored: StoredSchedule,
    job: Job | None,
    active: int,
    tick_at: datetime | None,
    last_end: str | None,
) -> str:
    if job is not None and job.state not in WAITING:
        run = f" as run {job.run_id}" if job.run_id else ""
        return f"{job.state.value}{run}: {job.reason}"
    running = f"; {active} of its jobs are active" if active else ""
    if job is not None:
        halted = "" if stored.launches or job.forced else "suspended; "
        waits = "its constraints hold it"
        if job.state is JobState.WAITING_TRIGGER:
            waits = "its trigger is not satisfied yet"
        forced = f"{job.forced}; " if job.forced else ""
        return f"{halted}{forced}{waits}: {job.reason}{running}"
    if not stored.takes_events:
        return f"suspended, and takes no events (arctic schedules enable {stored.name}){running}"
    then = f"; its next tick is at {tick_at:%Y-%m-%d %H:%M:%SZ}" if tick_at else ""
    if not active and last_end is None:
        return f"nothing has arrived yet{then}"
    before = "" if active or last_end is None else f", which {last_end}"
    return f"nothing has arrived since its last job{before}{then}{running}"


def _trigger_of(
    tx: sa.Connection,
    location: Location,
    stored: StoredSchedule,
    job: Job | None,
    partition: str | None,
    now: datetime,
) -> TriggerNode:
    rows = tx.execute(
        sa.select(timers.c.leaf, timers.c.due_at).where(timers.c.schedule_id == stored.id)
    )
    ticks = {row.leaf: row.due_at for row in rows}
    passed: dict[int, datetime] = {}
    if partition is not None:
        inventory = inventories(tx, location.cluster).get(location.name)
        ticks, passed = ticks_of_partition(inventory, stored, partition, ticks)
    arrivals = job.arrivals if job is not None else (NOTHING,) * len(stored.leaves)
    satisfied_at = job.satisfied_at if job is not None and job.forced is None else None
    trigger = stored.schedule.trigger
    # Time goes on after a trigger fired: it is evaluated as of the firing.
    root = tree(trigger, arrivals, ticks, satisfied_at or now, passed=passed)
    if isinstance(trigger, Requests):
        root = replace(root, reason=f"{root.reason}; {_source(tx, stored, trigger.sensor)}")
    if satisfied_at is None or root.satisfied:
        return root
    return replace(root, satisfied=True, reason=f"fired at {satisfied_at:%Y-%m-%d %H:%M:%SZ}")


def _source(tx: sa.Connection, stored: StoredSchedule, name: str) -> str:
    """Returns the last result of the evaluation of a source."""
    table = source_tables.sources.c
    location = sa.select(schedules.c.location_id).where(schedules.c.id == stored.id)
    row = tx.execute(
        sa.select(table.evaluated_at, table.note).where(
            table.location_id == location.scalar_subquery(), table.name == name
        )
    ).one_or_none()
    if row is None or row.evaluated_at is None:
        return "it has not been evaluated"
    return f"evaluated at {row.evaluated_at:%Y-%m-%d %H:%M:%SZ}: {row.note}"


def _next_tick(node: TriggerNode) -> datetime | None:
    ticks = [node.next_tick_at, *map(_next_tick, node.children)]
    return min((at for at in ticks if at is not None), default=None)


def _constraints_of(
    stored: StoredSchedule, job: Job | None, *, same: bool
) -> tuple[ConstraintNode, ...]:
    forms = [constraint.to_form() for constraint in stored.schedule.constraints] if same else []
    stored_verdicts = json.loads(job.verdicts) if job is not None and job.verdicts else []
    if not same:
        forms = [{verdict["constraint"]: {}} for verdict in stored_verdicts]
    if len(stored_verdicts) != len(forms):
        return tuple(ConstraintNode(form=form) for form in forms)
    return tuple(
        ConstraintNode(
            form=form,
            decision=verdict["decision"],
            reason=verdict["reason"],
            recheck_at=_moment(verdict.get("recheck_at")),
        )
        for form, verdict in zip(forms, stored_verdicts, strict=True)
    )


def _timeout_of(stored: StoredSchedule, job: Job | None) -> str | None:
    if job is None or job.state not in WAITING or job.deadline_at is None:
        return None
    if stored.schedule.on_timeout == "launch":
        then = "launched past its constraints, all but limits on concurrency"
        if job.state is JobState.WAITING_TRIGGER:
            then = "discarded if its trigger is not satisfied by then"
    else:
        then = "discarded"
    if stored.suspended:
        return f"stands still while the schedule is suspended; at its end {then}"
    return f"at {job.deadline_at:%Y-%m-%d %H:%M:%SZ} it is {then}"


def _events(tx: sa.Connection, job: Job) -> int:
    numbers = sa.select(sa.func.count(sa.distinct(job_events.c.number)))
    return int(tx.execute(numbers.where(job_events.c.job_id == job.id)).scalar_one())


def _history(tx: sa.Connection, job: Job) -> tuple[Move, ...]:
    query = sa.select(job_history).where(job_history.c.job_id == job.id)
    return tuple(
        Move(at=row.at, before=row.from_state, state=row.state, reason=row.reason, actor=row.actor)
        for row in tx.execute(query.order_by(job_history.c.id))
    )


def _count(tx: sa.Connection, stored: StoredSchedule, states: Sequence[JobState]) -> int:
    here = sa.select(sa.func.count()).where(jobs.c.schedule_id == stored.id, _in(states))
    return int(tx.execute(here.where(IS_FIRING)).scalar_one())


def _in(states: Sequence[JobState]) -> sa.ColumnElement[bool]:
    return jobs.c.state.in_([state.value for state in states])


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
