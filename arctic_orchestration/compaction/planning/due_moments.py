"""When the intervals of a partition have passed."""

from datetime import UTC, datetime

from arctic_orchestration.compaction.planning.packing import in_order
from arctic_orchestration.compaction.planning.partition_files import PartitionFiles
from arctic_orchestration.compaction.planning.policy import Policy
from arctic_orchestration.compaction.planning.table_plan import PlanState
from arctic_orchestration.compaction.queue.task import TaskKind

_EVER = datetime.min.replace(tzinfo=UTC)


def due_moments(
    here: PartitionFiles, name: str, policy: Policy, state: PlanState
) -> dict[TaskKind, datetime]:
    """Returns the moments from which a partition is merged, however little there is to gain.

    By minors and majors its small files; by a full rewrite all files, if one of them or a delete is
    newer than the last one.
    """
    full = state.merged_at.get((TaskKind.FULL, name), _EVER)
    major = max(full, state.merged_at.get((TaskKind.MAJOR, name), _EVER))
    minor = max(major, state.merged_at.get((TaskKind.MINOR, name), _EVER))
    small = in_order((*here.fragments, *here.undersized))
    found = {}
    for kind, files, interval, last in (
        (TaskKind.MINOR, here.fragments, policy.minor_interval, minor),
        (TaskKind.MAJOR, small, policy.major_interval, major),
    ):
        if interval is not None and len(files) > 1:
            written = state.written_at(files[0].sequence_number) or _EVER
            found[kind] = max(written, last) + interval
    if policy.full_interval is not None:
        changed = _first_change(here, state.rewritten.get(name, -1))
        if changed is not None:
            written = state.written_at(changed) or _EVER
            found[TaskKind.FULL] = max(written, full) + policy.full_interval
    return found


def _first_change(here: PartitionFiles, since: int) -> int | None:
    """Returns the first sequence number after this one of a file or delete that a task may read.

    Files that were written while a full rewrite was under way may count as of before.
    """
    too_large = {file.path for file in here.too_large}
    numbers = {file.sequence_number for file in here.files if file.path not in too_large}
    numbers |= {delete.sequence_number for delete in here.deletes}
    return min((number for number in numbers if number > since), default=None)
