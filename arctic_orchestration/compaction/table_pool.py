"""Work on several tables at once, so that a slow table does not hold back the others.

A pool has a bounded number of threads. It never works on one table twice at the same time,
whatever the work: a table whose commit is under way is not planned. The call that starts work
waits for it up to a deadline. Work that takes longer goes on in its thread; a later call collects
its result. The threads are daemons: each step of compaction may be killed anywhere, so a hanging
catalog does not keep the process from ending.

Work that takes longer than the pool's limit is *overdue*. No thread can be killed, so it goes on,
and its table is not worked on twice; but another table gets its place. The number of places that
are given away so is bounded: beyond it, overdue work holds back other tables.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.quantities import format_duration

#: how many tables are worked on at once; each needs a connection to the state database at times
AT_ONCE = 8
#: how long the work on a table may take before another table gets its place
LIMIT = timedelta(minutes=2)
#: how many places are given away so
MOST_OVERDUE = 24

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Ended(Generic[T]):
    """The end of the work on a table: its result, or the error that ended it."""

    table: str
    result: T | None
    error: BaseException | None

    @property
    def ends_all(self) -> bool:
        """Whether the error is not of this table alone: the others would have it too."""
        return self.error is not None and (
            isinstance(self.error, DatabaseUnavailable) or not isinstance(self.error, Exception)
        )


class TablePool:
    """The threads, and the tables that they work on.

    Args:
        at_once: how many tables are worked on at once, overdue work apart.
        limit: after that long the work on a table is overdue.
        most_overdue: how much overdue work has no part in ``at_once``.
    """

    def __init__(
        self,
        at_once: int = AT_ONCE,
        *,
        limit: timedelta = LIMIT,
        most_overdue: int = MOST_OVERDUE,
    ) -> None:
        self.at_once = at_once
        self.limit = limit
        self.most_overdue = most_overdue
        self.changed = threading.Condition()
        #: the tables that are worked on, and since when by the monotonic clock; read and written
        #: under ``changed``
        self.busy: dict[str, float] = {}

    def overdue(self) -> frozenset[str]:
        """The tables whose work is overdue."""
        with self.changed:
            before = time.monotonic() - self.limit.total_seconds()
            return frozenset(table for table, since in self.busy.items() if since <= before)

    @property
    def is_stuck(self) -> bool:
        """Whether overdue work takes all places, so that no table is begun."""
        with self.changed:
            return len(self.overdue()) >= self.at_once + self.most_overdue

    def has_room(self) -> bool:
        """Whether another table may be begun."""
        with self.changed:
            given_away = min(len(self.overdue()), self.most_overdue)
            return len(self.busy) - given_away < self.at_once

    def next_overdue_in(self) -> float:
        """Seconds until more work is overdue; infinite: none is under way that is not."""
        with self.changed:
            now, limit = time.monotonic(), self.limit.total_seconds()
            left = [since + limit - now for since in self.busy.values()]
            return min((one for one in left if one > 0), default=math.inf)


class TableJobs(Generic[T]):
    """One kind of work in a pool that may be shared with others.

    Args:
        pool: the threads.
    """

    def __init__(self, pool: TablePool) -> None:
        self._pool = pool
        self._ended: list[Ended[T]] = []
        #: the tables that this kind of work is done for
        self._under_way: set[str] = set()
        #: those of them that were reported as overdue
        self._reported: frozenset[str] = frozenset()

    def run(
        self,
        tables: Iterable[str],
        work: Callable[[str], T],
        hear: Callable[[Ended[T]], bool],
        seconds: float,
    ) -> list[str]:
        """Works on tables in their order, and waits for them.

        A table that is worked on already, or whose work has just ended, is passed over. Work that
        an earlier call started and that has ended since is reported too.

        Args:
            tables: the next is taken when a thread is free, so an iterator may choose that late.
            work: what is done for a table; called in a thread of the pool.
            hear: called in this thread with each end; false: no further table is begun.
            seconds: after that nothing is begun and nothing is waited for any more.

        Returns:
            the tables that were begun.

        Errors:
            DatabaseUnavailable: the state database did not answer for a table. It is raised when
                the others have ended.
        """
        until = time.monotonic() + seconds
        waiting, begun, mine = iter(tables), list[str](), set[str]()
        # The list of tables may have been made before the work on them ended.
        over: set[str] = set()
        goes_on = True
        lost: BaseException | None = None
        while True:
            for one in self._take():
                mine.discard(one.table)
                over.add(one.table)
                if one.ends_all:
                    goes_on, lost = False, one.error
                elif not hear(one):
                    goes_on = False
            if time.monotonic() >= until:
                break
            mine -= self._pool.overdue()
            if goes_on and self._pool.has_room():
                table = next(waiting, None)
                goes_on = table is not None
                if table is not None and table not in over and self._start(table, work):
                    begun.append(table)
                    mine.add(table)
                continue
            if not mine and not goes_on:
                break
            self._wait(until)
        if lost is not None:
            raise lost
        return begun

    def wait_for(self, table: str, seconds: float) -> None:
        """Returns when nobody works on a table, or after so long."""
        with self._pool.changed:
            self._pool.changed.wait_for(lambda: table not in self._pool.busy, seconds)

    def is_busy(self, table: str) -> bool:
        """Whether a table is worked on, by this kind of work or another."""
        with self._pool.changed:
            return table in self._pool.busy

    def overdue(self) -> frozenset[str]:
        """The tables whose work of this kind is overdue."""
        with self._pool.changed:
            return self._pool.overdue() & self._under_way

    def newly_overdue(self) -> list[str]:
        """Those of them that were not overdue at the last call."""
        overdue = self.overdue()
        new, self._reported = overdue - self._reported, overdue
        return sorted(new)

    def overdue_text(self) -> str:
        """What is wrong with overdue work, for people."""
        text = f"it has taken longer than {format_duration(self._pool.limit)}, and goes on"
        if self._pool.is_stuck:
            return f"{text}; so many tables do that no other is begun: restart the process"
        return text

    def _start(self, table: str, work: Callable[[str], T]) -> bool:
        """Begins the work on a table; false: it goes on, or its end was not reported yet."""
        with self._pool.changed:
            if table in self._pool.busy or any(one.table == table for one in self._ended):
                return False
            self._pool.busy[table] = time.monotonic()
            self._under_way.add(table)
        name = f"table {table}"
        threading.Thread(target=self._do, args=(table, work), name=name, daemon=True).start()
        return True

    def _do(self, table: str, work: Callable[[str], T]) -> None:
        result: T | None = None
        problem: BaseException | None = None
        try:
            result = work(table)
        except BaseException as error:
            # Raised again where the tick waits: the table must not stay taken.
            problem = error
        with self._pool.changed:
            self._ended.append(Ended(table=table, result=result, error=problem))
            self._pool.busy.pop(table)
            self._under_way.discard(table)
            self._pool.changed.notify_all()

    def _take(self) -> list[Ended[T]]:
        with self._pool.changed:
            ended, self._ended = self._ended, []
        return ended

    def _wait(self, until: float) -> None:
        """Returns when work has ended, or a thread may be free, or at the deadline."""
        with self._pool.changed:
            if not self._ended:
                seconds = min(until - time.monotonic(), self._pool.next_overdue_in())
                self._pool.changed.wait(max(0.0, seconds))
