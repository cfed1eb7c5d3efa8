"""Asks the trigger of a job that waits for it, when events came or a moment it named has come."""

from collections.abc import Sequence

from arctic_orchestration.scheduling.jobs import Job, JobState
from arctic_orchestration.scheduling.queue import JobQueue
from arctic_orchestration.scheduling.schedule import Schedule
from arctic_orchestration.scheduling.splitting import by_partition
from arctic_orchestration.triggers import Arrivals, Firing


def ask_trigger(
    queue: JobQueue, job: Job, schedule: Schedule, arrivals: Sequence[Arrivals]
) -> bool:
    """Moves a job on to its constraints when its trigger is satisfied; else notes what is missing.

    With ``partitions: each`` a job that fires becomes one for each partition. Returns whether
    the trigger fired.
    """
    try:
        firing = schedule.trigger.evaluate(arrivals, queue.now)
    except Exception as error:
        # One schedule's bad rule must not stop the others: its job waits, and says why.
        firing = Firing(satisfied=False, reason=f"its trigger could not be decided: {error!r}")
    if not firing.satisfied:
        looks = [at for at in (firing.look_again_at, job.deadline_at) if at]
        queue.change(
            job,
            arrivals=tuple(arrivals),
            reason=firing.reason,
            next_check_at=min(looks, default=None),
        )
        return False
    takes_more = schedule.coalesce and schedule.partitions != "each"
    fired = queue.move(
        job,
        JobState.WAITING_CONSTRAINTS,
        firing.reason,
        arrivals=tuple(arrivals),
        satisfied_at=queue.now,
        next_check_at=queue.now,
        waiting_for="" if takes_more else None,
    )
    if schedule.partitions == "each":
        by_partition(queue, fired, coalesce=schedule.coalesce)
    return True
