"""The next ticks that one target partition gets."""

from collections.abc import Mapping
from datetime import datetime

from arctic_orchestration.schedules.inventory import Inventory
from arctic_orchestration.schedules.stored_schedule import StoredSchedule


def ticks_of_partition(
    inventory: Inventory | None,
    stored: StoredSchedule,
    key: str,
    ticks: Mapping[int, datetime],
) -> tuple[dict[int, datetime], dict[int, datetime]]:
    """Returns the next ticks of a partition by the number of the leaf, and those that have passed.

    That of ``partition_end`` is of one window: a partition whose moment has passed gets none.

    Args:
        inventory: what the schedule's location has.
        stored: the schedule.
        key: the partition of its target.
        ticks: the next ticks of the schedule.
    """
    clocks = {number: leaf.clock for number, leaf in enumerate(stored.leaves) if number in ticks}
    of_ends = {n: c.after for n, c in clocks.items() if c is not None and c.after is not None}
    partitioning = (
        inventory.partitioning_of(stored.schedule.target) if inventory and of_ends else None
    )
    space = partitioning.key_space() if partitioning is not None else None
    if space is None:
        return dict(ticks), {}
    from arctic_orchestration.partitioning.target import end_of

    end = end_of(space.definition, key)
    found, passed = dict(ticks), dict[int, datetime]()
    for number, after in of_ends.items():
        del found[number]
        if end is not None:
            of = found if end + after >= ticks[number] else passed
            of[number] = end + after
    return found, passed
