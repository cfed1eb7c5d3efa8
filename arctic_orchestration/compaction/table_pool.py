"""Work on several tables at once, so that a slow table does not hold back the others.

A pool has a bounded number of threads. It never works on one table twice at the same time,
whatever the work: a table whose commit is under way is not planned. The call that starts work
waits for it up to a deadline. Work that takes longer goes on in its thread; a later call collects
its result. The threads are daemons: each step of compaction may be killed anywhere, so a hanging
catalog does not keep the process from ending.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from arctic_orchestration.errors import DatabaseUnavailable

#: how many tables are worked on at once; each needs a connection to the state database at times
AT_ONCE = 8

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
        at_once: how many tables are worked on at once.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self.at_once = at_once
        self.changed = threading.Condition()
        #: the tables that are worked on; read and written under ``changed``
        self.busy: set[str] = set()


class TableJobs(Generic[T]):
    """One kind of work in a pool that may be shared with others.

    Args:
        pool: the threads.
    """

    def __init__(self, pool: TablePool) -> None:
        self._pool = pool
        self._ended: list[Ended[T]] = []

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
            if goes_on and self._has_room():
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

    def _has_room(self) -> bool:
        with self._pool.changed:
            return len(self._pool.busy) < self._pool.at_once

    def _start(self, table: str, work: Callable[[str], T]) -> bool:
        """Begins the work on a table; false: it goes on, or its end was not reported yet."""
        with self._pool.changed:
            if table in self._pool.busy or any(one.table == table for one in self._ended):
                return False
            self._pool.busy.add(table)
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
            self._pool.busy.discard(table)
            self._pool.changed.notify_all()

    def _take(self) -> list[Ended[T]]:
        with self._pool.changed:
            ended, self._ended = self._ended, []
        return ended

    def _wait(self, until: float) -> None:
        """Returns when work has ended, or a thread may be free, or at the deadline."""
        with self._pool.changed:
            if not self._ended:
                self._pool.changed.wait(max(0.0, until - time.monotonic()))
