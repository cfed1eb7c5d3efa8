"""The features that have something that waits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from arctic_orchestration.compaction.views import waits as compaction
from arctic_orchestration.consumers.views import waits as consumers
from arctic_orchestration.freshness.views import waits as freshness
from arctic_orchestration.run_queue.views import waits as run_queue
from arctic_orchestration.schedules.views import waits as schedules
from arctic_orchestration.waits import WaitRows, WaitScope


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """A feature, with what this room asks of it."""

    name: str
    wait_rows: Callable[[], Sequence[WaitRows]]
    #: sentences about processes without which everything of the feature waits, in one location or
    #: all
    trouble: Callable[[sa.Connection, WaitScope, str | None], Sequence[str]] | None = None


ROOMS: tuple[Room, ...] = (
    Room(name="schedules", wait_rows=schedules.wait_rows, trouble=schedules.silent_dispatchers),
    Room(name="run_queue", wait_rows=run_queue.wait_rows, trouble=run_queue.silent_daemon),
    Room(name="freshness", wait_rows=freshness.wait_rows),
    Room(name="compaction", wait_rows=compaction.wait_rows),
    Room(name="consumers", wait_rows=consumers.wait_rows),
)
