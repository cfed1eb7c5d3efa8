"""The tags of a run by which its schedule addresses the run queue.

The run coordinator of ``arctic_orchestration.coordinator`` reads them when the run is submitted;
any other ignores them.
"""

import re
from collections.abc import Mapping

from arctic_orchestration.schedules.constraints.concurrency import Concurrency
from arctic_orchestration.schedules.schedule import Schedule

_LEVEL = "arctic/level"
_GROUP = "arctic/group"
#: valid characters of a tag's key and of a group of the run queue
_GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def queue_tags(schedule: Schedule) -> Mapping[str, str]:
    """Returns the schedule's tags, its priority as the level, and its concurrency groups.

    A group that is also configured for the run queue counts the schedule's runs together with
    manual runs and backfills.
    """
    tags: dict[str, str] = {}
    for constraint in schedule.constraints:
        group = constraint.group if isinstance(constraint, Concurrency) else None
        if group is not None and _GROUP_NAME.fullmatch(group):
            tags[f"{_GROUP}.{group}"] = f"of schedule {schedule.name}"
    if schedule.priority:
        tags[_LEVEL] = str(schedule.priority)
    return {**tags, **schedule.tags}
