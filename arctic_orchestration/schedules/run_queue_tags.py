"""What a schedule says of its runs to the run queue, as tags.

The run coordinator of ``arctic_orchestration.coordinator`` reads them when the run is submitted;
any other lets them be.
"""

import re
from collections.abc import Mapping

from arctic_orchestration.schedules.constraints.concurrency import Concurrency
from arctic_orchestration.schedules.schedule import Schedule

_LEVEL = "arctic/level"
_GROUP = "arctic/group"
#: what a tag's key can hold, and a group of the run queue may be called
_GROUP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def queue_tags(schedule: Schedule) -> Mapping[str, str]:
    """The tags: its own, its priority as the level, its concurrency groups as groups.

    So a group that is configured for the run queue, too, counts the runs of the schedule together
    with runs by hand and backfills.
    """
    tags: dict[str, str] = {}
    for constraint in schedule.constraints:
        group = constraint.group if isinstance(constraint, Concurrency) else None
        if group is not None and _GROUP_NAME.fullmatch(group):
            tags[f"{_GROUP}.{group}"] = f"of schedule {schedule.name}"
    if schedule.priority:
        tags[_LEVEL] = str(schedule.priority)
    return {**tags, **schedule.tags}
