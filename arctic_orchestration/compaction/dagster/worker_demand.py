"""How many runs of the job ``compaction_worker`` each compaction queue needs.

Counted from rows: the work of the queue, its live workers, and the runs that Dagster has not ended.
A run counts from its request to its end, whether or not its worker has sent a heartbeat.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg
import sqlalchemy as sa

from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.queue.budget import held_queues
from arctic_orchestration.compaction.queue.queues import CompactionQueue, QueueState
from arctic_orchestration.compaction.work import workers
from arctic_orchestration.dagster_internals import FINISHED_STATUSES
from arctic_orchestration.quantities import format_moment
from arctic_orchestration.state.compaction_tables import (
    compaction_tasks,
    is_claimed,
    is_failed,
    is_planned,
)
from arctic_orchestration.state.database import Database
from arctic_orchestration.state.dialect import database_time

QUEUE_TAG = "arctic/compaction_queue"
_NOT_ENDED = [status for status in dg.DagsterRunStatus if status not in FINISHED_STATUSES]
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
#: the pause before a request after a failed or canceled run; each further one doubles it
_FIRST_PAUSE = timedelta(seconds=30)
_LONGEST_DOUBLINGS = 6


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a queue."""

    queue: CompactionQueue
    #: tasks that workers may claim now
    claimable: int = 0
    #: tasks that workers have claimed
    claimed: int = 0
    #: whether its tasks may be claimed now: it is not paused, and within its hours and budget
    is_open: bool = True

    @property
    def floor(self) -> int:
        """The number of workers that it needs without tasks."""
        return self.queue.min_workers if self.is_open else 0


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How many more runs a queue needs, and why not more."""

    queue: CompactionQueue
    runs: int
    #: for people; empty: nothing to report
    reason: str = ""


def work_of(tx: sa.Connection) -> Mapping[str, Work]:
    """Returns the work of each queue, in the order of the queues."""
    task = compaction_tasks.c
    now = database_time(tx)
    ready = is_planned | (is_failed & (task.not_before <= now))
    counts: list[Counter[str]] = []
    for condition in (ready, is_claimed):
        query = sa.select(task.queue, sa.func.count()).where(condition).group_by(task.queue)
        counts.append(Counter({row.queue: row[1] for row in tx.execute(query)}))
    claimable, claimed = counts
    held = held_queues(tx, now)
    found = {}
    for queue in queues.queues(tx):
        is_open = queue.state is not QueueState.PAUSED and queue.name not in held
        found[queue.name] = Work(
            queue=queue,
            claimable=claimable[queue.name] if is_open else 0,
            claimed=claimed[queue.name],
            is_open=is_open,
        )
    return found


def wanted_runs(
    database: Database,
    instance: dg.DagsterInstance,
    job: str,
    parallelism: int,
    now: datetime,
) -> list[Wanted]:
    """Returns the queues with claimable tasks or a floor, and how many more runs each should have.

    A queue needs as many workers as its tasks, at least ``min_workers`` and at most
    ``max_workers``; workers that people have started count, and runs from their request on. After
    failed runs it pauses.

    Cost: a few statements in the state database; in Dagster's storage none when nothing is
    claimable and no queue has a floor, else two and one for each queue with work.

    Errors:
        DatabaseUnavailable: the state database did not answer.
    """
    with database.read() as tx:
        work = [one for one in work_of(tx).values() if one.claimable or one.floor]
        living = {one.queue.name: workers.live_workers(tx, one.queue.name) for one in work}
    if not work:
        return []
    runs = instance.get_runs(dg.RunsFilter(job_name=job, statuses=_NOT_ENDED))
    counted = Counter(run.tags.get(QUEUE_TAG, queues.DEFAULT) for run in runs)
    underway = {run.run_id for run in runs}
    ended = _ended(instance, [one.name for found in living.values() for one in found], underway)
    wanted = []
    for one in work:
        others = sum(
            run_of(worker.name) not in underway and worker.name not in ended
            for worker in living[one.queue.name]
        )
        wanted.append(_wanted(one, counted[one.queue.name], others, parallelism))
    return [_unless_failing(one, instance, job, now) for one in wanted]


def worker_name(run_id: str) -> str:
    """Returns the name of a run's worker in the state database."""
    return f"run {run_id}"


def run_of(name: str) -> str | None:
    """Returns the run of the worker with a name; none: it does not belong to a run."""
    prefix, _, run_id = name.partition(" ")
    return run_id if prefix == "run" and run_id else None


def _ended(
    instance: dg.DagsterInstance, names: Sequence[str], underway: set[str]
) -> frozenset[str]:
    """Returns names of workers whose run has ended here: killed ones still look alive."""
    ids = {run_id for name in names if (run_id := run_of(name)) and run_id not in underway}
    if not ids:
        return frozenset()
    found = instance.get_runs(dg.RunsFilter(run_ids=sorted(ids), statuses=list(FINISHED_STATUSES)))
    return frozenset(worker_name(run.run_id) for run in found)


def _wanted(work: Work, runs: int, others: int, parallelism: int) -> Wanted:
    tasks = work.claimable + work.claimed
    needed = max(-(-tasks // parallelism), work.floor)
    missing = min(needed, work.queue.max_workers) - runs - others
    if missing > 0:
        return Wanted(queue=work.queue, runs=missing)
    if not work.claimable:
        return Wanted(queue=work.queue, runs=0)
    reason = f"queue {work.queue.name} has {work.claimable} tasks to claim"
    if work.queue.max_workers == 0:
        return Wanted(queue=work.queue, runs=0, reason=f"{reason}, and max_workers 0")
    return Wanted(queue=work.queue, runs=0, reason=f"{reason}, and {runs + others} workers")


def _unless_failing(
    wanted: Wanted, instance: dg.DagsterInstance, job: str, now: datetime
) -> Wanted:
    """Returns the same, or no runs during the pause after failed runs."""
    if not wanted.runs:
        return wanted
    tags = {QUEUE_TAG: wanted.queue.name}
    latest = instance.get_run_records(
        dg.RunsFilter(job_name=job, tags=tags, statuses=list(FINISHED_STATUSES)),
        limit=_LONGEST_DOUBLINGS + 1,
    )
    failures = _failures(latest)
    if not failures:
        return wanted
    again = _ended_at(latest[0]) + _FIRST_PAUSE * 2 ** (failures - 1)
    if now >= again:
        return wanted
    reason = (
        f"the last {failures} of queue {wanted.queue.name}'s runs failed or were canceled; "
        f"again at {format_moment(again)}"
    )
    return Wanted(queue=wanted.queue, runs=0, reason=reason)


def _failures(latest: Sequence[dg.RunRecord]) -> int:
    """Returns how many consecutive runs failed, from the newest."""
    for number, record in enumerate(latest):
        if record.dagster_run.status not in _FAILED:
            return number
    return len(latest)


def _ended_at(record: dg.RunRecord) -> datetime:
    if record.end_time is None:
        return record.update_timestamp
    return datetime.fromtimestamp(record.end_time, UTC)
