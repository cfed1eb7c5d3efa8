"""Evaluates the trigger of a waiting job after new events or at its recheck time."""

from collections.abc import Sequence
from datetime import datetime

from arctic_orchestration.schedules.job_queue import JobQueue
from arctic_orchestration.schedules.job_splitter import by_partition
from arctic_orchestration.schedules.jobs import Job, JobState
from arctic_orchestration.schedules.schedule import Schedule
from arctic_orchestration.schedules.stored_schedule import StoredSchedule
from arctic_orchestration.schedules.triggers import Arrivals, Firing, Leaf
from arctic_orchestration.schedules.triggers.combined import fired_branches


def evaluate_trigger(
    queue: JobQueue,
    job: Job,
    stored: StoredSchedule,
    arrivals: Sequence[Arrivals],
    at: datetime | None = None,
) -> bool:
    """Moves a job on to its constraints if its trigger is satisfied; else records what is missing.

    The trigger is evaluated as of ``at`` while earlier events are still unread, else as of now.
    Returns whether it fired.
    """
    try:
        firing = stored.schedule.trigger.evaluate(arrivals, at or queue.now)
    except Exception as error:
        # A broken rule of one schedule must not stop the others: its job waits and shows why.
        firing = Firing(satisfied=False, reason=f"its trigger could not be decided: {error!r}")
    if firing.satisfied:
        fire(queue, job, stored, arrivals, firing.reason)
        return True
    # The timeout does not run while the schedule is suspended.
    deadline = None if stored.suspended else job.deadline_at
    looks = [at for at in (firing.recheck_at, deadline) if at]
    queue.wait(
        job,
        firing.reason,
        arrivals=tuple(arrivals),
        next_check_at=min(looks, default=None),
    )
    return False


def fired_by(schedule: Schedule, job: Job) -> str:
    """Returns what made a job's trigger fire: its kind, or the branches of a combined one.

    A launch that was forced before the trigger fired has no branch.
    """
    trigger, kind = schedule.trigger, schedule.trigger.kind
    if isinstance(trigger, Leaf) or job.satisfied_at is None:
        return kind
    try:
        firing = trigger.evaluate(job.arrivals, job.satisfied_at)
    except Exception:
        # Fired by another version of the schedule, or forced.
        return kind
    return ", ".join(fired_branches(trigger, firing)) or kind


def fire(
    queue: JobQueue,
    job: Job,
    stored: StoredSchedule,
    arrivals: Sequence[Arrivals],
    reason: str,
    *,
    forced: str | None = None,
) -> None:
    """Moves a job on to its constraints, or past them if ``forced`` gives a reason.

    With ``partitions: each`` it becomes a job for each partition, unless it is one already.
    """
    each = stored.schedule.partitions == "each" and job.scope is None
    fired = queue.move(
        job,
        JobState.WAITING_CONSTRAINTS,
        reason,
        arrivals=tuple(arrivals),
        satisfied_at=queue.now,
        next_check_at=queue.now,
        waiting_for=job.waiting_for if stored.takes_more and not each else None,
        forced=forced,
    )
    if job.scope is not None:
        note_fired(queue, job, stored, arrivals, queue.now)
    if each:
        by_partition(queue, fired, coalesce=stored.takes_more)


def note_fired(
    queue: JobQueue, job: Job, stored: StoredSchedule, arrivals: Sequence[Arrivals], at: datetime
) -> None:
    """Records that a schedule fired for a job's target partition, and what it counted."""
    queue.note_fired(job, at, stored.common_number(arrivals))
