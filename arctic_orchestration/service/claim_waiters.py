"""Claims that wait for a task, without a thread for each.

Waiting requests are entries of the event loop. While there are some, one thread asks the state
database at short intervals how many tasks are claimable in which queue; the loop then wakes as many
requests as these, in the order of their arrival. A thousand idle workers cost one small statement
an interval, as one does. Since that is most of what they cost, it is sent by the driver on a
connection that is kept, in a thread of its own: a transaction costs ten times as much.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from arctic_orchestration.clock import utc_now
from arctic_orchestration.compaction.queue.claim_order import claimable
from arctic_orchestration.errors import DatabaseUnavailable
from arctic_orchestration.state.compaction_tables import compaction_tasks, is_planned
from arctic_orchestration.state.database import Database

_log = logging.getLogger(__name__)
#: how long a task may be claimable until a waiting request is woken
INTERVAL_SECONDS = 0.035
#: how late a task may be claimed that failed, and whose retry is due
_RETRY_SECONDS = 1.0
#: after the state database did not answer
_PAUSE_SECONDS = 2.0

_IS_PLANNED = sa.select(sa.literal(1)).select_from(compaction_tasks).where(is_planned).limit(1)
_LITERAL = {"literal_binds": True}


@dataclass(eq=False)
class _Waiter:
    worker: str
    #: empty: all queues; none: of no queue, since the worker is quiet
    queues: Sequence[str] | None
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class ClaimWaiters:
    """The waiting claims of one application, all on one event loop.

    Args:
        database: the state database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._error: type[Exception] = database.engine.dialect.loaded_dbapi.Error
        self._waiters: dict[_Waiter, None] = {}
        #: held to add a waiter, and to end the thread when there is none
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None
        #: how many tasks are claimable, as of the last answer; none: unknown
        self._tasks: Counter[str] | None = None

    async def wait(self, worker: str, queues: Sequence[str] | None, seconds: float) -> bool:
        """Waits until a task of the queues may be claimable, or the worker has another order.

        Args:
            worker: its id.
            queues: their names; empty: all queues; none: waits for another order alone.
            seconds: the longest wait.

        Returns:
            false: the time is over.
        """
        waiter = _Waiter(worker, queues)
        with self._lock:
            self._waiters[waiter] = None
            if self._watcher is None:
                loop = asyncio.get_running_loop()
                self._watcher = threading.Thread(target=self._watch, args=(loop,), daemon=True)
                self._watcher.start()
        try:
            async with asyncio.timeout(seconds):
                await waiter.woken.wait()
            return True
        except TimeoutError:
            return False
        finally:
            del self._waiters[waiter]

    @property
    def has_none(self) -> bool:
        """Whether nothing was claimable a moment ago: a claim need not try before it waits."""
        return self._tasks is not None and not self._tasks

    def wake(self, worker: str) -> None:
        """Wakes the claims of a worker; called in the event loop."""
        for waiter in self._waiters:
            if waiter.worker == worker:
                waiter.woken.set()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                self._watch_connected(loop)
                # Not asked again: another thread may already watch for a later waiter.
                return
            except Exception as error:
                self._tasks = None
                is_away = isinstance(error, (DatabaseUnavailable, sa.exc.DBAPIError, self._error))
                _log.warning("claims wait: %s", error, exc_info=not is_away)
                time.sleep(_PAUSE_SECONDS)
            if not self._goes_on():
                return

    def _watch_connected(self, loop: asyncio.AbstractEventLoop) -> None:
        engine = self._database.engine
        statement = str(_IS_PLANNED.compile(dialect=engine.dialect, compile_kwargs=_LITERAL))
        # One of the two of the pool: a third would be too many for a process.
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT", arctic_begin="DEFERRED")
            try:
                self._watch_on(connection, statement, loop)
            finally:
                # The pool would set it to the driver's default, not that of other connections.
                connection.invalidate()

    def _watch_on(
        self, connection: sa.Connection, statement: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        cursor = connection.connection.cursor()
        counted_at = 0.0
        while self._goes_on():
            cursor.execute(statement)
            # Failed tasks become claimable by the clock alone.
            if cursor.fetchone() or time.monotonic() > counted_at + _RETRY_SECONDS:
                counted_at = time.monotonic()
                with connection.begin():
                    # By this machine's clock, and without locks: the claim decides.
                    tasks = claimable(connection, utc_now())
                if tasks:
                    loop.call_soon_threadsafe(self._wake_for, Counter(tasks))
                self._tasks = tasks
            time.sleep(INTERVAL_SECONDS)

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._waiters:
                self._tasks = self._watcher = None
            return bool(self._waiters)

    def _wake_for(self, tasks: Counter[str]) -> None:
        for waiter in self._waiters if tasks else ():
            if waiter.woken.is_set() or waiter.queues is None:
                continue
            queue = next((name for name in waiter.queues or list(tasks) if tasks[name] > 0), None)
            if queue is not None:
                tasks[queue] -= 1
                waiter.woken.set()
