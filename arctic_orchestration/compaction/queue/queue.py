"""A queue of merge tasks, and what it has."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from arctic_orchestration.compaction.queue.task import TaskState

#: of the queue ``default``, and of a queue that is added without saying it
CAPACITY = 1000
EXECUTION_TIMEOUT_SECONDS = 2 * 60 * 60


class QueueState(StrEnum):
    """What a queue does with tasks."""

    #: it takes tasks, and workers claim them
    OPEN = "open"
    #: it takes tasks, and none is claimed; what workers have is finished and committed
    PAUSED = "paused"
    #: it takes no task; what waits is claimed
    DRAINING = "draining"


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionQueue:
    """A queue of merge tasks."""

    name: str
    #: how many live tasks it takes
    capacity: int = CAPACITY
    #: where two queues have had their shares alike, the higher level goes first
    level: int = 0
    #: where workers serve several queues, they work in proportion to the shares
    share: int = 1
    #: how many workers are started for it at most; those that people start do not count
    max_workers: int = 1
    #: how long an attempt may take; then it counts as lost, though its worker is alive
    execution_timeout_seconds: int = EXECUTION_TIMEOUT_SECONDS
    state: QueueState = QueueState.OPEN


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueCounts:
    """What a queue has: its tasks by state, and its tables."""

    queue: CompactionQueue
    states: Mapping[TaskState, int]
    tables: int

    @property
    def live(self) -> int:
        """How much of the capacity is taken."""
        return sum(self.states.values())

    @property
    def room(self) -> int:
        """How many more tasks it takes."""
        if self.queue.state is QueueState.DRAINING:
            return 0
        return max(self.queue.capacity - self.live, 0)
