"""Plans of tables, for programs."""

from typing import Any

from arctic_orchestration.compaction.planning.table_plan import TablePlan
from arctic_orchestration.compaction.queue.task import PlannedTask
from arctic_orchestration.compaction.views.tasks import file_json
from arctic_orchestration.quantities import iso


def plan_json(plan: TablePlan) -> dict[str, Any]:
    """Returns a plan for programs; its keys are stable."""
    return {
        "snapshot_id": plan.snapshot_id,
        "files": plan.files,
        "bytes": plan.bytes,
        "refused": plan.refused,
        "gain": plan.gain,
        "recheck_at": iso(plan.recheck_at),
        "tasks": [_task_json(task) for task in plan.tasks],
        "partitions": [
            {
                "partition": one.name,
                "files": one.files,
                "bytes": one.bytes,
                "fragments": one.fragments,
                "undersized": one.undersized,
                "oversized": one.oversized,
                "with_deletes": one.with_deletes,
                "delete_files": one.delete_files,
                "kind": one.kind and one.kind.value,
                "tasks": one.tasks,
                "merged_files": one.merged_files,
                "left": one.left and one.left.name.lower(),
                "because": one.reason,
                "notes": list(one.notes),
            }
            for one in plan.partitions
        ],
    }


def _task_json(task: PlannedTask) -> dict[str, Any]:
    return {
        "kind": task.kind.value,
        "partition": task.partition,
        "files": len(task.group.files),
        "delete_files": len(task.group.delete_files),
        "small_files": task.small_files,
        "bytes": task.bytes,
        "gain": task.gain,
        "because": task.reason,
        "data_files": [file_json(file) for file in task.group.files],
    }
