"""Which table gets the room of a full queue: the one that has waited longest for it.

A table whose tasks did not fit stays due. Its position in its queue's waitlist is the moment since
when it is due or, if it has since got room for some of its tasks, that moment: a table that gets
room goes to the end. Before a planner checks any table, it checks whether a queue has room for a
waiting one, and plans the first of these, regardless of its ``check-interval``. So a table with
more tasks than its queue accepts gets what is left over, however often it is checked and whatever
its name is. The waitlist is stored in the rows of the tables, and so is shared by all planners,
including new ones.

**The bound.** Let ``n`` tables of the queue, including ours, be due when ours becomes due, and let

- ``t`` be the time from one tick of the planner to the next, the tick included;
- ``r`` the longest time without room in a full queue, that is, until one of its live tasks ends, in
  any way: with slots that are never idle, ``d`` seconds a claim, and ``c`` for the committer (the
  commit interval and a tick of it) that is ``d + c`` if no attempt fails.

1. Only those ``n - 1`` tables are before ours: a table that becomes due later, or gets room, is
   behind it.
2. Within ``r + t`` a tick finds room and checks the first table of the waitlist, and the next as
   long as there is room. Each gets room for at least one task, or has nothing more to offer: either
   way it is no longer before ours. Tables that rest or cannot be checked are skipped.

So a task of ours is offered at the latest ``n * (r + t)`` after the first check of our table since
its commit, which comes after its ``check-interval`` and a tick, or a tick after an event reports a
change. From then on ``ranking`` bounds how long the task waits. The bound excludes ticks that are
too short to reach a table, room that a person takes (``plan --force``), and room that appears while
another table is being planned: that one takes it. Where planning and committing take turns, as in
one process, that is only the room of a task that ends uncommitted.
"""

from datetime import datetime

import sqlalchemy as sa

from arctic_orchestration.compaction import tables
from arctic_orchestration.compaction.queue import queues
from arctic_orchestration.compaction.tables import CompactionTable


def waiting_for_room(tx: sa.Connection, now: datetime) -> list[CompactionTable]:
    """Returns the waiting tables whose queue has room now, longest waiting first."""
    # The waitlist may be long where there is no room.
    roomy = queues.queues_with_room(tx)
    waiting = tables.left_due(tx, now) if roomy else []
    return [table for table in waiting if table.queue in roomy]
