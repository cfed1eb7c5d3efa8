"""What each live task of a table waits for, and for how long at most."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from arctic_orchestration.compaction.queue import queues, ranking, task_store
from arctic_orchestration.compaction.queue.budget import Held, held_queues
from arctic_orchestration.compaction.queue.task import LIVE, Task, TaskState
from arctic_orchestration.compaction.tables import CompactionTable
from arctic_orchestration.compaction.work.attempt import Attempt
from arctic_orchestration.compaction.work.attempt_lookup import attempts_of
from arctic_orchestration.compaction.work.workers import Worker, live_workers
from arctic_orchestration.quantities import counted, format_moment, seconds, span
from arctic_orchestration.state.compaction_tables import (
    compaction_attempts,
    compaction_tables,
    compaction_tasks,
)
from arctic_orchestration.state.dialect import database_time
from arctic_orchestration.waits import command

#: the number of recent attempts of a queue that predict the duration of a merge
_ATTEMPTS_READ = 1000


@dataclass(frozen=True, kw_only=True)
class QueueNow:
    """The facts that determine how long tasks of a queue wait."""

    queue: queues.CompactionQueue
    workers: Sequence[Worker]
    #: of the tables in it
    highest_level: int
    #: the longest of its recent attempts; none: none has ended yet
    longest: timedelta | None
    #: why nothing of it is claimed now; none: because of its hours or budget, nothing is held
    held: Held | None

    @property
    def slots(self) -> int:
        """How many tasks its workers merge at once, in total."""
        return sum(worker.parallelism for worker in self.workers)

    def claimed_by(self, task: Task) -> datetime | None:
        """Returns the latest moment at which a waiting task is claimed; none: unknown.

        It assumes that the present workers never pause, no merge takes longer than recent ones, and
        the queue and the levels stay unchanged.
        """
        limited = self.queue.budget > 0 or self.queue.hours != queues.ALWAYS
        limited = limited or self.queue.state is queues.QueueState.PAUSED
        if not self.slots or self.longest is None or limited:
            return None
        return task.waiting_since + ranking.waits_at_most(
            task.level,
            highest_level=max(self.highest_level, task.level),
            capacity=self.queue.capacity,
            slots=self.slots,
            longest=self.longest,
            attempts=task.max_attempts,
        )


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A live task, and what it waits for."""

    task: Task
    #: how many of its queue precede it; none: it does not wait for a worker
    ahead: int | None
    text: str
    #: no task that is offered later precedes it; none: it does not wait for a worker
    overtaken_until: datetime | None
    claimed_by: datetime | None
    #: why nothing of its queue is claimed now
    held: Held | None = None


def queue_now(tx: sa.Connection, name: str) -> QueueNow:
    """Returns the facts that determine how long tasks of a queue wait."""
    tasks, tries = compaction_tasks.c, compaction_attempts.c
    level = sa.select(sa.func.max(compaction_tables.c.level)).where(
        compaction_tables.c.queue == name
    )
    ended = (
        sa.select(tries.claimed_at, tries.ended_at)
        .join(compaction_tasks, tasks.id == tries.task_id)
        .where(tasks.queue == name, tries.ended_at.is_not(None))
        .order_by(tries.ended_at.desc())
        .limit(_ATTEMPTS_READ)
    )
    took = [row.ended_at - row.claimed_at for row in tx.execute(ended)]
    return QueueNow(
        queue=queues.queue_by_name(tx, name),
        workers=live_workers(tx, name),
        highest_level=tx.execute(level).scalar() or 0,
        longest=max(took, default=None),
        held=held_queues(tx, database_time(tx)).get(name),
    )


def waiting_tasks(
    tx: sa.Connection, table: CompactionTable, now: datetime, limit: int
) -> list[Waiting]:
    """Returns the live tasks of a table with what they wait for, in the order of their queues."""
    known: dict[str, QueueNow] = {}
    found = []
    for task in task_store.tasks(tx, table=table.name, states=LIVE, limit=limit):
        if task.queue not in known:
            known[task.queue] = queue_now(tx, task.queue)
        found.append(wait_of(tx, task, table, known[task.queue], now))
    return found


def wait_of(
    tx: sa.Connection, task: Task, table: CompactionTable, queue: QueueNow, now: datetime
) -> Waiting:
    """Returns what a live task waits for."""
    ahead, until, by, held = None, None, None, None
    match task.state:
        case TaskState.PLANNED:
            ahead = task_store.ahead_of(tx, task)
            until = ranking.overtaken_until(
                task.waiting_since, task.level, max(queue.highest_level, task.level)
            )
            by, held = queue.claimed_by(task), queue.held
            text = _planned_text(task, queue, ahead, until, by, now)
        case TaskState.FAILED:
            text = task.reason
        case TaskState.CLAIMED:
            text = _claimed_text(attempts_of(tx, task.id)[-1], task, now)
        case _:
            text = f"merged {span(task.state_at, now)} ago; {commit_text(table, now)}"
    return Waiting(
        task=task, ahead=ahead, text=text, overtaken_until=until, claimed_by=by, held=held
    )


def commit_text(table: CompactionTable, now: datetime) -> str:
    """Returns when merged tasks of a table are committed."""
    if table.commit_expires_at is not None and table.commit_expires_at > now:
        return f"{table.commit_owner} commits just now"
    if table.observed_at is not None:
        options = (f"--tables={table.name}", "--mode=run")
        only = command("compaction", "tick", options=options)
        return f"the table is only observed, which commits nothing: {only}"
    if table.next_commit_at is not None and table.next_commit_at > now:
        return f"the next commit is at {format_moment(table.next_commit_at)} at the earliest"
    return "the committer's next round can commit"


def _planned_text(
    task: Task,
    queue: QueueNow,
    ahead: int,
    until: datetime,
    by: datetime | None,
    now: datetime,
) -> str:
    name = queue.queue.name
    parts = [
        f"waits for a worker since {span(task.waiting_since, now)}, {ahead} ahead of it in {name}"
    ]
    if queue.queue.state is queues.QueueState.PAUSED:
        parts.append(f"{name} is paused: {command('compaction', 'queues', 'resume', name)}")
    elif queue.held is not None:
        parts.append(f"{name} waits: {queue.held.reason}")
    if until > now:
        parts.append(f"after {format_moment(until)} nothing new goes before it")
    else:
        parts.append("nothing new goes before it any more")
    if not queue.slots:
        parts.append(f"no worker serves {name}")
    elif by is not None and queue.longest is not None:
        most = seconds(queue.longest.total_seconds())
        parts.append(
            f"claimed by {format_moment(by)} at the latest, while {counted(queue.slots, 'slot')} "
            f"of {counted(len(queue.workers), 'worker')} go on and no merge takes above {most}"
        )
    return "; ".join(parts)


def _claimed_text(attempt: Attempt, task: Task, now: datetime) -> str:
    begun = f"worker {attempt.worker} has it since {span(attempt.claimed_at, now)}"
    number = f"attempt {task.attempts} of {task.max_attempts}"
    if attempt.expires_at <= now:
        return f"{begun}, {number}; its lease is over since {format_moment(attempt.expires_at)}"
    return f"{begun}, {number}; its lease holds until {format_moment(attempt.expires_at)}"
