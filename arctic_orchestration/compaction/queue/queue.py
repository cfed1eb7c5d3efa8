"""A queue of merge tasks, and its counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from arctic_orchestration.compaction.queue.task import WAITING, TaskState

#: the hours of a queue that never closes
ALWAYS = "always"
#: of the queue ``default``, and the default of an added queue
CAPACITY = 1000
EXECUTION_TIMEOUT_SECONDS = 2 * 60 * 60


class QueueState(StrEnum):
    """What a queue does with tasks."""

    #: it accepts tasks, and workers claim them
    OPEN = "open"
    #: it accepts tasks, and none is claimed; claimed tasks are finished and committed
    PAUSED = "paused"
    #: it accepts no task; waiting tasks are claimed
    DRAINING = "draining"


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionQueue:
    """A queue of merge tasks."""

    name: str
    #: the maximum number of live tasks
    capacity: int = CAPACITY
    #: of two queues at equal shares, the higher level comes first
    level: int = 0
    #: workers that serve several queues divide their work in proportion to the shares
    share: int = 1
    #: the maximum number of workers that are started for it; workers started by people do not count
    max_workers: int = 1
    #: the number of workers that are kept, also without tasks
    min_workers: int = 0
    #: the Spark properties of an application that each worker starts for itself; none: workers use
    #: the session of their code location
    application: Mapping[str, str] | None = None
    #: the time limit of an attempt; then it counts as lost, even if its worker is alive
    execution_timeout_seconds: int = EXECUTION_TIMEOUT_SECONDS
    #: when workers claim its tasks: ``22:00-06:00 Europe/Berlin mon,tue``, or ``always``
    hours: str = ALWAYS
    #: how many of its tasks are merged at once at most, on average; 0: any number
    budget: float = 0.0
    state: QueueState = QueueState.OPEN


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueCounts:
    """The tasks of a queue by state, and its tables."""

    queue: CompactionQueue
    #: why nothing of it is claimed now, because of its hours or budget; none: nothing is held
    held: str | None
    states: Mapping[TaskState, int]
    tables: int

    @property
    def live(self) -> int:
        """How many live tasks use its capacity."""
        return sum(self.states.values())

    @property
    def waiting(self) -> int:
        """How many tasks wait for a worker, now or after their retry interval."""
        return sum(self.states.get(state, 0) for state in WAITING)

    @property
    def room(self) -> int:
        """How many more tasks it accepts."""
        if self.queue.state is QueueState.DRAINING:
            return 0
        return max(self.queue.capacity - self.live, 0)
