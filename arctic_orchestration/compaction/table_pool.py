"""Work on several tables at once, so that a slow table does not delay the others.

A pool has a bounded number of threads. It never works on one table twice at the same time,
whatever the work: a table whose commit is under way is not planned. The call that starts work
waits for it up to a deadline. Work that takes longer goes on in its thread; a later call collects
its result. The threads are daemons: each step of compaction may be killed anywhere, so a hanging
catalog does not keep the process from ending.

Work that takes longer than the pool's limit is *overdue*. A thread cannot be killed, so it goes on,
and its table is not processed twice; but another table gets its place. The number of such extra
places is bounded: beyond it, overdue work delays other tables.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Self, TypeVar

from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.quantities import format_duration

#: how many tables are processed at once; each needs a connection to the state database at times
AT_ONCE = 8
#: how long the work on a table may take before another table gets its place
LIMIT = timedelta(minutes=2)
#: the number of extra places for overdue work
MOST_OVERDUE = 24

T = TypeVar("T")


class Counts:
    """The base of counts, over all tables."""

    def plus(self, other: Self) -> Self:
        """Returns the sum."""
        return type(self)(
            **{name: count + getattr(other, name) for name, count in vars(self).items()}
        )


@dataclass(frozen=True, kw_only=True)
class Ended(Generic[T]):
    """The end of the work on a table: its result, or the error that ended it."""

    table: str
    result: T | None
    error: BaseException | None

    @property
    def ends_all(self) -> bool:
        """Whether the error affects all tables, not only this one."""
        return self.error is not None and (
            isinstance(self.error, DatabaseUnavailable) or not isinstance(self.error, Exception)
        )


class TablePool:
    """The threads, and the tables that they process.

    Args:
        at_once: how many tables are processed at once, without overdue work.
        limit: the time after which the work on a table is overdue.
        most_overdue: how much overdue work is not counted in ``at_once``.
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
        #: the tables in progress, and since when by the monotonic clock; read and written under
        #: ``changed``
        self.busy: dict[str, float] = {}

    def overdue(self) -> frozenset[str]:
        """Returns the tables whose work is overdue."""
        with self.changed:
            before = time.monotonic() - self.limit.total_seconds()
            return frozenset(table for table, since in self.busy.items() if since <= before)

    @property
    def is_stuck(self) -> bool:
        """Whether overdue work takes all places, so that no table is started."""
        with self.changed:
            return len(self.overdue()) >= self.at_once + self.most_overdue

    def has_room(self) -> bool:
        """Returns whether another table may be started."""
        with self.changed:
            given_away = min(len(self.overdue()), self.most_overdue)
            return len(self.busy) - given_away < self.at_once

    def next_overdue_in(self) -> float:
        """Seconds until more work is overdue; infinite: no other work is in progress."""
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
        #: the tables of this kind of work
        self._under_way: set[str] = set()
        #: the tables among them that were reported as overdue
        self._reported: frozenset[str] = frozenset()

    def run(
        self,
        tables: Iterable[str],
        work: Callable[[str], T],
        hear: Callable[[Ended[T]], bool],
        seconds: float,
    ) -> list[str]:
        """Processes tables in their order, and waits for them.

        Skips a table in progress, or whose work has just ended. Also reports work of an earlier
        call that has ended since.

        Args:
            tables: the next one is taken when a thread is free, so an iterator may choose late.
            work: processes a table; called in a thread of the pool.
            hear: receives each end, in this thread; returns false to start no further table.
            seconds: the time limit after which nothing is started or waited for.

        Returns:
            the tables that were started.

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
        """Waits until a table is not in progress, at most this long."""
        with self._pool.changed:
            self._pool.changed.wait_for(lambda: table not in self._pool.busy, seconds)

    def is_busy(self, table: str) -> bool:
        """Returns whether a table is in progress, for this kind of work or another."""
        with self._pool.changed:
            return table in self._pool.busy

    def overdue(self) -> frozenset[str]:
        """Returns the tables whose work of this kind is overdue."""
        with self._pool.changed:
            return self._pool.overdue() & self._under_way

    def newly_overdue(self) -> list[str]:
        """Returns the overdue tables that were not overdue at the last call."""
        overdue = self.overdue()
        new, self._reported = overdue - self._reported, overdue
        return sorted(new)

    def overdue_text(self) -> str:
        """Describes overdue work, for people."""
        text = f"it has taken longer than {format_duration(self._pool.limit)}, and goes on"
        if self._pool.is_stuck:
            return f"{text}; so many tables do that no other is begun: restart the process"
        return text

    def _start(self, table: str, work: Callable[[str], T]) -> bool:
        """Starts the work on a table; false: it is in progress, or its end was not reported yet."""
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
        """Waits until work has ended, or a thread may be free, or until the deadline."""
        with self._pool.changed:
            if not self._ended:
                seconds = min(until - time.monotonic(), self._pool.next_overdue_in())
                self._pool.changed.wait(max(0.0, seconds))
