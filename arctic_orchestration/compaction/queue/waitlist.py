"""Who gets the room of a queue that was full: the table that has waited longest for it.

A table whose tasks found no room stays due. It stands in the line of its queue since it became due
or, if it has got room for some of its tasks since, from then on: whoever gets room goes to the end.
Before a planner looks at any table, it asks whether a queue has room for one that stands in line,
and looks at the first of these, whatever its ``check-interval`` is. So a table that has more to
offer than its queue takes gets what is left over, however often it is looked at and whatever its
name is. The line is in the rows of the tables, and so the same for all planners, also for one that
has just begun.

**The bound.** Let ``n`` tables of the queue be due when ours becomes so, ours among them, and let

- ``t`` be the time from one tick of the planner to the next, the tick included;
- ``r`` the longest time in which a queue that is full gets no room, that is, until one of its live
  tasks ends, in whatever way: with slots that are never idle, ``d`` seconds a claim, and ``c`` for
  the committer (the commit interval and a tick of it) that is ``d + c`` if no attempt fails.

1. Nobody comes to stand before us but those ``n - 1``: who becomes due later, and who gets room,
   stands behind.
2. In ``r + t`` a tick finds room and looks at the first in line, and at the next as long as there
   is room. Each gets room for one task or more, or has nothing to offer any more: either way it is
   not before us any more. One that cannot be looked at, or that rests, is passed over.

So a task of ours is offered at the latest ``n * (r + t)`` after the first look at our table since
its commit, which comes after its ``check-interval`` and a tick, or a tick after somebody said that
the table changed. From then on ``ranking`` bounds how long the task waits. Not in the bound are
ticks that are too short to reach a table, room that a person takes (``plan --force``), and room
that comes while another table is being planned: that one takes it. Where planning and committing
take turns, as they do in one process, that is only the room of a task that ends uncommitted.
"""

from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.tables import CompactionTable


def waiting_for_room(tx: sa.Connection, now: datetime) -> list[CompactionTable]:
    """The tables in line whose queue has room now, those first that have waited longest for it."""
    # The line may be long where there is none.
    roomy = queues.queues_with_room(tx)
    waiting = tables.left_due(tx, now) if roomy else []
    return [table for table in waiting if table.queue in roomy]
