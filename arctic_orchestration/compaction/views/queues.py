"""Queues of merge tasks, for programs."""

from typing import Any

from arctic_orchestration.compaction.queue.queue import CompactionQueue, QueueCounts
from arctic_orchestration.compaction.queue.task import WAITING, TaskState
from arctic_orchestration.compaction.work.workers import Worker


def waiting_in(one: QueueCounts) -> int:
    """Returns how many tasks of a queue wait for a worker, now or after their retry interval."""
    return sum(one.states.get(state, 0) for state in WAITING)


def queue_json(queue: CompactionQueue) -> dict[str, Any]:
    """Returns the definition of a queue for programs; its keys are stable."""
    return {
        "queue": queue.name,
        "capacity": queue.capacity,
        "level": queue.level,
        "share": queue.share,
        "max_workers": queue.max_workers,
        "execution_timeout_seconds": queue.execution_timeout_seconds,
        "state": queue.state.value,
    }


def counted_json(one: QueueCounts, workers: list[Worker]) -> dict[str, Any]:
    """Returns a queue for programs; its keys are stable."""
    return {
        **queue_json(one.queue),
        "tasks": one.live,
        "room": one.room,
        "waiting": waiting_in(one),
        "claimed": one.states.get(TaskState.CLAIMED, 0),
        "merged": one.states.get(TaskState.MERGED, 0),
        "tables": one.tables,
        "workers": [
            {"worker": worker.id, "parallelism": worker.parallelism, "host": worker.host}
            for worker in workers
        ],
    }
