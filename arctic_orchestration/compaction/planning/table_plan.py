"""The input of a plan of a table, and its result."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from arctic_orchestration.compaction.planning.policy import DISABLED
from arctic_orchestration.compaction.queue.task import PlannedTask, TaskKind
from arctic_orchestration.quantities import counted

#: The maximum number of partitions named as examples.
_EXAMPLES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Retried:
    """A task that stays as it is: a failed one, whose failures count, or one of a full rewrite."""

    kind: TaskKind
    #: why it was planned
    reason: str
    paths: frozenset[str]
    #: whether it waits for its first attempt: a part of a full rewrite
    is_rest: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanState:
    """What a planner knows of the table besides its files and its properties."""

    #: when a task of a kind was last committed in a partition, by its name
    merged_at: Mapping[tuple[TaskKind, str], datetime] = field(default_factory=dict)
    #: the sequence numbers of the last full rewrites, by the partition's name
    rewritten: Mapping[str, int] = field(default_factory=dict)
    #: when files of a sequence number were written; none: long ago
    written_at: Callable[[int], datetime | None] = lambda _: None
    #: data files of tasks that are claimed or merged: they are excluded
    held_files: frozenset[str] = frozenset()
    #: names of the partitions with such a major task: they are excluded as a whole
    held_partitions: frozenset[str] = frozenset()
    #: resting data files, and until when: they are excluded
    resting: Mapping[str, datetime] = field(default_factory=dict)
    #: tasks that wait for a retry
    retried: tuple[Retried, ...] = ()
    #: whether a person requested it: everything that can be improved is
    forced: bool = False
    #: whether all files are to be rewritten then
    full: bool = False


class Left(StrEnum):
    """Why a partition is left alone."""

    FINE = "every file is large enough, and few rows or none are deleted"
    TOO_FEW = "fewer small files or deletes than it takes, and the interval has not passed"
    UNPAIRED = "no two of the small files fit into one of the target size"
    GROWING = "the rest would rewrite a file that is larger than all others together"
    HELD = "its files are in tasks under way"
    RESTING = "its files rest after a quarantine, or as a person canceled their task"
    TOO_LARGE = "more than arctic.compaction.max-task-size at once"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionPlan:
    """The plan of one partition of one spec; sizes in bytes."""

    spec_id: int
    #: the partition's name for people; empty: the table is unpartitioned
    name: str
    files: int
    bytes: int
    fragments: int
    undersized: int
    oversized: int
    with_deletes: int
    #: distinct delete files that apply to any of its files
    delete_files: int
    #: the planned kind of task; none: nothing
    kind: TaskKind | None
    tasks: int
    #: data files that are in its tasks
    merged_files: int
    #: why it is left alone; none: it is not
    left: Left | None
    #: the reason of the decision, for people
    reason: str
    #: excluded files, and why
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftAlone:
    """Partitions that are left alone for the same cause."""

    left: Left
    partitions: int
    files: int
    #: the first of them, with its numbers
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TablePlan:
    """What is to be merged in a table, and why the rest is not."""

    #: the planned snapshot; none: the table is empty
    snapshot_id: int | None
    sequence_number: int
    files: int = 0
    bytes: int = 0
    tasks: tuple[PlannedTask, ...] = ()
    partitions: tuple[PartitionPlan, ...] = ()
    #: the next end of an interval, when the plan of the same files may change
    recheck_at: datetime | None = None
    #: why the table is not compacted at all
    refused: str | None = None

    @property
    def gain(self) -> str:
        """The effect of the plan, for people."""
        if self.refused is not None:
            prefix = "not compacted" if self.refused == DISABLED else "refused"
            return f"{prefix}: {self.refused}"
        if not self.tasks:
            return f"nothing to merge in {counted(self.files, 'file')}"
        merged = sum(len(task.group.files) for task in self.tasks)
        return f"{merged} of {counted(self.files, 'file')} in {counted(len(self.tasks), 'task')}"

    def left_alone(self) -> list[LeftAlone]:
        """Returns the partitions without tasks, by cause, most frequent first."""
        causes: dict[Left, list[PartitionPlan]] = defaultdict(list)
        for partition in self.partitions:
            if partition.left is not None:
                causes[partition.left].append(partition)
        found = [
            LeftAlone(
                left=left,
                partitions=len(partitions),
                files=sum(partition.files for partition in partitions),
                examples=_examples(partitions),
            )
            for left, partitions in causes.items()
        ]
        return sorted(found, key=lambda one: (-one.partitions, one.left))


def _examples(partitions: Sequence[PartitionPlan]) -> tuple[str, ...]:
    return tuple(
        f"{partition.name}: {partition.reason}" if partition.name else partition.reason
        for partition in partitions[:_EXAMPLES]
    )
