"""Commits of compaction, for programs."""

from typing import Any

from arctic_orchestration.compaction.commit.records import CompactionRecord
from arctic_orchestration.quantities import iso


def record_json(record: CompactionRecord) -> dict[str, Any]:
    """Returns a record for programs; its keys are stable."""
    return {
        "table": record.table,
        "snapshot_id": record.snapshot_id,
        "at": iso(record.at),
        "tasks": list(record.tasks),
        "files_in": record.files_in,
        "files_out": record.files_out,
        "delete_files_removed": record.delete_files_removed,
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
        "rows": record.rows,
        "rows_deleted": record.rows_deleted,
        "merge_seconds": record.merge_seconds,
        "waited_seconds": record.waited_seconds,
        "ways": dict(record.ways),
    }
