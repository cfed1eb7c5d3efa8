"""Limits the connections to Postgres that a process has at once, with all of its pools.

The threads of a process wait for each other's connections, and an idle connection of one pool is
closed when another pool needs its place. What a thread waits for is granted by the thread that
returns a connection, to the one that has waited longest.

A connection is checked before it is used again, as Go's driver of MySQL does it: one that the
server has closed has something to read. A query that finds out, SQLAlchemy's ``pool_pre_ping``,
would be one of the two to four round trips of a transaction.
"""

import logging
import os
import select
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakSet

from sqlalchemy import Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, QueuePool
from sqlalchemy.util.queue import Empty

_log = logging.getLogger("arctic.connections")

_HOLDER = "arctic_holder"
_RETURNED = "arctic_returned"

#: A router may have dropped a connection that was idle for longer, and has sent nothing.
_TRUSTED_SECONDS = 10.0

#: Postgres's code of a write that a read-only server refuses
_READ_ONLY = "25006"

_EXCEEDS = (
    "All connections of the process were in use for %s s (%d, at most %d); it opens one more."
)


class PatientPool(QueuePool):
    """Keeps ``pool_size`` connections, and the process to :attr:`PROCESS_LIMIT` in all.

    A thread that finds all connections of the pool in use waits for one. After
    :attr:`PATIENCE_SECONDS` it may have one beyond the pool's size, within ``max_overflow``: the
    transactions that hold the others may wait for a lock of another process, and must not block the
    rest of this one. A thread that already has one need not wait for the pool, since it might wait
    for itself.

    If the process has its limit, an idle connection of another pool is closed. If none is idle, the
    thread waits until one is returned, and exceeds the limit only after :attr:`LAST_SECONDS`, or if
    no other thread has one.
    """

    PROCESS_LIMIT = 4
    PATIENCE_SECONDS = 2.0
    LAST_SECONDS = 30.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: the number of connections in use, by thread
        self.held: Counter[int] = Counter()
        #: how many may be open: those in use, and the idle ones
        self.places = 0
        _process.add(self)

    def connect(self) -> PoolProxiedConnection:
        """Returns a connection; may wait, see the class.

        Errors:
            TimeoutError: of SQLAlchemy; even those of ``max_overflow`` are in use.
        """
        thread = threading.get_ident()
        replaced = _process.acquire(self, thread)
        try:
            if replaced is not None:
                replaced.close_idle()
            connection = super().connect()
        except BaseException:
            _process.release(self, thread, is_open=False)
            raise
        # Not in `info`, which is cleared when a connection is replaced.
        assert connection.record_info is not None
        connection.record_info[_HOLDER] = thread
        return connection

    def close_idle(self) -> None:
        """Closes one connection that is not in use, if there is one."""
        with suppress(Empty):
            record = self._pool.get(block=False)
            try:
                record.close()
            finally:
                self._dec_overflow()

    def dispose(self) -> None:
        """Closes all connections that are not in use."""
        super().dispose()
        _process.forget_idle(self)

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        # Another thread may have the connection as soon as it is back.
        thread = (record.record_info or {}).pop(_HOLDER, None)
        record.info[_RETURNED] = time.monotonic()
        super()._do_return_conn(record)
        # None: it could not be connected, and `connect` counts that.
        if thread is not None:
            _process.release(self, thread)


@event.listens_for(PatientPool, "checkout")
def _check(connection: DBAPIConnection, record: ConnectionPoolEntry, _: object) -> None:
    """Replaces a connection that the server has closed, and with it all older ones of the pool.

    Errors:
        InvalidatePoolError: which SQLAlchemy answers by connecting anew.
    """
    returned = record.info.pop(_RETURNED, None)
    if returned is None:
        return
    try:
        if time.monotonic() - returned > _TRUSTED_SECONDS or _has_news(connection):
            cursor = connection.cursor()
            cursor.execute("select 1")
            cursor.close()
            connection.rollback()
    except Exception as error:
        raise InvalidatePoolError from error


def leave_read_only_servers(engine: Engine) -> None:
    """Lets an engine connect anew after its server refused to write.

    The server may be a standby since a failover, or its disk was full: a session keeps what it
    began with, and another one may reach the new primary. The statement fails all the same.
    """
    event.listen(engine, "handle_error", _end_read_only)


def _end_read_only(context: ExceptionContext) -> None:
    if getattr(context.original_exception, "pgcode", None) == _READ_ONLY:
        context.is_disconnect = True


def _has_news(connection: Any) -> bool:
    """Returns whether the server has sent something without a request, or has closed its end."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class _Waiter:
    def __init__(self, pool: PatientPool, thread: int) -> None:
        self.pool = pool
        self.thread = thread
        self.may_exceed_pool = thread in pool.held
        #: the pool that has to close an idle connection before this one opens its own
        self.replaced: PatientPool | None = None
        self.granted = threading.Event()


class _Process:
    """The pools of a process, and the threads that wait for their connections."""

    def __init__(self) -> None:
        self._pools: WeakSet[PatientPool] = WeakSet()
        self._waiters: list[_Waiter] = []
        # Reentrant: the collection of garbage may return a connection at any point.
        self._lock = threading.RLock()
        self._changes: deque[Callable[[], None]] = deque()
        self._is_changing = False

    def add(self, pool: PatientPool) -> None:
        self._change(partial(self._pools.add, pool))

    def acquire(self, pool: PatientPool, thread: int) -> PatientPool | None:
        """Waits for a place; returns the pool that has to close an idle connection first."""
        waiter = _Waiter(pool, thread)
        try:
            self._change(partial(self._waiters.append, waiter))
            if not waiter.granted.wait(pool.PATIENCE_SECONDS):
                self._change(partial(setattr, waiter, "may_exceed_pool", True))
                if not waiter.granted.wait(pool.LAST_SECONDS - pool.PATIENCE_SECONDS):
                    self._change(partial(self._exceed, waiter))
        except BaseException:
            self._change(partial(self._leave, waiter))
            raise
        return waiter.replaced

    def release(self, pool: PatientPool, thread: int, *, is_open: bool = True) -> None:
        """Returns a thread's place; the connection is idle then, unless the pool has enough."""
        self._change(partial(self._release, pool, thread, is_open=is_open))

    def forget_idle(self, pool: PatientPool) -> None:
        """Notes that a pool has closed its idle connections."""
        self._change(lambda: setattr(pool, "places", pool.held.total()))

    def _change(self, change: Callable[[], None]) -> None:
        """Makes a change, and grants what it frees.

        A change that the collection of garbage brings into another one is made after that.
        """
        self._changes.append(change)
        with self._lock:
            while self._changes and not self._is_changing:
                self._is_changing = True
                try:
                    while self._changes:
                        self._changes.popleft()()
                        self._grant()
                finally:
                    self._is_changing = False

    def _release(self, pool: PatientPool, thread: int, *, is_open: bool) -> None:
        pool.held[thread] -= 1
        if not pool.held[thread]:
            del pool.held[thread]
        idle = pool.places - pool.held.total()
        pool.places -= max(0 if is_open else 1, idle - pool.size())

    def _exceed(self, waiter: _Waiter) -> None:
        if not waiter.granted.is_set():
            pool = waiter.pool
            _log.warning(_EXCEEDS, pool.LAST_SECONDS, self._places(), pool.PROCESS_LIMIT)
            self._take(waiter, 1)

    def _leave(self, waiter: _Waiter) -> None:
        if waiter.granted.is_set():
            self._release(waiter.pool, waiter.thread, is_open=False)
        elif waiter in self._waiters:
            self._waiters.remove(waiter)

    def _grant(self) -> None:
        """Gives places to those who wait, in their order, where there are any for them."""
        for waiter in list(self._waiters):
            if waiter.pool.places > waiter.pool.held.total():
                self._take(waiter, 0)
            elif self._has_place(waiter) and self._make_room(waiter):
                self._take(waiter, 1)

    def _take(self, waiter: _Waiter, new_places: int) -> None:
        self._waiters.remove(waiter)
        waiter.pool.places += new_places
        waiter.pool.held[waiter.thread] += 1
        waiter.granted.set()

    @staticmethod
    def _has_place(waiter: _Waiter) -> bool:
        return waiter.may_exceed_pool or waiter.pool.places < waiter.pool.size()

    def _make_room(self, waiter: _Waiter) -> bool:
        """Whether the process may open one more, where need be in place of an idle one."""
        if self._places() < waiter.pool.PROCESS_LIMIT:
            return True
        for other in list(self._pools):
            if other.places > other.held.total():
                other.places -= 1
                waiter.replaced = other
                return True
        threads = {thread for pool in list(self._pools) for thread in pool.held}
        return not threads - {waiter.thread}

    def _places(self) -> int:
        return sum(pool.places for pool in list(self._pools))


_process = _Process()


def _leave_to_parent() -> None:
    """In a forked process: leaves the connections, and the threads that wait, to the parent."""
    global _process
    _process = _Process()


os.register_at_fork(after_in_child=_leave_to_parent)
