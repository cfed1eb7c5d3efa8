"""Manual changes of schedules and jobs, each in one transaction of a locked location.

The caller begins the transaction and locks the location (:func:`~.location.locked`), so that no
dispatcher works on it meanwhile. An exception must end the transaction; nothing is changed then.
After a failed transaction, call :meth:`~.store.ScheduleStore.forget` on a store that is kept.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.errors import InvalidDefinition, InvalidInput, NotFound, TransitionRefused
from arctic_orchestration.notifications.outbox import Notice
from arctic_orchestration.schedules import cycles, deletions, suspension
from arctic_orchestration.schedules.discarded_jobs import with_discard
from arctic_orchestration.schedules.inventory import inventories, job_assets
from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.job_splitter import partitions_of
from arctic_orchestration.schedules.jobs import COMMON, LAUNCHED_MANUALLY, WAITING, Job, JobState
from arctic_orchestration.schedules.location import Location
from arctic_orchestration.schedules.lookup import schedule_by_name, schedule_rows
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.schedule_diff import Difference, differences
from arctic_orchestration.schedules.store import (
    Origin,
    ScheduleStatus,
    ScheduleStore,
    StoredSchedule,
)
from arctic_orchestration.schedules.trigger_evaluation import fire
from arctic_orchestration.schedules.unknown_names import UnknownName, unknown_names
from arctic_orchestration.state import dialect
from arctic_orchestration.state.tables import jobs

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
    twice = sorted({name for name in names if names.count(name) > 1}) if _repeats(names) else []
    if twice:
        raise InvalidDefinition([InvalidInput("name", name, "a name used once") for name in twice])
    stored = store.in_location(tx, location.id)
    readable = {old.name for old in stored}
    unreadable = [
        row for name, row in schedule_rows(tx, location.id).items() if name not in readable
    ]
    difference = differences(stored, wanted, unreadable=unreadable, prune=prune)
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
    """Returns remarks for people: cycles and unknown names that are not refused."""
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


def _unknown(
    tx: sa.Connection, location: Location, wanted: Sequence[Schedule]
) -> list[UnknownName]:
    known = inventories(tx, location.cluster) if wanted else {}
    return [
        unknown for schedule in wanted for unknown in unknown_names(schedule, location.name, known)
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
    actor: str = "",
) -> Difference:
    """Creates the schedules that are new and updates those that differ, whatever their origin.

    Unchanged schedules are left alone. An updated schedule keeps its status, and its waiting jobs
    are discarded. A schedule that this version of the package cannot read is created again.
    ``prune`` deletes schedules that were created manually and are not wanted; declared ones stay.

    Returns what was done.

    Errors:
        InvalidDefinition: as :func:`compare`; nothing was changed.
    """
    difference = compare(tx, store, location, wanted, prune=prune)
    by_name = {schedule.name: schedule for schedule in wanted}
    stored = {old.name: old for old in store.in_location(tx, location.id)}
    rows = schedule_rows(tx, location.id)
    for change in difference.updated:
        if change.problem is not None:
            gone = [rows[change.name].id]
            why = "this version could not read it"
            store.remove(tx, location, gone, now, reason=why, actor=actor)
            store.add(
                tx,
                location,
                [by_name[change.name]],
                change.origin,
                now,
                reason=reason,
                actor=actor,
                statuses={change.name: ScheduleStatus(rows[change.name].status)},
            )
            continue
        old = stored[change.name]
        lost = suspension.discard_waiting(tx, old.id, "the schedule was updated", now, actor=actor)
        why = with_discard(reason, lost)
        store.replace(tx, location, old, by_name[change.name], now, reason=why, actor=actor)
    # A declared schedule that a person deleted belongs to the code again.
    back = deletions.restored(tx, location, [one.name for one in difference.created])
    for origin in Origin:
        of_code = origin is Origin.CODE
        new = [one for one in difference.created if (one.name in back) == of_code]
        store.add(tx, location, new, origin, now, reason=reason, actor=actor)
    gone = [rows[name].id for name in difference.deleted]
    store.remove(tx, location, gone, now, reason=reason, actor=actor)
    return difference


def update(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    schedule: Schedule,
    now: datetime,
    *,
    reason: str = MANUALLY,
    actor: str = "",
) -> Difference:
    """Gives the schedule with this name a new version; an equal definition changes nothing.

    Errors:
        NotFound: no schedule has the name; lists similar names.
    """
    schedule_by_name(tx, location, schedule.name)
    return apply(tx, store, location, [schedule], now, reason=reason, actor=actor)


def delete(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    name: str,
    now: datetime,
    *,
    reason: str = MANUALLY,
    actor: str = "",
) -> None:
    """Deletes a schedule with its jobs; active runs go on and still count.

    A declared schedule stays deleted until its definition in the code changes.

    Errors:
        NotFound: no schedule has the name; lists similar names.
    """
    row = schedule_by_name(tx, location, name)
    if row.origin is Origin.CODE:
        deletions.note(tx, location, row.id)
    store.remove(tx, location, [row.id], now, reason=reason, actor=actor)


def enable(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    name: str,
    now: datetime,
    *,
    reason: str = MANUALLY,
    actor: str = "",
) -> bool:
    """Enables a schedule from now on; returns whether it was suspended.

    Errors:
        NotFound: no schedule has the name; lists similar names.
        TransitionRefused: this version of the package cannot read it.
    """
    stored = stored_by_name(tx, store, location, name)
    return suspension.resume(tx, store, location, stored, now, reason=reason, actor=actor)


def suspend(
    tx: sa.Connection,
    store: ScheduleStore,
    location: Location,
    name: str,
    now: datetime,
    *,
    reason: str = MANUALLY,
    actor: str = "",
) -> bool:
    """Suspends a schedule as its ``suspend_mode`` says; returns whether it was enabled.

    Errors:
        NotFound: no schedule has the name; lists similar names.
        TransitionRefused: this version of the package cannot read it.
    """
    stored = stored_by_name(tx, store, location, name)
    return suspension.suspend(tx, store, location, stored, now, reason=reason, actor=actor)


def launch_job(
    tx: sa.Connection, location: Location, job_id: str, now: datetime, *, actor: str = ""
) -> Job:
    """Makes the next tick launch a job past its constraints, except limits on concurrency.

    A job that waits for its trigger is launched with the events it has. Returns the job as it is
    then; with ``partitions: each`` it may have become one of several.

    Errors:
        NotFound: the location has no such job.
        TransitionRefused: it no longer waits.
    """
    queue = JobQueue(tx, now, actor=actor)
    job = _job(queue, location, job_id)
    if job.scope == COMMON:
        raise TransitionRefused(f"Job {job.id} is never launched: {job.reason}")
    if job.state not in WAITING:
        raise TransitionRefused(f"Job {job.id} cannot be launched manually: {_where_it_is(job)}")
    stored = ScheduleStore().by_ids(tx, [job.schedule_id]).get(job.schedule_id)
    if stored is None:
        raise TransitionRefused(
            f"Job {job.id} cannot be launched: this version of the package cannot read its schedule"
        )
    if job.state is JobState.WAITING_CONSTRAINTS:
        job = queue.change(job, forced=LAUNCHED_MANUALLY, next_check_at=now)
        queue.remark(job, LAUNCHED_MANUALLY)
    else:
        splits = stored.schedule.partitions == "each" and job.scope is None
        keys = partitions_of(queue, job) if splits else []
        reason = f"{LAUNCHED_MANUALLY}, when: {job.reason}"
        fire(queue, job, stored, job.arrivals, reason, forced=LAUNCHED_MANUALLY)
        # Partitions that joined other waiting jobs already take the common events along.
        for joined in queue.load(
            jobs.c.schedule_id == job.schedule_id,
            jobs.c.state == JobState.WAITING_CONSTRAINTS.value,
            dialect.among(tx, jobs.c.partition_start, keys),
        ):
            if joined.waiting_for is not None:
                queue.change(joined, forced=LAUNCHED_MANUALLY, next_check_at=now)
    queue.flush()
    return queue.current(job)


def cancel_job(
    tx: sa.Connection, location: Location, job_id: str, now: datetime, *, actor: str = ""
) -> Job:
    """Ends a job that has no run yet; its events are not given to another job.

    A waiting job is discarded. A launching job is canceled: its request is not handed out again,
    and a run that an earlier request still creates is terminated.

    Errors:
        NotFound: the location has no such job.
        TransitionRefused: it has a run, which can be terminated in Dagster, or it has ended.
    """
    queue = JobQueue(tx, now, actor=actor)
    # A run claims its job through this row alone.
    queue.load(query=sa.select(jobs).where(jobs.c.id == job_id).with_for_update())
    job = _job(queue, location, job_id)
    has_run = job.run_id is not None or job.begun_run_id is not None
    is_launching = job.state is JobState.LAUNCHING and not has_run
    if job.state not in WAITING and not is_launching:
        raise TransitionRefused(f"Job {job.id} cannot be canceled: {_where_it_is(job)}")
    job = queue.move(
        job,
        JobState.CANCELED if is_launching else JobState.DISCARDED,
        "canceled manually",
        notice=Notice.JOB_DISCARDED,
        next_check_at=None,
        held_by=None,
        ended_at=now,
    )
    queue.flush()
    return job


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


def _job(queue: JobQueue, location: Location, job_id: str) -> Job:
    job = queue.by_ids([job_id]).get(job_id)
    if job is None or job.location_id != location.id:
        raise NotFound(f"location {location.name} has no job {job_id}")
    return job


def _where_it_is(job: Job) -> str:
    """Returns the state of a job that does not wait, and what can be done about it."""
    if job.state is JobState.LAUNCHING:
        return (
            f"it is launching, with run {job.run_id or job.begun_run_id}. Terminate the run in "
            "Dagster: the job then ends as canceled"
        )
    if job.state is JobState.LAUNCHED:
        return (
            f"it is launched as run {job.run_id}. Terminate that run in Dagster: "
            "the job then ends as canceled"
        )
    ended = f" at {job.ended_at:%Y-%m-%d %H:%M:%SZ}" if job.ended_at else ""
    return f"it has ended{ended}, {job.state.value}: {job.reason}"


def _repeats(names: Sequence[str]) -> bool:
    return len(set(names)) != len(names)
