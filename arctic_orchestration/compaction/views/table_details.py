"""All that the state database has about one table: its queue, tasks, resting files and commits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from arctic_orchestration.compaction.commit.records import CompactionRecord, records
from arctic_orchestration.compaction.queue import task_store
from arctic_orchestration.compaction.queue.task import Task, TaskState
from arctic_orchestration.compaction.views.records import record_json
from arctic_orchestration.compaction.views.tables import TableView
from arctic_orchestration.compaction.views.task_waits import (
    QueueNow,
    Waiting,
    queue_now,
    waiting_tasks,
)
from arctic_orchestration.quantities import iso


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

    def details_json(self) -> dict[str, Any]:
        """Returns them for programs; the keys are stable."""
        row, queue = self.seen.row, self.queue
        return {
            "resting_files": [
                {"path": one.path, "rests": one.rests, "until": iso(one.until),
                 "reason": one.reason}
                for one in self.seen.resting
            ],
            "queue": queue
            and row
            and {
                "queue": queue.queue.name,
                "because": row.queue_reason,
                "level": row.level,
                "workers": len(queue.workers),
                "slots": queue.slots,
            },
            "live": sum(self.seen.tasks.values()),
            "tasks": [one.to_json() for one in self.waiting],
            "quarantined": [
                {"task": task.id, "partition": task.partition, "at": iso(task.state_at),
                 "reason": task.reason}
                for task in self.quarantined
            ],
            "last_commit": self.last and record_json(self.last),
        }  # fmt: skip


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
    )
