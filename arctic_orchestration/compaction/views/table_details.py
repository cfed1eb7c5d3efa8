"""All that the state database has about one table: its queue, tasks, resting files and commits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.compaction.commit.records import CompactionRecord, records
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.upkeep import upkeep_text
from arctic_orchestration.compaction.views.tables import TableView
from arctic_orchestration.compaction.views.task_waits import (
    QueueNow,
    Waiting,
    queue_now,
    waiting_tasks,
)


@dataclass(frozen=True, kw_only=True)
class TableDetails:
    """The state of a table, with what its tasks wait for."""

    seen: TableView
    #: none: the planner has not found the table yet
    queue: QueueNow | None
    #: the first of all live tasks
    waiting: Sequence[Waiting]
    quarantined: Sequence[Task]
    last: CompactionRecord | None
    #: the result of its upkeep; none: its properties request none
    upkeep: str | None


def table_details(tx: sa.Connection, seen: TableView, now: datetime, limit: int) -> TableDetails:
    """Returns the details of a table, with ``limit`` live tasks at most."""
    row = seen.row
    last = records(tx, table=seen.name, limit=1)
    quarantined = task_store.tasks(tx, table=seen.name, states=[TaskState.QUARANTINED])
    return TableDetails(
        seen=seen,
        queue=queue_now(tx, row.queue) if row else None,
        waiting=waiting_tasks(tx, row, now, limit) if row else [],
        quarantined=sorted(quarantined, key=lambda task: task.state_at, reverse=True),
        last=last[0] if last else None,
        upkeep=upkeep_text(tx, seen.name),
    )
