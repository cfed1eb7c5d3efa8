"""Answers and forms about compaction that only REST has; the others are those of its views."""

from typing import Literal

from pydantic import Field

from arctic_orchestration.compaction.planning.policy import HIGHEST_LEVEL
from arctic_orchestration.compaction.views.documents import (
    CompactionQueueDocument,
    CompactionRecordDocument,
    CompactionTableDocument,
    TaskWaitDocument,
)
from arctic_orchestration.compaction.views.task_documents import (
    CompactionTaskDetails,
    CompactionTaskDocument,
)
from arctic_orchestration.documents import Document
from arctic_orchestration.service.documents import Page
from arctic_orchestration.specification import Specification


class CompactionQueues(Document):
    """The queues that the caller may read, by level."""

    queues: list[CompactionQueueDocument]


class CompactionTablePage(Page):
    """Tables by name."""

    tables: list[CompactionTableDocument]


class CompactionRecords(Page):
    """Commits, newest first."""

    records: list[CompactionRecordDocument]


class TaskLevelForm(Specification):
    """The level of a merge task; more is earlier."""

    level: int = Field(strict=True, ge=-HIGHEST_LEVEL, le=HIGHEST_LEVEL, examples=[5])


class CompactionTaskPage(Page):
    """Live tasks in the order of their claims, then those that ended, newest first."""

    tasks: list[CompactionTaskDocument]


class ExplainedCompactionTask(CompactionTaskDetails):
    """A merge task: its files, attempts and history, and what it waits for."""

    #: null: the task ended
    explanation: TaskWaitDocument | None


class WokenTable(Document):
    """A table whose rest was ended."""

    table: str
    rested: Literal[True]
    #: how many of its files rested
    files: int
