"""Limits the connections to Postgres that a process opens under load."""

import logging
import threading
from collections import Counter
from typing import Any

from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, QueuePool

_log = logging.getLogger("arctic.connections")

_HOLDER = "arctic_holder"


_NONE_FREE = "All %d connections were in use for %s s; one more is opened until it is not needed."


class PatientPool(QueuePool):
    """Keeps ``pool_size`` connections; exceeds them only after a timeout.

    A thread that finds all connections in use waits up to :attr:`PATIENCE_SECONDS` for one. After
    that it opens another one within ``max_overflow``: the transactions that hold the connections
    may wait for a lock of another process, and must not block the rest of this one. A thread that
    already has a connection does not wait, since it might wait for itself.
    """

    PATIENCE_SECONDS = 2.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: the number of connections in use, by thread
        self._held: Counter[int] = Counter()
        self._returned = threading.Condition()

    def connect(self) -> PoolProxiedConnection:
        """Returns a connection; may wait, see the class.

        Errors:
            TimeoutError: of SQLAlchemy; even those of ``max_overflow`` are in use.
        """
        thread = threading.get_ident()
        with self._returned:
            if not (thread in self._held or self._waited()):
                _log.warning(_NONE_FREE, self.size(), self.PATIENCE_SECONDS)
            self._held[thread] += 1
        try:
            connection = super().connect()
        except BaseException:
            self._release(thread)
            raise
        # Not in `info`, which is cleared when a connection is replaced.
        assert connection.record_info is not None
        connection.record_info[_HOLDER] = thread
        return connection

    def _waited(self) -> bool:
        """Whether one is free, now or before the timeout."""
        return self._returned.wait_for(self._has_free, self.PATIENCE_SECONDS)

    def _has_free(self) -> bool:
        return self._held.total() < self.size()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        # Another thread may have the connection as soon as it is back.
        thread = (record.record_info or {}).pop(_HOLDER, None)
        super()._do_return_conn(record)
        # None: it could not be connected, and `connect` counts that.
        if thread is not None:
            self._release(thread)

    def _release(self, thread: int) -> None:
        with self._returned:
            self._held[thread] -= 1
            if not self._held[thread]:
                del self._held[thread]
            self._returned.notify()
